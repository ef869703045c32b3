"""The fields of an example transition."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from rlcpu.replay.structure_checks import label, make_field, to_array
from rlcpu.replay.structure_description import describe_dtype
from rlcpu.replay.structure_nodes import KINDS, MAX_DEPTH, Leaf, Node, check_name, is_named_tuple

_LEAF_SPACES = (spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete)


def learn(example: Any, path: str = "", depth: int = 0) -> Node:
    """The node of an example, or of the part of it at a path, so many levels down.

    Raises:
        TypeError, ValueError: see `Structure`.
    """
    found = _open(example, path)
    if found is None:
        return _learn_leaf(example, path)
    kind, items = found
    if not items:
        raise ValueError(f"{label(path, 'example')} is empty: expected at least one field")
    if depth == MAX_DEPTH:
        raise ValueError(
            f"{label(path, 'example')} is a {kind}: expected at most {MAX_DEPTH} levels"
        )
    names = [check_name(name, path, "example") for name, _ in items]
    children = [
        learn(item, f"{path}.{name}" if path else name, depth + 1)
        for name, (_, item) in zip(names, items, strict=True)
    ]
    node = KINDS[kind]
    return node(path, names, children, type(example) if node.needs_class else None)


def _learn_leaf(example: Any, path: str) -> Leaf:
    if isinstance(example, spaces.Space):
        dtype, shape = np.dtype(example.dtype), tuple(example.shape or ())
    else:
        array = to_array(example, path, "example")
        dtype, shape = array.dtype, array.shape
    field = make_field(path, dtype, shape)
    try:
        describe_dtype(field.dtype)
    except TypeError as error:
        raise TypeError(
            f"{label(path, 'example')} has dtype {dtype}, which no file can name: expected one of "
            "NumPy's own"
        ) from error
    return Leaf(field)


def _open(example: Any, path: str) -> tuple[str, list[tuple[Any, Any]]] | None:
    """The kind and the named children of a container; None for a leaf."""
    if isinstance(example, spaces.Space):
        return _open_space(example, path)
    if isinstance(example, Mapping):
        return "dict", list(example.items())
    if is_named_tuple(example):
        return "NamedTuple", list(zip(example._fields, example, strict=True))
    if isinstance(example, tuple | list):
        kind = "tuple" if isinstance(example, tuple) else "list"
        return kind, [(str(i), item) for i, item in enumerate(example)]
    if dataclasses.is_dataclass(example) and not isinstance(example, type):
        names = [field.name for field in dataclasses.fields(example)]
        for name in names:
            if not hasattr(example, name):
                raise ValueError(f"{label(path, 'example')} has no value of its field {name!r}")
        return "dataclass", [(name, getattr(example, name)) for name in names]
    return None


def _open_space(space: spaces.Space[Any], path: str) -> tuple[str, list[tuple[Any, Any]]] | None:
    if isinstance(space, spaces.Dict):
        return "dict", list(space.spaces.items())
    if isinstance(space, spaces.Tuple):
        return "tuple", [(str(i), each) for i, each in enumerate(space.spaces)]
    if isinstance(space, _LEAF_SPACES):
        return None
    raise TypeError(
        f"{label(path, 'example')} is a {type(space).__name__} space: expected a Box, Discrete, "
        "MultiBinary, MultiDiscrete, Dict or Tuple"
    )
