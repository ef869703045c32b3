from __future__ import annotations

import contextlib
import copy
import json
from dataclasses import make_dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcpu.replay.structure import TransitionStructure


class Pair(NamedTuple):
    a: Any
    b: Any


Data = make_dataclass("Data", ["a", "b"])
ARRAY = {"kind": "array", "dtype": "<f4", "shape": [3]}
EXAMPLE = {"x": (np.zeros(3, np.float32), [1, True]), "y": np.zeros(2, "i2,f4")}
DESCRIPTION = TransitionStructure(EXAMPLE).describe()


def test_what_a_description_looks_like() -> None:
    assert TransitionStructure(np.zeros(3, np.float32)).describe() == ARRAY
    assert TransitionStructure({"a": np.zeros(3, np.float32)}).describe() == {
        "kind": "dict", "items": [["a", ARRAY]]
    }  # fmt: skip


def dict_of(*items: Any) -> dict[str, Any]:
    return {"kind": "dict", "items": list(items)}


def nested(levels: int) -> Any:
    made: Any = ARRAY
    for _ in range(levels):
        made = dict_of(["a", made])
    return made


DEEP_DTYPE = "[('a', " * 500 + "'<f4'" + ")]" * 500


@pytest.mark.parametrize("description", [
    None, 3, "array", [], [ARRAY], {}, {"kind": "array"}, {"kind": "set", "items": [["a", ARRAY]]},
    {"kind": ["dict"], "items": []}, {**ARRAY, "extra": 1}, {"kind": "dict", "items": {"a": ARRAY}},
    dict_of(), dict_of(["a"]), dict_of(["a", ARRAY, 1]), dict_of([1, ARRAY]), dict_of("ab"),
    dict_of(["a.b", ARRAY]), dict_of(["", ARRAY]), dict_of(["a", ARRAY], ["a", ARRAY]),
    {"kind": "tuple", "items": [["1", ARRAY]]}, {"kind": "list", "items": [["a", ARRAY]]},
    nested(40), nested(800),
])  # fmt: skip
def test_malformed_container(description: Any) -> None:
    with pytest.raises(ValueError, match=r"describe\(\)|container|levels|empty|without dots"):
        TransitionStructure.restore(description)


@pytest.mark.parametrize("dtype", [
    None, 4, "", "float32", "f4", "O", "|O", "|O8", "<f3", "<f4,<f4", "3<f4", "(2,)<f4", "<T",
    "|V0", "<U0", "<U999999999", "<U99999999999999999999", "<M8[foo]", "<M8[99999999999s]", "<é4",
    "<f٤", ">f4", "[]", "['<f4']", "['<f4', (3,)]", "[('a',)]", "[('a', '<f4', (2,), 1)]",
    "[('a', '|O')]", "[(1, '<f4')]", "[('a', '<f4'), ('a', '<f4')]", "[('a', '<f4', (10**9,))]",
    "[('a', '<f4', (1000000000, 1000000000))]", "[('a', '<f4', ('x',))]", "[('a','<f4')]", "[",
    "[('a', '<f4'), *open('x')]", "[('a', '<f4')] + 1", "[None]", [], ["<f4"], [["a", "<f4"]],
    [None], {"a": 1}, DEEP_DTYPE, True, 1e300, 10**400,
])  # fmt: skip
def test_malformed_dtype(dtype: Any) -> None:
    with pytest.raises(ValueError, match=r"^field 'a' "):
        TransitionStructure.restore(dict_of(["a", {**ARRAY, "dtype": dtype}]))


@pytest.mark.parametrize("shape", [
    None, 3, "3", [-1], [0], [3.0], [True], [None], [[3]], [10**30], [2**62, 2**62], [1] * 63,
    [1] * 100_000, {"0": 1},
])  # fmt: skip
def test_malformed_shape(shape: Any) -> None:
    with pytest.raises(ValueError, match=r"^(description|example)"):
        TransitionStructure.restore({**ARRAY, "shape": shape})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    | st.sampled_from(["array", "dict", "tuple", "dataclass", "<f4", "kind", "items", "0"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["kind", "items", "dtype", "shape"]), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip


@given(json_values)
def test_any_json_raises_nothing_but_value_errors(description: Any) -> None:
    with contextlib.suppress(ValueError):
        TransitionStructure.restore(description)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) within a JSON value."""
    keys = value.keys() if isinstance(value, dict) else range(len(value))
    found = [(value, key) for key in keys]
    for key in keys:
        if isinstance(value[key], dict | list):
            found += places(value[key])
    return found


@given(st.data(), json_values, st.booleans())
@settings(max_examples=300)
def test_any_change_is_refused_or_understood(data: Any, other: Any, with_example: bool) -> None:
    changed = copy.deepcopy(DESCRIPTION)
    holder, key = data.draw(st.sampled_from(places(changed)))
    holder[key] = other
    try:
        structure = TransitionStructure.restore(changed, EXAMPLE if with_example else None)
    except ValueError:
        return
    assert structure.describe() == changed
    if with_example:
        assert changed == DESCRIPTION


# ---------------------------------------------------------------- with an example


def test_the_order_of_a_dict_is_that_of_the_description() -> None:
    description = TransitionStructure({"a": 0, "b": 1.0}).describe()
    structure = TransitionStructure.restore(description, {"b": 2.0, "a": 3})
    assert [field.name for field in structure.fields] == ["a", "b"]
    structure = TransitionStructure.restore(
        TransitionStructure(Data(0, 1.0)).describe(), Data(2, 3.0)
    )
    assert structure.unflatten("xy") == Data("x", "y")


@pytest.mark.parametrize(("saved", "example", "message"), [
    ({"a": 0}, {"a": 0, "b": 0}, r"^example is a dict of a, b: expected a dict of a"),
    ({"a": {"b": 0}}, {"a": (0,)}, r"^field 'a' is a tuple of 0: expected a dict of b"),
    ((0, 1), [0, 1], r"^example is a list of 0, 1: expected a tuple of 0, 1"),
    ({"a": 0}, {"a": 0.0}, r"^field 'a' is float64 of shape \(\): expected int64 of shape \(\)"),
    ({"a": [0]}, {"a": 0}, r"^field 'a' is int64 of shape \(\): expected a list of 0"),
    ({"a": 0}, {"a": [0]}, r"^field 'a' is a list of 0: expected int64 of shape \(\)"),
    (Pair(0, 1), Data(0, 1), r"^example is a dataclass of a, b: expected a NamedTuple of a, b"),
    (Pair(0, 1), {"a": 0, "b": 1}, r"^example is a dict of a, b: expected a NamedTuple of a, b"),
])  # fmt: skip
def test_another_example(saved: Any, example: Any, message: str) -> None:
    description = json.loads(json.dumps(TransitionStructure(saved).describe()))
    with pytest.raises(ValueError, match=message):
        TransitionStructure.restore(description, example)


def test_names_of_a_named_tuple_keep_their_order() -> None:
    description = TransitionStructure(Pair(0, 1)).describe()
    description["items"].reverse()
    with pytest.raises(ValueError, match=r"^example is a NamedTuple of a, b: expected .* of b, a"):
        TransitionStructure.restore(description, Pair(0, 1))


def test_no_class_is_imported() -> None:
    description = {"kind": "dataclass", "items": [["a", ARRAY]]}
    with pytest.raises(
        ValueError, match=r"^example was saved as a dataclass of a: expected example="
    ):
        TransitionStructure.restore(description)
    with pytest.raises(
        ValueError, match=r"^field 'x' was saved as a dataclass of a: expected example="
    ):
        TransitionStructure.restore(dict_of(["x", description]))
