"""Numba with less to do makes the same machine code, and is itself again afterwards."""

from __future__ import annotations

import operator
import re
import threading
from typing import Any

import numba
import numpy as np
import pytest
from llvmlite.binding import ffi
from numba import types
from numba.core import compiler, errors, event, ir, targetconfig, utils
from numba.core.registry import cpu_target
from numba.core.target_extension import CPU
from numba.core.typing import npydecl
from numba.extending import intrinsic

from rlcpu.kernels.compiler import quick
from rlcpu.kernels.compiler.quick import quickly
from tests.kernels.test_hooks import make


def test_this_release_of_numba_has_been_read():
    assert numba.__version__.startswith(quick.RELEASE)


def test_another_release_stays_as_it_is(monkeypatch):
    monkeypatch.setattr(quick, "RELEASE", "0.1.")
    before = parts()
    with quickly():
        assert parts() == before


def parts() -> list[Any]:
    """All that is replaced in a block, as it is now."""
    found = [vars(owner)[name] for owner, name, _ in quick.replacements()]
    return [*found, *ffi.lib._lock._cblist]


def test_all_is_back_after_a_block_that_fails():
    before, during = parts(), []

    def fail() -> None:
        with quickly():
            during.extend(parts())
            with quickly():
                assert parts() == during
            assert parts() == during
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not set(map(id, before)) & set(map(id, during))
    assert all(x is y for x, y in zip(parts(), before, strict=True))


def test_another_thread_compiles_afterwards():
    done = []
    thread = threading.Thread(target=lambda: done.append(make()(1.0)))
    with quickly():
        thread.start()
        thread.join(0.2)
        assert not done
    thread.join()
    assert done == [2.0]


@numba.njit(no_cpython_wrapper=True)
def inner(x, pair):
    return np.sqrt(x) * pair[0] if x > pair[1] else -x


def outer(values, count):
    """Arrays, tuples, loops, branches, a slice, allocation, and functions of numba's."""
    total, other = 0.0, np.zeros(3)
    for i in range(count):
        total += inner(values[i], (2.0, np.sin(total)))
        other[i % 3] = max(total, values[-1])
    return total + other[1:].sum(), min(other[0], 1.0)


def assembly_of(compiled: Any) -> list[str]:
    """Instructions of a function, without the names of others and of places."""
    (text,) = compiled.inspect_asm().values()
    lines = [line.split("#")[0] for line in text.splitlines() if re.match(r"\t[a-z]", line)]
    assert len(lines) > 50
    return [re.sub(r"[\w.$]*(_Z|LBB|LCPI|Ltmp|Lfunc|NRT_|numba)[\w.$@]*", "", x) for x in lines]


def test_the_machine_code_is_the_same():
    plain, quick_one = numba.njit(outer), numba.njit(outer)
    arguments = np.linspace(1, 2, 8), 8
    expected = plain(*arguments)
    inner._reset_overloads()
    with quickly():
        assert quick_one(*arguments) == expected
    assert assembly_of(quick_one) == assembly_of(plain)


def test_an_error_says_the_same():
    def bad(x):
        return [x, None][0] + x.nothing

    texts = []
    for is_quick in (False, True):
        compiled = numba.njit(bad)
        try:
            if is_quick:
                with quickly():
                    compiled(1.0)
            else:
                compiled(1.0)
        except errors.TypingError as error:
            texts.append(re.sub(r"0x\w+", "", str(error)))
    assert texts[0] == texts[1]
    assert "nothing" in texts[0]


def test_settings_are_compared_as_numba_does():
    def configs() -> list[Any]:
        made = [compiler.Flags() for _ in range(4)]
        made[1].nrt = made[1].nrt  # the default, said
        made[2].nrt = not made[2].nrt
        return made

    def facts() -> tuple[Any, ...]:
        flags = configs()
        pairs = [x == y for x in flags for y in flags]
        return pairs, [hash(x) for x in flags], [x.values() for x in flags], flags[0] == 1

    expected = facts()
    with quickly():
        assert targetconfig.TargetConfig.values is quick._values
        assert facts() == expected
    assert expected[0][:3] == [True, True, False]


def test_implementations_come_in_numbas_order():
    templates = cpu_target.typing_context.resolve_value_type(max).templates
    expected = utils.order_by_target_specificity(CPU, templates)
    with quickly():
        for _ in range(2):
            assert utils.order_by_target_specificity(CPU, templates) == expected


@pytest.mark.parametrize(
    "kinds",
    [
        (types.float64, types.int64),
        (types.Optional(types.float64), types.float64),
        (types.float64[:], types.float32),
        (types.Optional(types.float64[::1]), types.float64),
        (types.unicode_type, types.float64),
        (types.UniTuple(types.float64, 2), types.float64),
    ],
)
def test_operators_of_arrays_are_found_as_before(kinds):
    rules = npydecl.NumpyRulesArrayOperator.__subclasses__()
    (rule,) = (each for each in rules if getattr(each, "key", None) is operator.add)
    template = rule(cpu_target.typing_context)
    expected = template.generic(kinds, {})
    with quickly():
        assert template.generic(kinds, {}) == expected


def test_variables_of_statements_are_those_of_numba():
    code = compiler.run_frontend(outer)
    statements = [each for block in code.blocks.values() for each in block.body]
    expected = [[v.name for v in each.list_vars()] for each in statements]
    with quickly():
        assert ir.Inst._rec_list_vars is quick._list_variables
        assert [[v.name for v in each.list_vars()] for each in statements] == expected
    assert sum(map(len, expected)) > 40


def test_a_function_that_is_registered_meanwhile_is_found():
    with quickly():
        assert make()(1.0) == 2.0

        @intrinsic
        def twice(typing, x):
            return x(x), lambda context, builder, sig, args: builder.fadd(args[0], args[0])

        assert numba.njit(lambda x: twice(x))(3.0) == 6.0


def test_a_generator_is_compiled_too():
    @numba.njit
    def count(n):
        for i in range(n):
            yield i * i

    @numba.njit
    def total(n):
        result = 0
        for x in count(n):
            result += x
        return result

    with quickly():
        assert total(4) == 14


def test_who_listens_to_passes_hears_them():
    heard = []

    class Listener(event.Listener):
        def on_start(self, event):
            heard.append(event.data["name"])

        def on_end(self, event):
            pass

    listener = Listener()
    event.register("numba:run_pass", listener)
    try:
        with quickly():
            make()(1.0)
    finally:
        event.unregister("numba:run_pass", listener)
    assert any("native_lowering" in name for name in heard)
