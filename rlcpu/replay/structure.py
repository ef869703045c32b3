"""From an example transition to flat fields and back; the check of what a user adds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlcpu.replay.structure_checks import Array, Field, check_dtype, convert, label, to_array
from rlcpu.replay.structure_description import describe, parse
from rlcpu.replay.structure_example import learn
from rlcpu.replay.structure_nodes import Leaf, Node

__all__ = ["Field", "Structure"]

_ndarray = np.ndarray


class Structure:
    """The fields of a transition, learned from an example.

    The example is one array, a NumPy or Python number, a Gymnasium space of a fixed size, or a
    dict, dataclass instance, NamedTuple, tuple or list of these, nested and mixed freely. Lists
    and tuples are containers, never arrays. `numpy.asarray` of a leaf gives its dtype: a Python
    float is float64, an int is int64. Fields are kept in native byte order.

    Args:
        example: one transition.

    Attributes:
        fields: in the order of the dict's keys, the tuple's positions, the dataclass's fields.

    Raises:
        TypeError: a leaf that is no array of fixed-size values, or a key that is no string.
        ValueError: an empty container or item, or a key that is empty or holds a dot.

    >>> structure = Structure({"observation": np.zeros(4, np.float32), "action": 0})
    >>> structure
    Structure(observation: float32 (4,), action: int64 ())
    """

    def __init__(self, example: Any) -> None:
        self._set(learn(example))

    def _set(self, root: Node) -> None:
        self._root = root
        self.fields: tuple[Field, ...] = root.fields
        self._wanted = tuple((field.dtype, field.shape) for field in self.fields)
        self._first_ndim = len(self.fields[0].shape)
        self._nodes: dict[str, tuple[Node, slice]] = {}
        self._index(root, 0)
        try:
            root.build(range(len(self.fields)))
        except (TypeError, AttributeError) as error:  # of a fixed layout, of read-only fields
            raise TypeError(f"example cannot be made anew from its fields: {error}") from error

    def _index(self, node: Node, start: int) -> None:
        self._nodes[node.path] = (node, slice(start, start + len(node.fields)))
        for child in () if isinstance(node, Leaf) else node.children:
            self._index(child, start)
            start += len(child.fields)

    # ------------------------------------------------------------ taking apart, putting together

    def check(self, batch: Any, max_axes: int) -> tuple[list[Array], tuple[int, ...]]:
        """The arrays of a batch, after every check; nothing is written.

        A leaf of the field's dtype is returned as it is (of any strides), another one as a copy.
        Allowed are NumPy's "same_kind" casts and any between integers, if each value fits.

        Args:
            batch: structured like the example, each leaf (..., *field.shape) with the same
                leading axes.
            max_axes: the most leading axes; 0 of them is one transition.

        Returns:
            One array per field, of its exact dtype, and the shape of the leading axes.

        Raises:
            TypeError: a container or dtype of another kind.
            ValueError: a missing or extra entry, a wrong shape, a value that does not fit.
        """
        leaves = self._root.collect(batch)
        fields = self.fields
        if type(leaves[0]) is not _ndarray:
            leaves = [to_array(leaves[0], fields[0].name), *leaves[1:]]
        shape = leaves[0].shape
        lead = shape[: len(shape) - self._first_ndim]
        if len(lead) > max_axes:
            raise _wrong_shape(shape, fields[0], lead, max_axes)
        arrays: list[Array] = []
        # 0.15 us a field: dtypes by identity, and an index, since zip(strict=True) costs 0.25 us.
        i = -1
        for dtype, item_shape in self._wanted:
            i += 1
            leaf = leaves[i]
            if (
                type(leaf) is not _ndarray
                or (leaf.dtype is not dtype and leaf.dtype != dtype)
                or leaf.shape != lead + item_shape
            ):
                leaf = _take(leaf, fields[i], lead, max_axes)
            arrays.append(leaf)
        return arrays, lead

    def collect(self, batch: Any) -> Sequence[Any]:
        """The leaves of a batch structured like the example, one per field, whatever they are.

        Raises:
            TypeError: a container of another kind.
            ValueError: a missing or extra entry.
        """
        return self._root.collect(batch)

    def unflatten(self, leaves: Sequence[Any]) -> Any:
        """The user's structure, of one leaf per field; the leaves can be anything.

        Raises:
            ValueError: too few leaves, or too many.
        """
        if len(leaves) != len(self.fields):
            raise ValueError(f"{len(leaves)} leaves: expected {len(self.fields)}, one per field")
        return self._root.build(leaves)

    def pick(self, leaves: Sequence[Any], name: str) -> Any:
        """What `unflatten` would have at a dotted path, and nothing else.

        Raises:
            ValueError: there is nothing of that name.
        """
        node, span = self._find(name)
        return node.build(leaves[span])

    def select(self, name: str) -> tuple[int, ...]:
        """Positions of the fields at or beneath a dotted path; "" is the whole.

        Raises:
            ValueError: there is nothing of that name.
        """
        return tuple(range(len(self.fields))[self._find(name)[1]])

    def _find(self, name: str) -> tuple[Node, slice]:
        try:
            return self._nodes[name]
        except (KeyError, TypeError):
            known = ", ".join(repr(path) for path in self._nodes if path)
            raise ValueError(f"no field {name!r}: expected one of {known}") from None

    # ------------------------------------------------------------ description

    def describe(self) -> Any:
        """A JSON value that `restore` understands."""
        return describe(self._root)

    @staticmethod
    def restore(description: Any, example: Any = None) -> Structure:
        """The structure of a description, which may be anybody's; no class is looked up by name.

        Args:
            description: a `describe()`.
            example: as it was given when the structure was made. Dataclasses and NamedTuples need
                it; where it is given, its fields have to be those of the description. The order
                of a dict's keys is that of the description.

        Raises:
            ValueError: a malformed description, one that needs the example, or another example.
        """
        known = None if example is None else learn(example)
        structure = Structure.__new__(Structure)
        structure._set(parse(description, "", 0, known))
        return structure

    def __repr__(self) -> str:
        each = (f"{field.name}: {field.dtype} {field.shape}" for field in self.fields)
        return f"Structure({', '.join(text.removeprefix(': ') for text in each)})"


def _take(leaf: Any, field: Field, lead: tuple[int, ...], max_axes: int) -> Array:
    """The array of a leaf that needs a cast, or is wrong."""
    array = leaf if type(leaf) is _ndarray else to_array(leaf, field.name)
    check_dtype(array, field)
    if array.shape != lead + field.shape:
        raise _wrong_shape(array.shape, field, lead, max_axes)
    return convert(array, field)


def _wrong_shape(
    found: tuple[int, ...], field: Field, lead: tuple[int, ...], max_axes: int
) -> ValueError:
    axes = len(found) - len(field.shape)
    if 0 <= axes <= max_axes and found[axes:] == field.shape:
        expected = f"{lead + field.shape}, with the leading axes of the first field"
    else:
        most = f" after at most {max_axes} leading axes" if max_axes else ""
        expected = f"{field.shape}{most}"
    return ValueError(f"{label(field.name)} has shape {found}: expected {expected}")
