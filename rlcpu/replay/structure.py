"""From an example transition to named columns, and back.

A transition is one array, or containers of arrays, nested freely. In a checkpoint its structure is
a JSON value, which names no class that would be imported.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from reprlib import repr as shorten
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from rlcpu.replay.fields import (
    Array,
    TransitionField,
    describe_dtype,
    label,
    make_field,
    parse_dtype,
    take,
    to_array,
    wrong_shape,
)

_ARRAY = "array"
_LEAF_SPACES = (spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete)
_MAX_DEPTH = 32

_ndarray = np.ndarray


class TransitionStructure:
    """The fields of a transition, learned from an example.

    The example is one array, a NumPy or Python number, a Gymnasium space of a fixed size, or a
    dict, dataclass instance, NamedTuple, tuple or list of these, nested and mixed freely. Lists
    and tuples are containers, never arrays. `numpy.asarray` of a leaf gives its dtype: a Python
    float is float64, an int is int64. Fields are kept in native byte order.

    Attributes:
        fields: in the order of the dict's keys, the tuple's positions, the dataclass's fields.

    Raises:
        TypeError: a leaf that is no array of fixed-size values, or a key that is no string.
        ValueError: an empty container or item, or a key that is empty or holds a dot.

    >>> structure = TransitionStructure({"observation": np.zeros(4, np.float32), "action": 0})
    >>> structure
    TransitionStructure(observation: float32 (4,), action: int64 ())
    """

    _root: _Node

    def __init__(self, example: Any) -> None:
        self._root = example._root if isinstance(example, TransitionStructure) else _learn(example)
        self.fields: tuple[TransitionField, ...] = self._root.fields
        self._dtypes_and_shapes = tuple((field.dtype, field.shape) for field in self.fields)
        self._first_ndim = len(self.fields[0].shape)
        try:  # now, not when the first batch is made
            _build(self._root, range(len(self.fields)))
        except (TypeError, AttributeError) as error:  # of a fixed layout, of read-only fields
            raise TypeError(f"example cannot be made anew from its fields: {error}") from error

    # ------------------------------------------------------------ taking apart, putting together

    def check(self, batch: Any, max_axes: int) -> tuple[list[Array], tuple[int, ...]]:
        """Return the arrays of a batch, one per field, of its exact dtype, and their leading axes.

        Each leaf is (*lead, *field.shape), with the same leading axes, at most `max_axes`. A leaf
        of the field's dtype is returned as it is (of any strides), another one as a copy. Allowed
        are NumPy's "same_kind" casts and any between integers, if each value fits.

        Raises:
            TypeError: a container or dtype of another kind.
            ValueError: a missing or extra entry, a wrong shape, a value that does not fit.
        """
        leaves = _collect(self._root, batch)
        fields = self.fields
        if type(leaves[0]) is not _ndarray:
            leaves = [to_array(leaves[0], label(fields[0].name)), *leaves[1:]]
        shape = leaves[0].shape
        lead = shape[: len(shape) - self._first_ndim]
        if len(lead) > max_axes:
            raise wrong_shape(shape, fields[0], lead, max_axes)
        arrays: list[Array] = []
        # 0.15 us a field: dtypes by identity, and an index, since zip(strict=True) costs 0.25 us.
        i = -1
        for dtype, item_shape in self._dtypes_and_shapes:
            i += 1
            leaf = leaves[i]
            if (
                type(leaf) is not _ndarray
                or (leaf.dtype is not dtype and leaf.dtype != dtype)
                or leaf.shape != lead + item_shape
            ):
                leaf = take(leaf, fields[i], lead, max_axes)
            arrays.append(leaf)
        return arrays, lead

    def collect(self, batch: Any) -> Sequence[Any]:
        """Return the leaves of a batch, not checked; TypeError or ValueError without a leaf."""
        return _collect(self._root, batch)

    def unflatten(self, leaves: Sequence[Any]) -> Any:
        """Return leaves in the user's structure; ValueError where there is not one per field."""
        if len(leaves) != len(self.fields):
            raise ValueError(f"{len(leaves)} leaves: expected {len(self.fields)}, one per field")
        return _build(self._root, leaves)

    def select(self, name: str) -> tuple[int, ...]:
        """Return the positions of the fields at or beneath a dotted path, "" for all.

        Raises:
            ValueError: there are none.
        """
        names = [field.name for field in self.fields]
        positions = [n for n, each in enumerate(names) if f"{each}.".startswith(f"{name}.")]
        if name and not positions:
            raise ValueError(f"no field {name!r}: expected one of {', '.join(map(repr, names))}")
        return tuple(positions) if name else tuple(range(len(names)))

    # ------------------------------------------------------------ description

    def describe(self) -> Any:
        """Return a JSON value that `restore` understands."""
        return _describe(self._root)

    @staticmethod
    def restore(description: Any, example: Any = None) -> TransitionStructure:
        """Return the structure of a `describe()`, which may be anybody's: no class is looked up.

        Dataclasses and NamedTuples need the example. Where it is given, its fields have to be those
        of the description, which decides about the order of a dict's keys.

        Raises:
            ValueError: a malformed description, one that needs the example, or another example.
        """
        node = None if example is None else _learn(example)
        try:
            structure = TransitionStructure(_revive(description, node))
            if structure.describe() == description:
                return structure
        except (LookupError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"description: not what describe() returns: {error!r}") from error
        raise ValueError(f"description: not what describe() returns: {shorten(description)}")

    def __repr__(self) -> str:
        each = (f"{field.name}: {field.dtype} {field.shape}" for field in self.fields)
        return f"TransitionStructure({', '.join(text.removeprefix(': ') for text in each)})"


# ---------------------------------------------------------------- the tree of containers


class _Node(NamedTuple):
    """Node at a path: an array, or a container of named children."""

    kind: str  # "array", "dict", "tuple", "list", "NamedTuple" or "dataclass"
    path: str  # dotted; "" is the whole
    fields: tuple[TransitionField, ...]  # of all arrays in it, in order
    names: tuple[str, ...] = ()  # of the children; positions for a tuple or list
    children: tuple[_Node, ...] = ()  # at least one; none of an array
    flat: bool = True  # all children are arrays
    cls: Any = None  # the user's class, of a dataclass or NamedTuple

    def __str__(self) -> str:
        if self.kind == _ARRAY:
            return f"{self.fields[0].dtype} of shape {self.fields[0].shape}"
        return f"a {self.kind} of {', '.join(self.names)}"


class _Container(NamedTuple):
    """A container as a user gave it."""

    kind: str  # see `_Node`
    items: list[tuple[Any, Any]]  # name and value of each child
    cls: Any = None  # the user's class, of a dataclass or NamedTuple


def _learn(example: Any, path: str = "", depth: int = 0) -> _Node:
    """Return the node of an example, or of its part at a dotted path, `depth` levels down.

    For errors see `TransitionStructure`.
    """
    whole = label(path, "example")
    opened = _open(example, whole)
    if opened is None:
        field = make_field(path, *_describe_leaf(example, whole))
        return _Node(_ARRAY, path, (field,))
    kind, items, cls = opened
    if not items:
        raise ValueError(f"{whole} is empty: expected at least one field")
    if depth == _MAX_DEPTH:
        raise ValueError(f"{whole} is a {kind}: expected at most {_MAX_DEPTH} levels")
    for name, _ in items:
        if not isinstance(name, str):
            raise TypeError(f"{whole} has the key {name!r}: expected a string")
        if not name or "." in name:
            raise ValueError(f"{whole} has the key {name!r}: expected a name without dots")
    names = tuple(str.__str__(name) for name, _ in items)
    pairs = zip(names, items, strict=True)
    children = tuple(_learn(item, _join(path, name), depth + 1) for name, (_, item) in pairs)
    fields = tuple(field for child in children for field in child.fields)
    flat = all(child.kind == _ARRAY for child in children)
    return _Node(kind, path, fields, names, children, flat, cls)


def _describe_leaf(leaf: Any, whole: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Return dtype and shape of an array, a number, a space or a field."""
    if isinstance(leaf, spaces.Space | TransitionField):
        return np.dtype(leaf.dtype), tuple(leaf.shape or ())
    there = getattr(leaf, "__cuda_array_interface__", None)  # of an array on a CUDA device
    if there is not None:
        return np.dtype(there["typestr"]), tuple(there["shape"])
    array = to_array(leaf, whole)
    return array.dtype, array.shape


def _open(value: Any, whole: str) -> _Container | None:
    """Return a container's kind and children; None for a leaf. `whole` names it in errors."""
    if isinstance(value, TransitionField):  # of a description
        return None
    if isinstance(value, spaces.Dict):
        return _Container("dict", list(value.spaces.items()))
    if isinstance(value, spaces.Tuple):
        return _Container("tuple", [(str(i), each) for i, each in enumerate(value.spaces)])
    if isinstance(value, spaces.Space) and not isinstance(value, _LEAF_SPACES):
        raise TypeError(
            f"{whole} is a {type(value).__name__} space: expected a Box, Discrete, MultiBinary, "
            "MultiDiscrete, Dict or Tuple"
        )
    if isinstance(value, Mapping):
        return _Container("dict", list(value.items()))
    names = getattr(value, "_fields", None)
    if isinstance(value, tuple) and isinstance(names, tuple):
        return _Container("NamedTuple", list(zip(names, value, strict=True)), type(value))
    if isinstance(value, tuple | list):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return _Container(kind, [(str(i), item) for i, item in enumerate(value)])
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        try:
            items = [(name, getattr(value, name)) for name in names]
            return _Container("dataclass", items, type(value))
        except AttributeError as error:  # declared, never set
            raise ValueError(f"{whole} lacks the value of a field: {error}") from error
    return None


def parts_of(data: Any) -> dict[Any, Any]:
    """Return the parts of a batch by name, of a tuple or list by position; none of one array."""
    opened = _open(data, "data")
    if opened is None:
        return {}
    is_plain = opened.kind in ("tuple", "list")
    return dict(enumerate(data)) if is_plain else dict(opened.items)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _collect(node: _Node, value: Any) -> Sequence[Any]:
    """Return the leaves of a value, in the order of the node's fields; they are not checked."""
    kind = node.kind
    if kind == _ARRAY:
        return (value,)
    # A defaultdict would make up what is missing: only a plain dict takes the short way.
    if kind == "dict" and type(value) is dict and len(value) == len(node.names):
        try:  # `map`, since a comprehension is called
            values: Sequence[Any] = list(map(value.__getitem__, node.names))
        except KeyError:
            values = _read(node, value)
    else:
        is_own = kind == "NamedTuple" and type(value) is node.cls
        values = value if is_own else _read(node, value)
    if node.flat:
        return values
    leaves: list[Any] = []
    for child, part in zip(node.children, values, strict=True):
        leaves += _collect(child, part) if child.children else (part,)
    return leaves


def _read(node: _Node, value: Any) -> Sequence[Any]:
    """Return the values of a container's children, in order, after checks.

    A tuple may be a list, a dict any mapping. NamedTuples and dataclasses may be of another class
    with the same names, such as that of a reloaded module.
    """
    kind, names, whole = node.kind, node.names, label(node.path)
    expected = ", ".join(map(repr, names))
    if kind in ("tuple", "list") and isinstance(value, tuple | list):
        if len(value) == len(names):
            return value
        parts = {str(i): part for i, part in enumerate(value)}
    else:
        opened = _open(value, whole)
        if opened is None or opened.kind != kind:
            kind_name = type(value).__name__
            raise TypeError(f"{whole} is a {kind_name}: expected a {kind} of {expected}")
        parts = dict(opened.items)
    for name in names:
        if name not in parts:
            missing = label(_join(node.path, name))
            raise ValueError(f"{whole} lacks {missing}: expected {expected}")
    for name in parts:
        if name not in names:
            unknown = label(_join(node.path, name)) if isinstance(name, str) else f"key {name!r}"
            raise ValueError(f"{whole} has the unknown {unknown}: expected {expected}")
    return [parts[name] for name in names]


def _build(node: _Node, leaves: Sequence[Any]) -> Any:
    """Return the container of as many leaves as the node has fields: the inverse of `_collect`."""
    kind, values = node.kind, leaves
    if kind == _ARRAY:
        return leaves[0]
    if not node.flat:
        values, end = [], 0
        for child in node.children:
            begin, end = end, end + len(child.fields)
            values.append(_build(child, leaves[begin:end]) if child.children else leaves[begin])
    if kind == "dict":
        return dict(zip(node.names, values))  # noqa: B905 (strict= costs 0.2 us of the 0.3)
    if kind == "tuple":
        return tuple(values)
    if kind == "list":
        return list(values)
    if kind == "NamedTuple":
        return node.cls._make(values)  # a `__new__` of the user's is not called
    # As `copy` makes it, without `__init__`: what a class does to one transition there, such as a
    # check of shapes, need not hold for a batch. A frozen class is filled like any other.
    instance = object.__new__(node.cls)
    for name, value in zip(node.names, values):  # noqa: B905 (as above)
        object.__setattr__(instance, name, value)
    return instance


# ---------------------------------------------------------------- as a JSON value


def _describe(node: _Node) -> Any:
    """Return the kind of a node with its dtype and shape, or with its named children."""
    if node.kind == _ARRAY:
        (field,) = node.fields
        dtype = describe_dtype(field.dtype)
        return {"kind": node.kind, "dtype": dtype, "shape": list(field.shape)}
    pairs = zip(node.names, node.children, strict=True)
    return {"kind": node.kind, "items": [[name, _describe(child)] for name, child in pairs]}


def _revive(saved: Any, node: _Node | None, path: str = "") -> Any:
    """Return an example, whose leaves are `TransitionField`s, from a description that may be bad.

    `saved` is the description, or the part of it at a dotted path, `node` that of the user's
    example there, for its class; None without one.

    Raises:
        Exception: of many kinds, for a malformed description. What passes may still be malformed:
            the caller compares it with what the result describes.
    """
    whole, kind = label(path, "example"), saved["kind"]
    if kind == _ARRAY:
        shape = saved["shape"]
        if not all(type(size) is int for size in shape):  # True is 1 otherwise
            raise ValueError(f"{whole} was saved with {shorten(shape)}, which is not a shape")
        field = TransitionField(path, parse_dtype(saved["dtype"], whole), tuple(shape))
        if node is not None and node.fields != (field,):
            raise ValueError(f"{whole} is {node}: expected {field.dtype} of shape {field.shape}")
        return field
    items = {item[0]: item[1] for item in saved["items"]}
    saved_kind = f"a {kind} of {', '.join(items)}"
    if node is None and kind in ("NamedTuple", "dataclass"):
        raise ValueError(f"{whole} was saved as {saved_kind}: expected example=, for its class")
    collection = list if kind == "NamedTuple" else set  # NamedTuples are made by position
    if node is not None and (node.kind != kind or collection(node.names) != collection(items)):
        raise ValueError(f"{whole} is {node}: expected {saved_kind}")
    children = dict(zip(node.names, node.children, strict=True)) if node else {}
    parts = [_revive(part, children.get(name), _join(path, name)) for name, part in items.items()]
    return _build(_Node(kind, path, (), tuple(items), cls=node.cls if node else None), parts)
