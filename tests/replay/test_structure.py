from __future__ import annotations

import copy
import enum
import json
import pickle
from dataclasses import dataclass, field, make_dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcpu.replay.fields import TransitionField
from rlcpu.replay.structure import TransitionStructure

DTYPES = ["?", "i1", "u2", "<i4", ">i8", "u8", "f2", ">f4", "f8", "c8", "S3", ">U2", "M8[s]", "m8",
          "V5", "i2,f4", "(2,)i2,>f4",
          {"names": "x", "formats": ["i4"], "titles": ["t"]}]  # fmt: skip
SHAPES = [(), (1,), (3,), (2, 3), (2, 1, 3)]


class Step(NamedTuple):
    observation: Any
    reward: Any


@dataclass(frozen=True)
class Item:
    observation: Any
    info: Any = None
    derived: Any = field(init=False, default=None)

    def __post_init__(self) -> None:
        object.__setattr__(self, "derived", np.zeros(2, np.int16))


def containers(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.text(st.characters(exclude_characters="."), min_size=1, max_size=3)
    return st.one_of(
        st.dictionaries(names, children, min_size=1, max_size=3),
        st.lists(children, min_size=1, max_size=3),
        st.lists(children, min_size=1, max_size=3).map(tuple),
        st.builds(Step, children, children),
        st.builds(Item, children, children),
    )


leaves = st.builds(
    lambda dtype, shape: np.zeros(shape, dtype), st.sampled_from(DTYPES), st.sampled_from(SHAPES)
)
examples = st.recursive(leaves, containers, max_leaves=6)


def naive_flatten(value: Any, path: str = "") -> dict[str, Any]:
    """Leaves by dotted path."""
    if isinstance(value, dict):
        items = value
    elif isinstance(value, Step):
        items = value._asdict()
    elif isinstance(value, tuple | list):
        items = {str(i): item for i, item in enumerate(value)}
    elif isinstance(value, Item):
        items = dict(vars(value))
    else:
        return {path: value}
    flat: dict[str, Any] = {}
    for name, item in items.items():
        flat |= naive_flatten(item, f"{path}.{name}" if path else name)
    return flat


def same(one: Any, other: Any) -> bool:
    """Whether two structures are of the same containers and hold the very same leaves."""
    if type(one) is not type(other):
        return False
    flat, others = naive_flatten(one), naive_flatten(other)
    return list(flat) == list(others) and all(flat[name] is others[name] for name in flat)


def batch_of(structure: TransitionStructure, lead: tuple[int, ...]) -> Any:
    """New arrays in the structure's dtypes."""
    return structure.unflatten([np.zeros(lead + shape, d) for _, d, shape in structure.fields])


# ---------------------------------------------------------------- fields and round trips


@given(examples, st.sampled_from([(), (3,), (2, 3)]))
@settings(max_examples=150)
def test_round_trip_of_any_structure(example: Any, lead: tuple[int, ...]) -> None:
    structure = TransitionStructure(example)
    flat = naive_flatten(example)
    assert [each.name for each in structure.fields] == list(flat)
    for (_, dtype, shape), leaf in zip(structure.fields, flat.values(), strict=True):
        assert dtype == leaf.dtype.newbyteorder("=")
        assert shape == leaf.shape
    batch = batch_of(structure, lead)
    arrays, found = structure.check(batch, 2)
    assert found == lead
    assert all(map(lambda a, b: a is b, arrays, naive_flatten(batch).values()))
    assert same(structure.unflatten(arrays), batch)
    assert same(structure.unflatten(tuple(arrays)), batch)


@given(examples)
@settings(max_examples=150)
def test_description_survives_json(example: Any) -> None:
    structure = TransitionStructure(example)
    description = structure.describe()
    text = json.dumps(description, sort_keys=True)
    assert json.loads(text) == description
    again = TransitionStructure.restore(json.loads(text), example)
    assert again.fields == structure.fields
    assert again.describe() == description
    batch = batch_of(structure, (2,))
    assert same(again.unflatten(again.check(batch, 1)[0]), batch)
    classes = any(f'"{kind}"' in text for kind in ("NamedTuple", "dataclass"))
    if classes:
        with pytest.raises(ValueError, match=r"as a (NamedTuple|dataclass) of .*expected example="):
            TransitionStructure.restore(description)
    else:
        assert TransitionStructure.restore(description).fields == structure.fields


@given(examples)
@settings(max_examples=50)
def test_select_every_path(example: Any) -> None:
    structure = TransitionStructure(example)
    assert structure.select("") == tuple(range(len(structure.fields)))
    for i, each in enumerate(structure.fields):
        assert structure.select(each.name) == (i,)


def test_fields_keep_the_users_order() -> None:
    example = {"z": 1.5, "a": {"camera": np.zeros((2, 3), ">f4"), "b": (True, np.uint8(1))}}
    structure = TransitionStructure(example)
    assert structure.fields == (
        TransitionField("z", np.dtype("f8"), ()),
        TransitionField("a.camera", np.dtype("f4"), (2, 3)),
        TransitionField("a.b.0", np.dtype("?"), ()),
        TransitionField("a.b.1", np.dtype("u1"), ()),
    )
    assert [each.row_bytes for each in structure.fields] == [8, 24, 1, 1]
    assert structure.fields[1].dtype.isnative
    assert structure.select("a") == (1, 2, 3)
    assert structure.select("a.b") == (2, 3)
    assert repr(structure).startswith(
        "TransitionStructure(z: float64 (), a.camera: float32 (2, 3), "
    )
    assert repr(TransitionStructure(0)) == "TransitionStructure(int64 ())"
    with pytest.raises(ValueError, match=r"no field 'b': expected one of 'z', 'a.camera'"):
        structure.select("b")
    with pytest.raises(ValueError, match=r"no field \['z'\]: expected one of"):
        structure.select(["z"])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="3 leaves: expected 4"):
        structure.unflatten("abc")


def test_spaces() -> None:
    pairs = {"box": spaces.Box(0, 255, (4, 2), np.uint8), "go": spaces.Discrete(3, start=1)}
    example: dict[str, Any] = {
        "observation": spaces.Dict(pairs),
        "action": spaces.Tuple([spaces.MultiBinary((2, 3)), spaces.MultiDiscrete([3, 4])]),
        "reward": np.float32(0),
    }
    structure = TransitionStructure(example)
    assert [(name, str(dtype), shape) for name, dtype, shape in structure.fields] == [
        ("observation.box", "uint8", (4, 2)),
        ("observation.go", "int64", ()),
        ("action.0", "int8", (2, 3)),
        ("action.1", "int64", (2,)),
        ("reward", "float32", ()),
    ]
    sample = {name: example[name].sample() for name in ("observation", "action")}
    arrays, lead = structure.check({**sample, "reward": 1.0}, 0)
    assert lead == ()
    np.testing.assert_array_equal(arrays[0], sample["observation"]["box"])
    assert TransitionStructure.restore(structure.describe(), example).fields == structure.fields


@pytest.mark.parametrize("space", [
    spaces.Text(5), spaces.Sequence(spaces.Discrete(2)), spaces.OneOf([spaces.Discrete(2)]),
    spaces.Graph(spaces.Discrete(2), None),
])  # fmt: skip
def test_spaces_of_no_fixed_size(space: spaces.Space[Any]) -> None:
    name = type(space).__name__
    with pytest.raises(TypeError, match=f"field 'a.b' is a {name} space: expected a Box, Discrete"):
        TransitionStructure({"a": {"b": space}})


def test_pickle_and_deepcopy() -> None:
    structure = TransitionStructure({"a": Item(np.zeros(3), 1), "b": Step(0, {"c": 1.0})})
    batch = batch_of(structure, (4,))
    for again in (pickle.loads(pickle.dumps(structure)), copy.deepcopy(structure)):
        assert again.fields == structure.fields
        assert same(again.unflatten(again.check(batch, 1)[0]), batch)
        arrays, _ = again.check(pickle.loads(pickle.dumps(batch)), 1)
        assert same(again.unflatten(arrays), structure.unflatten(arrays))


def test_metadata_of_a_dtype_is_dropped() -> None:
    tagged = np.dtype("f4", metadata={"unit": "m"})
    for dtype in (tagged, np.dtype([("x", tagged), ("y", ">i2")])):
        structure = TransitionStructure(np.zeros(2, dtype))
        array = np.ones((3, 2), dtype)
        (taken,), _ = structure.check(array, 1)
        assert taken.tobytes() == np.ones((3, 2), dtype.newbyteorder("=")).tobytes()
        assert TransitionStructure.restore(structure.describe()).fields == structure.fields


# ---------------------------------------------------------------- examples that are refused


class Text(dict[str, Any]):
    pass


Fixed = make_dataclass("Fixed", ["message"], bases=(Exception,))
Unset = make_dataclass("Unset", [("x", int, field(init=False))])
DEEP: Any = 0
for _ in range(40):
    DEEP = [DEEP]


@pytest.mark.parametrize(("example", "error", "message"), [
    ({}, ValueError, r"^example is empty: expected at least one field"),
    ({"a": {"b": ()}}, ValueError, r"^field 'a.b' is empty: expected at least one field"),
    ({"a": {1: 0}}, TypeError, r"^field 'a' has the key 1: expected a string"),
    ({"a.b": 0}, ValueError, r"^example has the key 'a.b': expected a name without dots"),
    ({"": 0}, ValueError, r"^example has the key '': expected a name without dots"),
    ({"a": np.zeros((3, 0))}, ValueError, r"^field 'a' has .* shape \(3, 0\), 0 bytes"),
    ({"a": np.zeros(3, "V0")}, ValueError, r"^field 'a' has dtype .*expected 1 to"),
    ({"a": np.zeros((1,) * 63)}, ValueError, r"^field 'a' has 63 axes: expected at most 62"),
    ({"a": None}, TypeError, r"^field 'a' is a NoneType of Python objects: expected an array"),
    (None, TypeError, r"^example is a NoneType of Python objects: expected an array"),
    ({"a": np.array([{}])}, TypeError, r"^field 'a' is a ndarray of Python objects"),
    ({"a": np.zeros(2, np.dtypes.StringDType())}, TypeError, r"^field 'a' is a .*Python objects"),
    ({"a": np.zeros(2, [("x", "O")])}, TypeError, r"^field 'a' is a ndarray of Python objects"),
    ({"a": np.ma.zeros(2)}, TypeError, r"^field 'a' is a masked array: expected an array without"),
    ({"a": np.zeros(2, {"names": "xy", "formats": ["i4", "i4"], "offsets": [0, 2]})}, TypeError,
     r"^field 'a' has dtype .* which no file can name"),
    (Fixed("x"), TypeError, r"^example cannot be made anew from its fields"),
    (Unset(), ValueError, r"^example lacks the value of a field: .*'x'"),
    (DEEP, ValueError, r"^field '0.*' is a list: expected at most 32 levels"),
])  # fmt: skip
def test_bad_example(example: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        TransitionStructure(example)


def test_keys_of_an_enumeration_are_their_texts() -> None:
    key = enum.Enum("key", {"A": "a"}, type=str)
    structure = TransitionStructure({key.A: {key.A: 0.0}, "b": 0})
    assert [field.name for field in structure.fields] == ["a.a", "b"]
    assert [array.item() for array in structure.check({"b": 1, "a": {key.A: 2.0}}, 0)[0]] == [
        2.0,
        1,
    ]


def test_mapping_of_any_class_is_a_dict() -> None:
    structure = TransitionStructure(Text(a=1, b=2.0))
    assert structure.unflatten("xy") == {"a": "x", "b": "y"}
    assert type(structure.unflatten("xy")) is dict
