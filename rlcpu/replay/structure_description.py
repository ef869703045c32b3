"""A transition's fields as a JSON value, and back from a JSON value that may be anybody's."""

from __future__ import annotations

import re
from reprlib import repr as shorten
from typing import Any

import numpy as np

from rlcpu.replay.structure_checks import Field, label, make_field
from rlcpu.replay.structure_nodes import KINDS, MAX_DEPTH, Container, Leaf, Node, check_name

# One plain dtype: no comma string (a list of fields), no alias that NumPy has deprecated.
_PLAIN_DTYPE = re.compile(r"[<>|=][biufcmMSUV]\d{0,9}(\[\d{0,9}[a-zA-Z]{1,7}\])?", re.ASCII)
_MAX_DTYPE_DEPTH = 8
_MAX_SIZE = int(np.iinfo(np.intp).max)

# ---------------------------------------------------------------- dtypes and shapes


def describe_dtype(dtype: np.dtype[Any]) -> Any:
    """NumPy's description of a dtype, its tuples as lists.

    Raises:
        TypeError: no description gives this dtype back, as of dtypes that other libraries register
            (NumPy calls bfloat16 "V2").
    """
    try:
        description = _as_lists(np.lib.format.dtype_to_descr(dtype))
        if parse_dtype(description) == dtype:
            return description
    except ValueError:  # fields that overlap
        pass
    raise TypeError(f"dtype {dtype} has no description")


def _as_lists(item: Any) -> Any:
    return [_as_lists(part) for part in item] if isinstance(item, list | tuple) else item


def parse_dtype(description: Any) -> np.dtype[Any]:
    """The dtype of a `describe_dtype`; ValueError if it is malformed."""
    try:
        dtype = np.lib.format.descr_to_dtype(_parse_descr(description, _MAX_DTYPE_DEPTH))
    except Exception as error:  # whatever NumPy raises for what it does not understand
        raise ValueError(f"{shorten(description)} is not a dtype's description") from error
    if dtype.hasobject or dtype.subdtype is not None:
        raise ValueError(f"{shorten(description)}: expected a dtype of plain values")
    return dtype


def _parse_descr(item: Any, depth: int) -> Any:
    """The lists as the tuples that `descr_to_dtype` wants; ValueError for anything unexpected."""
    if isinstance(item, str) and _PLAIN_DTYPE.fullmatch(item):
        return item
    if not (isinstance(item, list) and item and depth):
        raise ValueError(f"{shorten(item)} is not a dtype")
    parts: list[tuple[Any, ...]] = []
    for name, dtype, *shape in item:
        if not isinstance(name, str) or len(shape) > 1:
            raise ValueError(f"{shorten(name)} is not a field of a dtype")
        parts.append((name, _parse_descr(dtype, depth - 1), *map(_parse_shape, shape)))
    return parts


def _parse_shape(description: Any) -> tuple[int, ...]:
    if isinstance(description, list) and all(
        type(size) is int and 0 <= size <= _MAX_SIZE for size in description
    ):
        return tuple(description)
    raise ValueError(f"{shorten(description)} is not a shape: expected a list of sizes")


# ---------------------------------------------------------------- structures


def describe(node: Node) -> Any:
    """The JSON value of a node: its kind with a dtype and shape, or with its named children."""
    if isinstance(node, Leaf):
        (field,) = node.fields
        dtype = describe_dtype(field.dtype)
        return {"kind": node.kind, "dtype": dtype, "shape": list(field.shape)}
    pairs = zip(node.names, node.children, strict=True)
    return {"kind": node.kind, "items": [[name, describe(child)] for name, child in pairs]}


def parse(description: Any, path: str, depth: int, known: Node | None) -> Node:
    """The node of a description.

    Args:
        description: a `describe`, from a source of no trust.
        path: where it stands.
        depth: levels above it.
        known: the example's node of this place, for its class; None where there is no example.

    Raises:
        ValueError: malformed, of a class and without the example, or unlike the example.
    """
    if not isinstance(description, dict) or depth > MAX_DEPTH:
        raise _malformed(path, description)
    kind, keys = description.get("kind"), set(description)
    if kind == Leaf.kind and keys == {"kind", "dtype", "shape"}:
        return _parse_leaf(description, path, known)
    if isinstance(kind, str) and kind in KINDS and keys == {"kind", "items"}:
        return _parse_container(KINDS[kind], description["items"], path, depth, known)
    raise _malformed(path, description)


def _parse_leaf(description: dict[str, Any], path: str, known: Node | None) -> Leaf:
    try:
        dtype, shape = parse_dtype(description["dtype"]), _parse_shape(description["shape"])
        field = make_field(path, dtype, shape)
    except (TypeError, ValueError) as error:
        raise ValueError(f"description of {label(path, 'the array')}: {error}") from error
    if field.dtype != dtype:
        raise ValueError(
            f"description of {label(path, 'the array')} has dtype {dtype}: expected this machine's "
            "byte order"
        )
    if known is not None and known.fields != (field,):
        raise _unlike(path, known, _summary(field))
    return Leaf(field)


def _parse_container(
    cls: type[Container], items: Any, path: str, depth: int, known: Node | None
) -> Container:
    names = _parse_names(cls, items, path)
    if known is None and cls.needs_class:
        raise ValueError(
            f"{label(path, 'description')} is a {cls.kind} of {', '.join(names)}: expected "
            "example=, which has its class"
        )
    if known is not None and not (
        isinstance(known, Container) and known.kind == cls.kind and _same_names(known, names)
    ):
        raise _unlike(path, known, f"a {cls.kind} of {', '.join(names)}")
    children = []
    for name, (_, child) in zip(names, items, strict=True):
        beneath = known.child(name) if isinstance(known, Container) else None
        children.append(parse(child, f"{path}.{name}" if path else name, depth + 1, beneath))
    return cls(path, names, children, known.cls if isinstance(known, Container) else None)


def _parse_names(cls: type[Container], items: Any, path: str) -> list[str]:
    """The names of a container's items, which are of the right form."""
    if not isinstance(items, list) or not items:
        raise _malformed(path, items)
    names = []
    for item in items:
        if not (isinstance(item, list) and len(item) == 2 and isinstance(item[0], str)):
            raise _malformed(path, item)
        names.append(check_name(item[0], path, "description"))
    positions = list(map(str, range(len(items))))
    if len(set(names)) < len(names) or (cls.is_numbered and names != positions):
        raise _malformed(path, names)
    return names


def _same_names(known: Container, names: list[str]) -> bool:
    if known.kind == "NamedTuple":  # rebuilt by position
        return list(known.names) == names
    return set(known.names) == set(names)


def _malformed(path: str, found: Any) -> ValueError:
    return ValueError(
        f"{label(path, 'description')} holds {shorten(found)}: expected what describe() returns"
    )


def _unlike(path: str, known: Node, wanted: str) -> ValueError:
    if isinstance(known, Container):
        found = f"a {known.kind} of {', '.join(known.names)}"
    else:
        found = _summary(known.fields[0])
    return ValueError(f"{label(path, 'example')} is {found}: expected {wanted}")


def _summary(field: Field) -> str:
    return f"{field.dtype} of shape {field.shape}"
