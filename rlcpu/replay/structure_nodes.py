"""The containers of a transition: taking one apart and putting one together again.

A node knows its children's names. `collect` returns the leaves of a user's value and refuses one of
another make; `build` is its inverse.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any, ClassVar

from rlcpu.replay.structure_checks import Field, label

MAX_DEPTH = 32


class Leaf:
    """One array."""

    kind: ClassVar[str] = "array"

    def __init__(self, field: Field) -> None:
        self.path = field.name
        self.fields: tuple[Field, ...] = (field,)

    def collect(self, value: Any) -> Sequence[Any]:
        """The leaf as it is: nobody has looked at it yet."""
        return (value,)

    def build(self, leaves: Sequence[Any]) -> Any:
        """The only leaf."""
        return leaves[0]


class Container:
    """What holds named children, in order.

    Args:
        path: where it stands in the transition; "" is the whole.
        names: one per child; positions for a tuple or list.
        children: at least one.
        cls: the user's class, of a dataclass or NamedTuple.
    """

    kind: ClassVar[str]
    needs_class: ClassVar[bool] = False
    is_numbered: ClassVar[bool] = False

    def __init__(
        self, path: str, names: Sequence[str], children: Sequence[Node], cls: Any = None
    ) -> None:
        self.path, self.names, self.children, self.cls = path, tuple(names), tuple(children), cls
        fields: list[Field] = []
        # Where its leaves are among ours: an index and None for a leaf, a slice for a container.
        self._parts: list[tuple[Any, Container | None]] = []
        for child in children:
            start = len(fields)
            fields.extend(child.fields)
            if isinstance(child, Container):
                self._parts.append((slice(start, len(fields)), child))
            else:
                self._parts.append((start, None))
        self.fields: tuple[Field, ...] = tuple(fields)
        self._size = len(self.names)
        self._flat = all(child is None for _, child in self._parts)

    def collect(self, value: Any) -> Sequence[Any]:
        """The leaves of a value, in the order of `fields`.

        Raises:
            TypeError: a container is of another kind.
            ValueError: a container lacks an entry or has one too many.
        """
        values = self.read(value)
        if self._flat:
            return values
        leaves: list[Any] = []
        for position, (_, child) in enumerate(self._parts):
            if child is None:
                leaves.append(values[position])
            else:
                leaves += child.collect(values[position])
        return leaves

    def build(self, leaves: Sequence[Any]) -> Any:
        """The container of as many leaves as it has fields."""
        if self._flat:
            return self.wrap(leaves)
        return self.wrap(
            [leaves[at] if child is None else child.build(leaves[at]) for at, child in self._parts]
        )

    def child(self, name: str) -> Node:
        """The child of a name."""
        return self.children[self.names.index(name)]

    def read(self, value: Any) -> Sequence[Any]:
        """The values of the children, in order."""
        raise NotImplementedError

    def wrap(self, values: Iterable[Any]) -> Any:
        """The container of its children."""
        raise NotImplementedError

    def _check_names(self, found: Sequence[Any]) -> None:
        """ValueError unless these are the names, in any order."""
        wanted = ", ".join(map(repr, self.names))
        beneath = f"{self.path}." if self.path else ""
        for name in self.names:
            if name not in found:
                raise ValueError(
                    f"{label(self.path)} lacks {label(beneath + name)}: expected {wanted}"
                )
        for name in found:
            if name not in self.names:
                unknown = label(beneath + name) if isinstance(name, str) else f"key {name!r}"
                raise ValueError(f"{label(self.path)} has the unknown {unknown}: expected {wanted}")

    def _refuse(self, value: Any) -> TypeError:
        wanted = ", ".join(map(repr, self.names))
        return TypeError(
            f"{label(self.path)} is a {type(value).__name__}: expected a {self.kind} of {wanted}"
        )


class DictNode(Container):
    """A dict; takes any mapping and builds a dict."""

    kind = "dict"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._get = itemgetter(*self.names)

    def read(self, value: Any) -> Sequence[Any]:
        """The values of the keys."""
        # A defaultdict would make up what is missing: only a plain dict takes the short way.
        if type(value) is dict and len(value) == self._size:
            try:
                got = self._get(value)
            except KeyError:
                pass
            else:
                return got if self._size > 1 else (got,)
        if not isinstance(value, Mapping):
            raise self._refuse(value)
        self._check_names(list(value))
        return [value[name] for name in self.names]

    def wrap(self, values: Iterable[Any]) -> Any:
        """A dict."""
        return dict(zip(self.names, values))  # noqa: B905 (strict= costs 0.2 us of the 0.3)


class TupleNode(Container):
    """A tuple; takes a list as well."""

    kind = "tuple"
    is_numbered = True

    def read(self, value: Any) -> Sequence[Any]:
        """The value itself."""
        if not isinstance(value, tuple | list):
            raise self._refuse(value)
        if len(value) != self._size:
            self._check_names([str(i) for i in range(len(value))])
        return value

    def wrap(self, values: Iterable[Any]) -> Any:
        """A tuple."""
        return tuple(values)


class ListNode(TupleNode):
    """A list; takes a tuple as well."""

    kind = "list"

    def wrap(self, values: Iterable[Any]) -> Any:
        """A list."""
        return list(values)


class NamedTupleNode(Container):
    """A NamedTuple; takes another one of the same names, such as that of a reloaded module."""

    kind = "NamedTuple"
    needs_class = True

    def read(self, value: Any) -> Sequence[Any]:
        """The value itself, or its attributes where their order is another."""
        if type(value) is self.cls:
            return value
        if not is_named_tuple(value):
            raise self._refuse(value)
        self._check_names(value._fields)
        return [getattr(value, name) for name in self.names]

    def wrap(self, values: Iterable[Any]) -> Any:
        """An instance of the user's class; a `__new__` of its own is not called."""
        return self.cls._make(values)


class DataclassNode(Container):
    """A dataclass; takes another one of the same fields, such as that of a reloaded module."""

    kind = "dataclass"
    needs_class = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._get = attrgetter(*self.names)

    def read(self, value: Any) -> Sequence[Any]:
        """The fields' values."""
        if type(value) is not self.cls:
            if isinstance(value, type) or not dataclasses.is_dataclass(value):
                raise self._refuse(value)
            self._check_names([field.name for field in dataclasses.fields(value)])
        try:
            got = self._get(value)
        except AttributeError as error:  # declared, never set
            raise ValueError(f"{label(self.path)} lacks a field: {error}") from error
        return got if self._size > 1 else (got,)

    def wrap(self, values: Iterable[Any]) -> Any:
        """An instance of the user's class, made as `copy` makes it: without `__init__`.

        What a class does to one transition in `__init__` or `__post_init__`, a check of shapes for
        one, need not hold for a batch; a frozen class is filled like any other.
        """
        made = object.__new__(self.cls)
        for name, value in zip(self.names, values):  # noqa: B905 (as above)
            object.__setattr__(made, name, value)
        return made


Node = Leaf | Container
KINDS: dict[str, type[Container]] = {
    each.kind: each for each in (DictNode, TupleNode, ListNode, NamedTupleNode, DataclassNode)
}


def is_named_tuple(value: Any) -> bool:
    """Whether it is an instance of a NamedTuple's class."""
    return isinstance(value, tuple) and isinstance(getattr(value, "_fields", None), tuple)


def check_name(name: Any, path: str, whole: str) -> str:
    """The name of a container's entry; `whole` is what messages call the outermost container.

    Raises:
        TypeError: no string.
        ValueError: empty, or with a dot, which separates names in paths.
    """
    if not isinstance(name, str):
        raise TypeError(f"{label(path, whole)} has the key {name!r}: expected a string")
    if not name or "." in name:
        raise ValueError(f"{label(path, whole)} has the key {name!r}: expected a name without dots")
    return str.__str__(name)
