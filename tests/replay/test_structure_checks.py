from __future__ import annotations

import types
from collections import defaultdict, namedtuple
from dataclasses import make_dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rlcpu.replay.structure import TransitionStructure

EXAMPLE = {
    "observation": {"camera": np.zeros((2, 3), np.uint8), "speed": np.float32(0)},
    "action": (np.int32(0), True),
}


def batch(lead: tuple[int, ...] = (4,), **changes: Any) -> dict[str, Any]:
    """A good batch of EXAMPLE, but for what is changed ("camera", "speed", "first", "second")."""
    camera = np.zeros((*lead, 2, 3), np.uint8)
    speed, first = np.zeros(lead, np.float32), np.zeros(lead, np.int32)
    leaves = {"camera": camera, "speed": speed, "first": first, "second": np.zeros(lead, bool)}
    leaves |= changes
    observation = {"camera": leaves["camera"], "speed": leaves["speed"]}
    return {"observation": observation, "action": (leaves["first"], leaves["second"])}


def without(name: str) -> dict[str, Any]:
    changed = batch()
    del changed[name]
    return changed


class Tensor:
    """What another library's array looks like."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        if isinstance(self.array, Exception):
            raise self.array
        return self.array


class Sub(np.ndarray):
    pass


BAD: dict[str, tuple[Any, type[Exception], str]] = {
    "missing": (without("action"), ValueError,
        r"^batch lacks field 'action': expected 'observation', 'action'"),
    "missing beneath": ({**batch(), "observation": {"camera": 0}}, ValueError,
        r"^field 'observation' lacks field 'observation.speed': expected 'camera', 'speed'"),
    "extra": ({**batch(), "reward": 0}, ValueError,
        r"^batch has the unknown field 'reward': expected 'observation', 'action'"),
    "misspelt": ({**without("action"), "actions": 0}, ValueError, r"^batch lacks field 'action'"),
    "extra key": ({**batch(), 3: 0}, ValueError, r"^batch has the unknown key 3: expected"),
    "short tuple": ({**batch(), "action": (0,)}, ValueError,
        r"^field 'action' lacks field 'action.1': expected '0', '1'"),
    "long tuple": ({**batch(), "action": (0, True, 0)}, ValueError,
        r"^field 'action' has the unknown field 'action.2': expected '0', '1'"),
    "list for dict": ([batch()], TypeError,
        r"^batch is a list: expected a dict of 'observation', 'action'"),
    "array for dict": ({**batch(), "observation": np.zeros(4)}, TypeError,
        r"^field 'observation' is a ndarray: expected a dict of 'camera', 'speed'"),
    "array for tuple": ({**batch(), "action": np.zeros(2)}, TypeError,
        r"^field 'action' is a ndarray: expected a tuple of '0', '1'"),
    "dict for array": (batch(speed={"a": 1}), TypeError,
        r"^field 'observation.speed' is a dict of Python objects: expected an array"),
    "shape": (batch(camera=np.zeros((4, 3, 2), np.uint8)), ValueError,
        r"^field 'observation.camera' has shape \(4, 3, 2\): expected \(2, 3\) after at most 2"),
    "shape of another field": (batch(first=np.zeros((4, 1, 1), np.int32)), ValueError,
        r"^field 'action.0' has shape \(4, 1, 1\): expected \(\) after at most 2 leading axes"),
    "fewer axes": (batch(camera=np.zeros(3, np.uint8)), ValueError,
        r"^field 'observation.camera' has shape \(3,\): expected \(2, 3\) after at most 2 leading"),
    "leading axes": (batch(first=np.zeros(5, np.int32)), ValueError,
        r"^field 'action.0' has shape \(5,\): expected \(4,\), with the leading axes of the first"),
    "one transition among many": (batch(second=True), ValueError,
        r"^field 'action.1' has shape \(\): expected \(4,\), with the leading axes"),
    "too many axes": (batch((4, 2, 2)), ValueError,
        r"^field 'observation.camera' has shape \(4, 2, 2, 2, 3\): expected \(2, 3\) after"),
    "float for int": (batch(first=np.zeros(4)), TypeError,
        r"^field 'action.0' has dtype float64: expected int32"),
    "int for bool": (batch(second=np.zeros(4, int)), TypeError,
        r"^field 'action.1' has dtype int64: expected bool"),
    "complex for float": (batch(speed=np.zeros(4, complex)), TypeError,
        r"^field 'observation.speed' has dtype complex128: expected float32"),
    "dates for int": (batch(first=np.zeros(4, "M8[s]")), TypeError,
        r"^field 'action.0' has dtype datetime64\[s\]: expected int32"),
    "text": (batch(speed=["a"] * 4), TypeError,
        r"^field 'observation.speed' has dtype <U1: expected float32"),
    "1.5 for int": (batch(first=[1, 2, 1.5, 3]), TypeError, r"^field 'action.0' has dtype float64"),
    "integer range": (batch(camera=np.full((4, 2, 3), 256)), ValueError,
        r"^field 'observation.camera' holds 256 at \[0, 0, 0\] \(24 such\): expected 0 to 255 \("),
    "first offender": (batch(first=[0, 1, 2**31, -(2**31) - 1]), ValueError,
        r"^field 'action.0' holds 2147483648 at \[2\] \(2 such\): expected -2147483648 to"),
    "overflow": (batch(speed=[np.inf, 1.0, -1e39, np.nan]), ValueError,
        r"^field 'observation.speed' holds -1e\+39 at \[2\] \(1 such\): expected .*of float32"),
    "ragged": (batch(first=[[1], [1, 2], 3, 4]), ValueError,
        r"^field 'action.0' is a list that NumPy cannot read: expected an array \(.*inhomogeneous"),
    "beyond 64 bits": (batch(first=[2**70] * 4), TypeError,
        r"^field 'action.0' is a list of Python objects: expected an array"),
    "masked": (batch(speed=np.ma.zeros(4, np.float32)), TypeError,
        r"^field 'observation.speed' is a masked array: expected an array without a mask"),
    "tensor elsewhere": (batch(speed=Tensor(RuntimeError("requires grad"))), TypeError,
        r"^field 'observation.speed' is a Tensor that NumPy cannot read: .*\(requires grad\)"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_batch(name: str) -> None:
    value, error, message = BAD[name]
    with pytest.raises(error, match=message):
        TransitionStructure(EXAMPLE).check(value, 2)


def test_values_of_one_transition_have_no_position() -> None:
    structure = TransitionStructure(EXAMPLE)
    with pytest.raises(
        ValueError, match=r"^field 'action.0' holds 4294967296 \(1 such\): expected"
    ):
        structure.check(batch((), first=2**32), 0)
    with pytest.raises(ValueError, match=r"has shape \(4, 2, 3\): expected \(2, 3\)$"):
        structure.check(batch(), 0)


def test_whole_arrays_are_called_batch() -> None:
    structure = TransitionStructure(np.zeros(3, np.float32))
    with pytest.raises(TypeError, match=r"^batch has dtype complex128: expected float32"):
        structure.check(np.zeros(3, complex), 0)
    (array,), lead = structure.check([[1, 2, 3], [4, 5, 6]], 1)
    assert array.dtype == np.float32
    assert lead == (2,)


class Pair(NamedTuple):
    a: Any
    b: Any


Data = make_dataclass("Data", ["a", "b"])


def test_named_tuples_and_dataclasses_by_their_names() -> None:
    for cls, kind in ((Pair, "NamedTuple"), (Data, "dataclass")):
        structure = TransitionStructure({"x": cls(0, 1.0)})
        reloaded: Any = namedtuple("Pair", "b a") if cls is Pair else make_dataclass("Data", "ba")
        arrays, _ = structure.check({"x": reloaded(b=2.0, a=3)}, 0)
        assert [array.item() for array in arrays] == [3, 2.0]
        assert type(structure.unflatten(arrays)["x"]) is cls
        longer: Any = namedtuple("L", "a b c") if cls is Pair else make_dataclass("L", "abc")
        with pytest.raises(ValueError, match=r"^field 'x' has the unknown field 'x.c': expected"):
            structure.check({"x": longer(1, 2, 3)}, 0)
        for wrong in ((1, 2.0), {"a": 1, "b": 2.0}, cls):
            with pytest.raises(
                TypeError, match=f"^field 'x' is a .*: expected a {kind} of 'a', 'b'"
            ):
                structure.check({"x": wrong}, 0)
    item = Data(1, 2.0)
    del item.b
    with pytest.raises(ValueError, match=r"^field 'x' lacks the value of a field: .*'b'"):
        structure.check({"x": item}, 0)


def test_single_names() -> None:
    one: Any = make_dataclass("One", ["a"])
    single: Any = namedtuple("single", "a")
    for example in ({"a": 0}, one(0), (0,), [0], single(0)):
        structure = TransitionStructure(example)
        arrays, lead = structure.check(example, 0)
        assert [array.item() for array in arrays] == [0]
        assert structure.unflatten(arrays) == example
        assert lead == ()


def test_mappings() -> None:
    structure = TransitionStructure({"a": 0, "b": 1.0})
    for mapping in (types.MappingProxyType({"b": 2.0, "a": 1}), defaultdict(int, a=1, b=2.0)):
        arrays, _ = structure.check(mapping, 0)
        assert [array.item() for array in arrays] == [1, 2.0]
    holes = defaultdict(int, a=1)
    with pytest.raises(ValueError, match=r"^batch lacks field 'b'"):
        structure.check(holes, 0)
    assert list(holes) == ["a"]


# ---------------------------------------------------------------- casts


def test_right_dtypes_are_not_copied() -> None:
    value = batch((4,), camera=np.zeros((3, 2, 8), np.uint8).T[::2])
    arrays, lead = TransitionStructure(EXAMPLE).check(value, 1)
    given_arrays = [*value["observation"].values(), *value["action"]]
    assert all(map(lambda a, b: a is b, arrays, given_arrays))
    assert lead == (4,)


@pytest.mark.parametrize(("values", "target"), [
    (1, "f4"), (1.0, "f4"), (True, "u1"), (7, "u1"), ([True, False], "f8"), (2**63, "u8"),
    (np.uint64(5), "i1"), (np.int64(-5), "i1"), (1.5, "c8"), (np.float64(0.1), "f2"),
    (np.array([np.nan, np.inf, -np.inf, 3e38]), "f4"), (np.ones(3, ">f4"), "f4"),
    (np.array(["ab"]), "U5"), (np.array(["ab"], ">U2"), "U2"), (b"a", "S2"), ([], "f4"),
    (np.zeros(0, int), "i1"), (np.array([1, 2], ">i2"), "i1"), (np.ones(2, ">m8[s]"), "m8[s]"),
    (np.ones(2, ">i2,f4"), "i2,f4"), (np.float16(1), "f8"), (np.arange(3).view(Sub), "i8"),
    (Tensor(np.ones(3)), "f4"),
])  # fmt: skip
def test_casts_that_lose_nothing(values: Any, target: str) -> None:
    structure = TransitionStructure(np.zeros((), target))
    (array,), _ = structure.check(values, 2)
    assert type(array) is np.ndarray
    assert array.dtype == structure.fields[0].dtype
    np.testing.assert_array_equal(array, np.asarray(values).astype(target))


@pytest.mark.parametrize(("source", "target"), [
    ("f4", "i8"), ("f2", "?"), ("i1", "?"), ("c8", "f8"), ("U3", "U2"), ("S2", "U2"), ("f8", "U40"),
    ("M8[ms]", "M8[s]"), ("M8[s]", "M8[ms]"), ("i8", "m8[s]"), ("V2", "V3"), ("i2,f4", "i4,f4"),
    ("f8", "V8"), ("U2", "f8"),
])  # fmt: skip
def test_casts_that_may_lose_something(source: str, target: str) -> None:
    with pytest.raises(TypeError, match=r"^batch has dtype .*: expected "):
        TransitionStructure(np.zeros((), target)).check(np.zeros((), source), 0)


@pytest.mark.parametrize("value", [70_000, 1e5, np.float32(1e5), np.longdouble(1e300)])
def test_overflow_to_infinity(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^batch holds .*: expected a number within the range of"):
        TransitionStructure(np.float16(0)).check(value, 0)
    with pytest.raises(ValueError, match=r"holds \(1e\+300\+0j\) .*range of complex64"):
        TransitionStructure(np.complex64(0)).check(1e300 + 0j, 0)


@given(hnp.integer_dtypes() | hnp.unsigned_integer_dtypes(), st.sampled_from("bhilBHIL"), st.data())
def test_integers_fit_or_are_refused(source: Any, target: str, data: Any) -> None:
    array = data.draw(hnp.arrays(source, st.integers(0, 4)))
    limits = np.iinfo(target)
    bad = [i for i, value in enumerate(array.tolist()) if not limits.min <= value <= limits.max]
    structure = TransitionStructure(np.zeros((), target))
    if bad:
        first = rf"^batch holds {array[bad[0]]} at \[{bad[0]}\] \({len(bad)} such\): expected "
        with pytest.raises(ValueError, match=first + f"{limits.min} to {limits.max}"):
            structure.check(array, 1)
    else:
        assert structure.check(array, 1)[0][0].tolist() == array.tolist()
