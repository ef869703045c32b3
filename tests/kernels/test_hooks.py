"""Each hook into numba and llvmlite alone: a test that fails names what an upgrade broke."""

from __future__ import annotations

import ast
import ctypes
import importlib
import inspect
import operator
import re
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest
from numba import types
from numba.core.datamodel import default_manager
from numba.extending import intrinsic

from rlcpu.kernels.compiler import hooks, linking, statements
from rlcpu.kernels.compiler.compile import define
from rlcpu.kernels.machine.boards import Board


def make() -> Any:
    return numba.njit(lambda x: x + 1.0)


class Recorder(hooks.Cache):
    """A cache that keeps what numba gives it, and gives back what it is told."""

    def __init__(self) -> None:
        self.kept: list[Any] = []
        self.found: Any = None

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        self.target = target_context
        return self.found

    def save_overload(self, sig: Any, data: Any) -> None:
        self.kept.append(data)


def compiled_and_loaded() -> list[Any]:
    """A function that was compiled, and one whose code comes from its cache."""
    pair, cache, files = [make(), make()], Recorder(), hooks.CodeFiles(make)
    for each in pair:
        hooks.set_cache(each, cache)
        assert each(1.0) == 2.0
        cache.found = files.unpack(cache.target, files.pack(cache.kept[0]))
    assert len(cache.kept) == 1
    return pair


def check_setting() -> None:
    assert hooks.setting("NUMBA_DEFAULT_NUM_THREADS") >= 1
    assert isinstance(hooks.setting("CACHE_DIR"), str)
    assert "3" in str(hooks.setting("OPT"))
    for name in ("CPU_NAME", "CPU_FEATURES", "BOUNDSCHECK", "DEBUGINFO_DEFAULT"):
        hooks.setting(name)
    for name in ("LOOP_VECTORIZE", "SLP_VECTORIZE"):
        assert hooks.setting(name) in (0, 1)


def check_host_features() -> None:
    assert re.fullmatch(r"([+-][\w.-]+(,[+-][\w.-]+)*)?", hooks.host_features())


def check_set_cache() -> None:
    cache, compiled = Recorder(), make()
    hooks.set_cache(compiled, cache)
    assert hooks.cache_of(compiled) is cache
    assert compiled(1.0) == compiled(2.0) - 1.0 == 2.0
    assert len(cache.kept) == 1


def check_wrap_compiler() -> None:
    compiled, seen = make(), []

    def wrap(compile: Any) -> Any:
        def told(*args: Any) -> Any:
            seen.append(args)
            return compile(*args)

        return told

    hooks.wrap_compiler(compiled, wrap)
    assert compiled(1.0) == compiled(2.0) - 1.0 == 2.0
    assert len(seen) == 1


def check_choose_function() -> None:
    function, inner = make(), make()
    hooks.choose_function(function, lambda kinds: twice if kinds[0] == types.int64 else None)

    def twice(x):
        return inner(x) + inner(x)

    assert function(1.0) == 2.0
    assert function(1) == 4.0


def check_forget_code() -> None:
    compiled = make()
    compiled(1.0)
    hooks.forget_code(compiled)
    assert not compiled.overloads
    assert compiled(1.0) == 2.0


def check_assigned_types() -> None:
    def function(x):
        single = np.float32(x)
        return single * 2.0

    compiled = numba.njit(function)
    compiled(1.0)
    found = list(statements.assigned_types(*compiled.overloads.values()))
    first = function.__code__.co_firstlineno
    assert (first + 1, "single", types.float32) in [each[:3] for each in found]
    doubles = [each.operands for each in found if each[:3] == (first + 2, "", types.float64)]
    assert any(types.float32 in operands for operands in doubles)
    assert (types.float64,) in doubles  # the conversion at its `return`


def check_returned_values() -> None:
    class Pair(NamedTuple):
        first: Any
        second: Any

    def function(x, n):
        value = n
        if x > 1.0:
            value = 2.5
        if x > 2.0:
            return Pair(second=value, first=(True, None)), x
        return Pair((False, None), x), x

    compiled = numba.njit(function)
    compiled.compile((types.float64, types.int64))
    found = list(statements.returned_values(*compiled.overloads.values()))
    first, whole = function.__code__.co_firstlineno, types.int64
    assert sorted((each.line - first, repr(each.value)) for each in found) == [
        (3, repr((Pair((True, None), 2.5), types.float64))),
        (5, repr((Pair((True, None), whole), types.float64))),
        (6, repr((Pair((False, None), types.float64), types.float64))),
    ]


def check_llvm_of() -> None:
    for each in compiled_and_loaded():
        (compiled,) = each.overloads.values()
        assert "ret double" in hooks.llvm_of(compiled) or "ret i32" in hooks.llvm_of(compiled)


def check_address_of() -> None:
    for each in compiled_and_loaded():
        address = hooks.address_of(each)
        assert ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(address)(1.0) == 2.0

    class Types:
        """A signature; Ctrl-C comes as soon as it is hashed again."""

        hashed = 0

        def __hash__(self) -> int:
            self.hashed += 1
            if self.hashed > 1:
                raise KeyboardInterrupt
            return 0

    overloads = OrderedDict([(Types(), *each.overloads.values())])
    with pytest.raises((KeyError, KeyboardInterrupt)):
        list(overloads.values())
    assert hooks.address_of(SimpleNamespace(overloads=overloads)) == address


def check_definition() -> None:
    def one(typing):
        return types.intp(), lambda *_: types.intp

    assert hooks.definition(intrinsic(one)) is one
    assert hooks.definition(one) is None
    assert hooks.definition(make()) is None


def check_code_files() -> None:
    assert isinstance(hooks.CodeFiles(make).folder(), Path)
    _, loaded = compiled_and_loaded()
    assert loaded(2.5) == 3.5
    assert loaded.stats.cache_hits[types.float64,] == 1


def check_targets() -> None:
    compiled, cache = make(), Recorder()
    hooks.set_cache(compiled, cache)
    compiled(1.0)
    hooks.refresh_target(cache.target)
    assert hooks.processor(compiled) == tuple(cache.target.codegen().magic_tuple())
    assert all(isinstance(part, str) for part in hooks.processor(compiled))


@intrinsic
def last(typing, table, index):
    """The last item of a table, whatever the index."""

    def generate(context, builder, signature, args):
        return get(context, builder, (args[0], context.get_constant(types.intp, 2)))

    kind, get = hooks.generator_of(typing, operator.getitem, (table, types.intp))
    return kind(table, index), generate


#: What goes with `linked_compiler`.
LINKED: Any = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def check_assigned() -> None:
    """A rewriting is told the types of all that is assigned, once they are known."""
    kinds = []

    def rewrite(statement: Any, scope: Any, state: Any) -> Any:
        kinds.append(statements.assigned(statement, state))
        return [statement]

    def read(table, i):
        return table[i] + 10.0 * table[0]

    compiled = numba.njit(pipeline_class=linking.linked_compiler(rewrite), **LINKED)(read)
    table = np.array([1.0, 2.0, 3.0])
    assert numba.njit(lambda table, i: compiled(table, i))(table, 1) == 12.0
    assert {None, types.float64} < set(kinds)


def check_linked_callees() -> None:
    """There is machine code of a function, and none of numba's `np.ones`, which it calls."""

    def count_ones(n):
        return np.ones(n, np.int16).sum()

    compiled = numba.njit(no_cpython_wrapper=True)(count_ones)
    with linking.linked_callees(compiled):
        compiled.compile((types.intp,))
    library = compiled.overloads[types.intp,].library
    assert not isinstance(library, linking._Linked)
    callees = {lib.name: lib for lib in library._linking_libraries if lib.name != "nrt"}
    assert "ol_np_ones.<locals>.impl" in callees
    assert all(isinstance(lib, linking._Linked) for lib in callees.values())
    assert numba.njit(lambda n: compiled(n))(3) == 3

    long = define("def long(x):\n" + " x = x / (x + 3.0) - 0.5\n" * 100 + " return x")
    for branching in (False, True):
        inner = numba.njit(long, pipeline_class=linking.linked_compiler(), **LINKED)
        outer = numba.njit(lambda x, y: inner(x) if y > 2 else 0.0)  # noqa: B023
        with linking.linked_callees(outer, branching):
            assert outer(1.5, 3) == long(1.5)
        calls = re.findall(r"call .*4longB", hooks.llvm_of(*outer.overloads.values()))
        assert (not calls) == branching  # of what is called from one place alone


@intrinsic
def put_or_get(typing, table, index, value=None):
    """`table[index]`, or `table[index] = value`, at index 2 whatever is asked for."""
    operation = operator.getitem if value is None else operator.setitem
    kinds = (table, types.intp) if value is None else (table, types.intp, value)
    kind, run = hooks.generator_of(typing, operation, kinds)

    def generate(context, builder, signature, args):
        place = context.get_constant(types.intp, 2)
        return run(context, builder, (args[0], place, *args[2:])[: len(kinds)])

    return kind(table, index, types.none if value is None else value), generate


def check_preparing() -> None:
    """Reads and writes of items become calls before types are known; writes of fields are seen."""
    fields = []

    def prepare(statement: Any, scope: Any, state: Any) -> Any:
        found = statements.item_access(statement)
        if found is None:
            return [statement]
        return statements.call_statements(put_or_get, found, statement, scope)

    def rewrite(statement: Any, scope: Any, state: Any) -> Any:
        fields.append(statements.written_field(statement, state))
        return [statement]

    def change(record, i):
        record.items[i] = record.items[0] + 1
        record.items[1] = 7
        record.total = len(record.items[1:]) + 0.5

    kind = np.dtype([("items", np.int64, (3,)), ("total", np.float64)], align=True)
    compiler = linking.linked_compiler(rewrite, prepare)
    compiled = numba.njit(pipeline_class=compiler, **LINKED)(change)
    records = np.zeros(1, kind)
    records["items"] = [[3, 4, 5]]
    numba.njit(lambda records: compiled(records[0], 0))(records)
    assert records["items"].tolist() == [[3, 4, 7]]
    assert records["total"].tolist() == [2.5]
    assert [field for field in fields if field] == [("total", types.float64, types.float64)]


@intrinsic
def twice_y(typing, x, y):
    """`2 * y`, of whole numbers."""
    return y(x, y), lambda context, builder, signature, args: builder.add(args[1], args[1])


def check_fit_operand() -> None:
    """What is added in place goes through a function; other statements stay."""

    def fit(statement, scope, state):
        yield from statements.fit_operand(twice_y, statement, scope) or (statement,)

    @numba.njit(pipeline_class=linking.linked_compiler(prepare=fit), **LINKED)
    def add(x, y):
        x += y
        return x - y

    assert numba.njit(lambda x, y: add(x, y))(10, 3) == 13


def check_constant_power() -> None:
    found = []

    def prepare(statement: Any, scope: Any, state: Any) -> Any:
        found.append(statements.constant_power(statement, state))
        return [statement]

    def powers(x, n):
        y = x**3 + x**n + x**0.5
        y **= 2
        return y

    compiled = numba.njit(pipeline_class=linking.linked_compiler(None, prepare), **LINKED)(powers)
    numba.njit(lambda x, n: compiled(x, n))(2.0, 2)
    assert [power[1] for power in found if power] == [3, 2]


def test_loops_of_a_constant_range_are_unrolled() -> None:
    """However long their bodies are; others stay."""
    lines = ["for _ in range(turns):", " for _ in range(1, 31, 10):", "  x = np.sin(x)"]
    lines += ["  x = x * 0.99 + 0.01"] * 200
    scope: dict[str, Any] = {"np": np, "turns": 4}
    body = "\n".join(f"    {line}" for line in [*lines, "return x"])
    exec(f"def constant(x):\n{body}", scope)

    def other(x):
        for _ in range(np.int64(x)):
            x = np.sin(x)
        return x

    def counts(function: Any, unroll: bool) -> int:
        compiler = linking.linked_compiler(unroll=unroll)
        compiled = numba.njit(pipeline_class=compiler, no_cpython_wrapper=True)(function)
        outer = numba.njit(lambda x: compiled(x))
        assert outer(0.5) == pytest.approx(function(0.5), rel=1e-12)
        return len(
            re.findall(r"call double @[\w.]*sin\b", hooks.llvm_of(*outer.overloads.values()))
        )

    constant = scope["constant"]
    assert (counts(constant, False), counts(constant, True)) == (1, 12)
    assert counts(other, True) == counts(other, False)


def test_loops_over_an_argument_are_no_range() -> None:
    def total_of(values):
        total = 0.0
        for value in values:
            total += value
        return total

    compiler = linking.linked_compiler(unroll=True)
    compiled = numba.njit(pipeline_class=compiler, no_cpython_wrapper=True)(total_of)
    assert numba.njit(lambda x: compiled((x, 2.0)))(1.0) == 3.0


def check_linked_compiler() -> None:
    """Others link it in, fresh or from their cache; the engine never had it, nor can Python."""
    options: Any = {**LINKED, "pipeline_class": linking.linked_compiler()}
    for inlined in (True, False):
        inner = numba.njit(lambda x: x * 3.0, forceinline=inlined, **options)
        cache, files = Recorder(), hooks.CodeFiles(make)
        for _ in range(2):
            outer = numba.njit(lambda x, inner=inner: np.full(2, inner(x)) + 1.0)
            hooks.set_cache(outer, cache)
            assert outer(2.0).tolist() == [7.0, 7.0]
            cache.found = files.unpack(cache.target, files.pack(cache.kept[0]))
        (overload,) = inner.overloads.values()
        name, library = overload.fndesc.mangled_name, overload.library
        assert library.get_function(name)
        assert not library._codegen._engine.is_symbol_defined(name)
        with pytest.raises(TypeError):
            inner(2.0)
        assert inner.py_func(2.0) == 6.0


def check_generator_of() -> None:
    @numba.njit
    def read(table):
        return last(table, 0)

    assert read(np.arange(3.0)) == 2.0
    assert read(np.arange(3)) == 2


def check_borrowed() -> None:
    @intrinsic
    def same(typing, array):
        return array(array), lambda context, builder, signature, args: hooks.borrowed(
            context, builder, array, args[0]
        )

    array = np.arange(3.0)
    results = [numba.njit(lambda array: same(array))(array) for _ in range(3)]
    del array
    np.testing.assert_array_equal(results, [np.arange(3.0)] * 3)


def check_lower_constant() -> None:
    board = Board(7)
    assert numba.njit(lambda: board.low)() == 7


def check_resolve_attributes() -> None:
    class Twin(types.Type):
        pass

    hooks.resolve_attributes(Twin, lambda twin, name: types.int64 if name == "left" else None)
    context = numba.njit(lambda: None).targetdescr.typing_context
    context.refresh()
    assert context.resolve_getattr(Twin("twin"), "left") == types.int64
    assert context.resolve_getattr(Twin("twin"), "right") is None


def check_freeze() -> None:
    @intrinsic
    def frozen(typing, number):
        return number(number), lambda context, builder, signature, args: hooks.freeze(
            builder, args[0]
        )

    compiled = numba.njit(lambda number: frozen(number))
    assert compiled(7) == 7
    assert "freeze" in next(iter(compiled.inspect_llvm().values())) or compiled(8) == 8


def check_add_attribute() -> None:
    @intrinsic
    def mark(typing):
        def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            hooks.add_attribute(builder.function, "nounwind")
            hooks.add_attribute(builder.function, '"prefer-vector-width"="512"')
            return context.get_dummy_value()

        return types.void(), lower

    def marked(x):
        mark()
        return x + 1

    compiled = numba.njit(marked)
    assert compiled(7) == 8
    assert '"prefer-vector-width"="512"' in next(iter(compiled.inspect_llvm().values()))


def check_types_before_failure() -> None:
    found: list[Any] = []

    class Compiler(linking.linked_compiler()):  # type: ignore[misc]
        def compile_extra(self, function: Any) -> Any:
            try:
                return super().compile_extra(function)
            except numba.errors.NumbaError:
                found.extend(statements.types_before_failure(self.state))
                raise

    def unlike(x):
        half = x / 2
        if x > 1:
            return (half, 1)
        return (x, 1, 2)

    with pytest.raises(numba.errors.NumbaError, match="unify"):
        numba.njit(pipeline_class=Compiler)(unlike).compile((numba.float32,))
    line = unlike.__code__.co_firstlineno + 1
    assert (line, "half", numba.float64) in [each[:3] for each in found]


def check_with_rules() -> None:
    """A whole number that meets a float32 is one, in that function alone; and a NamedTuple."""

    def arguments(function: Any, kinds: tuple[Any, ...]) -> tuple[Any, ...]:
        return (types.float32,) * len(kinds) if function is operator.mul else kinds

    def unify(first: Any, second: Any, context: Any) -> Any:
        both = getattr(first, "instance_class", None), getattr(second, "instance_class", None)
        return types.NamedTuple((types.int64, types.float32), Die) if both == (Die, Die) else None

    def weighed(die):
        return Die(die.eyes, die.eyes * 0.5) if die.eyes > 2 else Die(die.eyes, 3)

    rules = linking.TypeRules(arguments, unify)
    for compiler in (linking.linked_compiler(rules=rules), linking.compiler_with(rules)):
        compiled = numba.njit(pipeline_class=compiler)(weighed)
        outer = numba.njit(lambda die: compiled(die))  # noqa: B023
        assert [outer(Die(eyes, 0.5)).weight for eyes in (1, 4)] == [3.0, 2.0]
        (overload,) = compiled.overloads.values()
        assert overload.signature.return_type.types[1] == types.float32
    with pytest.raises(numba.errors.NumbaError, match="unify"):
        numba.njit(weighed)(Die(1, 0.5))


class Die(NamedTuple):  # fields of one type would make another type of tuple
    eyes: int
    weight: float


class Line(NamedTuple):
    double: int
    length: float


def check_overload_method_of() -> None:
    hooks.overload_method_of(Die, "double", lambda die: lambda die: 2 * die.eyes, {})
    assert numba.njit(lambda die: die.double())(Die(4, 0.5)) == 8
    assert numba.njit(lambda line: line.double)(Line(4, 0.5)) == 4


def check_teach_replace() -> None:
    """`rlcpu.kernels.machine.tuples` teaches it as it is loaded, once for all."""
    importlib.import_module("rlcpu.kernels.machine.tuples")
    assert numba.njit(lambda die: die._replace(eyes=6))(Die(4, 0.5)) == Die(6, 0.5)


#: Each test, and the hooks that it is a test of.
CHECKS: dict[Callable[[], None], str] = {
    check_setting: "setting",
    check_host_features: "host_features",
    check_set_cache: "set_cache cache_of Cache",
    check_wrap_compiler: "wrap_compiler",
    check_choose_function: "choose_function",
    check_forget_code: "forget_code",
    check_assigned_types: "assigned_types Assigned",
    check_returned_values: "returned_values Returned",
    check_types_before_failure: "types_before_failure",
    check_with_rules: "compiler_with context_class with_rules TypeRules",
    check_llvm_of: "llvm_of",
    check_address_of: "address_of",
    check_definition: "definition",
    check_code_files: "CodeFiles",
    check_targets: "refresh_target processor",
    check_assigned: "assigned",
    check_preparing: "item_access call_statements named_constant written_field WrittenField",
    check_fit_operand: "fit_operand",
    check_constant_power: "constant_power",
    check_linked_compiler: "linked_compiler hint_loop",
    check_linked_callees: "linked_callees",
    check_generator_of: "generator_of",
    check_borrowed: "borrowed",
    check_lower_constant: "lower_constant",
    check_resolve_attributes: "resolve_attributes",
    check_overload_method_of: "overload_method_of",
    check_teach_replace: "teach_replace",
    check_freeze: "freeze",
    check_add_attribute: "add_attribute",
}


@pytest.mark.parametrize("check", CHECKS, ids=CHECKS.values())
def test_hook(check: Callable[[], None]) -> None:
    check()


def test_every_hook_has_a_test() -> None:
    public = {
        name: value
        for module in (hooks, linking, statements)
        for name, value in vars(module).items()
        if getattr(value, "__module__", "") == module.__name__ and not name.startswith("_")
    }
    assert sorted(public) == sorted(" ".join(CHECKS.values()).split())
    assert all(map(inspect.getdoc, public.values()))


def test_another_thread_compiles_after_the_block() -> None:
    done = []
    thread = threading.Thread(target=lambda: done.append(make()(1.0)))
    with linking.linked_callees(make()):
        thread.start()
        thread.join(0.2)
        assert not done
    thread.join()
    assert done == [2.0]


def test_arrays_in_tuples_are_counted() -> None:
    """Those without any are not taken apart, which takes numba long of thousands of items."""
    options: Any = {**LINKED, "pipeline_class": linking.linked_compiler()}
    hold = numba.njit(lambda x: ((x, 1.0), (True,) * 3), **options)
    swap = numba.njit(lambda pair: (pair[1], pair[0]), **options)
    outer = numba.njit(lambda x: swap(hold(x))[1][0])
    array = np.arange(3.0)
    before = sys.getrefcount(array)
    results = [outer(array) for _ in range(5)]
    assert all(each is array or np.shares_memory(each, array) for each in results)
    del results
    assert sys.getrefcount(array) == before
    counts = linking._Counts(SimpleNamespace(data_model_manager=default_manager), True)
    bools = types.UniTuple(types.boolean, 2000)
    assert counts.get_meminfos(None, types.Tuple((bools, types.intp)), None) == []


#: What is documented, or described in numba's guide for those who extend it.
DOCUMENTED = {"types", "cgutils", "errors"}
#: Attributes of numba's objects, which are no names of ours.
PRIVATE = {"_compiler", "_reset_overloads", "_codegen", "_tm", "_insert", "_defn", "_Intrinsic"}


def test_private_parts_are_used_in_three_files() -> None:
    package = Path(hooks.__file__).parents[1]
    private = "hooks.py", "linking.py", "statements.py"
    for path in package.rglob("*.py"):
        if path.name in private or "cuda" in path.relative_to(package).parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("numba.core"):
                assert node.module == "numba.core", path
                assert {each.name for each in node.names} <= DOCUMENTED, path
            if isinstance(node, ast.ImportFrom) and node.module == "numba":
                # The cache looks for files that say `numba.core` or `numba.extending`.
                assert not {"core", "extending"} & {each.name for each in node.names}, path
            if isinstance(node, ast.Attribute):
                assert node.attr not in PRIVATE, (path, node.lineno)
                config = ast.unparse(node).startswith("numba.config.")
                assert not config or node.attr == "NUMBA_NUM_THREADS", (path, node.lineno)
