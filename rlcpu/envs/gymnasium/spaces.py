"""Spaces of Gymnasium's environments, and the forms in which policies have what lies in them.

A space is a tree: nodes are `Dict` and `Tuple`, leaves all others. Policies, rollouts and buffers
have

- of observations the leaf, or of a tree a dict of its leaves by their names: "arm/speed" is the
  part "speed" of the part "arm", and "pair/0" the first part of a `Tuple`;
- of actions one choice from 0 on (`Discrete`), a list of them (`MultiDiscrete`), or a list of
  floats (`Box` of one axis), which are the numbers of all leaves, one after the other.

No conversion loses anything but one: floats become float32, as everywhere in this library. Whole
numbers stay what they are; networks read them as float32. Actions go the other way, into the dtype
and the bounds of their leaf.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, OneOf, Text, Tuple

from rlcpu.envs.layout.groups import describe_space, num_inputs

Array = npt.NDArray[Any]
#: Choices that a number in a `Box` of whole numbers has at most: each is an output of a network.
MOST_CHOICES = 1024


class Leaf(NamedTuple):
    """A leaf of a space's tree."""

    #: The keys and positions by which it is reached, "" if the space is the leaf itself.
    name: str
    space: Any


def leaves_of(space: Any, name: str = "") -> Iterator[Leaf]:
    """Yield the leaves of a space; `name` is that of the space in a larger one.

    Parts of a `Dict` are sorted by their names, as Gymnasium sorts those of a plain dict.
    """
    if not isinstance(space, Dict | Tuple):
        yield Leaf(name, space)
        return
    for key, part in _parts_of(space):
        yield from leaves_of(part, f"{name}/{key}" if name else str(key))


def _parts_of(space: Dict | Tuple) -> list[tuple[Any, Any]]:
    """Return the keys, or positions, of a node's parts, and the parts."""
    if isinstance(space, Tuple):
        return list(enumerate(space.spaces))
    return sorted(space.items(), key=lambda part: str(part[0]))


def _named_leaves(place: str, space: Any) -> tuple[Leaf, ...]:
    """Return the leaves of a space; `place` begins errors, such as "Env-v0: action_space".

    Raises TypeError if there is none, or two have one name.
    """
    leaves = tuple(leaves_of(space))
    names = [leaf.name for leaf in leaves]
    if not leaves:
        raise TypeError(f"{place}={space} has no part: expected one at least")
    for name in names:
        if names.count(name) > 1:
            raise TypeError(f"{place}={describe_space(space)} has two parts {name!r}: rename one")
    return leaves


def _place_of(place: str, leaf: Leaf) -> str:
    """Return the place of a leaf and its space, for errors."""
    return f"{place}{f'[{leaf.name!r}]' if leaf.name else ''}={describe_space(leaf.space)}"


def _described(leaf: Leaf, start: Any) -> list[Any]:
    """Return a leaf's name, its shape, and its first choices unless all are 0, for JSON."""
    starts = np.ravel(start).astype(np.int64)
    return [leaf.name, list(leaf.space.shape), starts.tolist() if starts.any() else []]


# ---------------------------------------------------------------- observations


class ObservationForm(NamedTuple):
    """Converts observations of an environment's space to those of policies."""

    original: Any  # the environment's space
    leaves: tuple[Leaf, ...]
    space: Any  # of policies, a `Dict` of leaves or a leaf

    @classmethod
    def of(cls, id: str, space: Any) -> ObservationForm:
        """Return the form of an environment's observations.

        Raises:
            TypeError: a leaf has no fixed number of numbers, or none.
        """
        place = f"{id}: observation_space"
        leaves = _named_leaves(place, space)
        converted = {leaf.name: _convert_observed(place, leaf) for leaf in leaves}
        is_tree = isinstance(space, Dict | Tuple)
        # A plain dict would be sorted, "10" in front of "2".
        return cls(space, leaves, Dict(OrderedDict(converted)) if is_tree else converted[""])

    def convert(self, observations: Any) -> Any:
        """Return observations of the environment, (n, ...) or one, as policies take them.

        What has this form already is returned, and so is what is no tree where one is expected,
        such as an array of the numbers that networks get.

        Raises:
            ValueError: a tree of other parts.
        """
        if not isinstance(self.original, Dict | Tuple):
            return _flat_leaf(self.original, observations)
        keys = {key for key, _ in _parts_of(self.original)}
        if isinstance(observations, Mapping) and observations.keys() == {*self.space} != keys:
            return observations
        if not isinstance(observations, Mapping if isinstance(self.original, Dict) else tuple):
            return observations
        values = _values_of(self.original, observations)
        return {x.name: _flat_leaf(x.space, v) for x, v in zip(self.leaves, values, strict=True)}

    def parts(self) -> list[list[Any]]:
        """Return each leaf's name, shape and first choices if one is not 0, as JSON takes them."""
        return [_described(leaf, getattr(leaf.space, "start", 0)) for leaf in self.leaves]

    def describe(self) -> str:
        """Return what the inputs of networks are, one after the other; "" if they are own numbers.

        Of a choice there is one 1 among zeros.
        """
        if not isinstance(self.space, Dict | MultiDiscrete) and not getattr(self.space, "start", 0):
            return ""
        inputs = ", ".join(
            f"{name or 'choices'} ({num_inputs(part)}{_describe_ones(part)})"
            for name, part in leaves_of(self.space)
        )
        return f"The numbers of an observation are {inputs}."


def _describe_ones(space: Any) -> str:
    """Return how choices of a converted leaf become inputs; "" for other numbers."""
    if isinstance(space, Discrete):
        return f": one 1 among zeros, for {space.start} to {space.start + space.n - 1}"
    if isinstance(space, MultiDiscrete):
        counts, starts = (" ".join(map(str, x)) for x in (space.nvec, space.start))
        return f": one 1 among zeros for each choice, of {counts}, from {starts} on"
    return ""


def _convert_observed(place: str, leaf: Leaf) -> Any:
    """Return the space in which policies have a leaf of observations; TypeError if none is."""
    space = leaf.space
    if isinstance(space, Discrete):
        return Discrete(int(space.n), start=int(space.start))
    if isinstance(space, MultiDiscrete) and space.nvec.size:
        return MultiDiscrete(space.nvec.ravel(), start=space.start.ravel())
    if isinstance(space, MultiBinary):
        return MultiBinary(space.shape)
    if isinstance(space, Box) and math.prod(space.shape) > 0 and space.dtype.kind in "fiub":
        # Flags are bytes, and uint32 is what boards are delivered in, as bits.
        others = {"bool": np.uint8, "uint32": np.int64}
        dtype: Any = others.get(space.dtype.name, space.dtype.type)
        dtype = np.float32 if space.dtype.kind == "f" else dtype
        with np.errstate(over="ignore"):
            low, high = space.low.astype(dtype), space.high.astype(dtype)
        shape = space.shape or (1,)
        return Box(low.reshape(shape), high.reshape(shape), dtype=dtype)
    hint = "gymnasium.wrappers.TransformObservation makes one of others"
    if isinstance(space, Text | OneOf):
        hint = "gymnasium.wrappers.FlattenObservation makes a Box of it"
    raise TypeError(
        f"{_place_of(place, leaf)}: expected a Box, Discrete, MultiBinary or MultiDiscrete of at "
        f"least one number, or a Dict or Tuple of these; {hint}"
    )


def _flat_leaf(space: Any, values: Any) -> Any:
    """Return values of a leaf, (n, ...) or one, in the shape that its converted space has.

    Those of another shape are returned as they are: whoever knows n refuses them.
    """
    array = np.asarray(values)
    if array.dtype == np.bool_:
        array = array.astype(np.uint8)
    shape: tuple[int, ...] = space.shape
    is_list = isinstance(space, MultiDiscrete) and len(shape) > 1
    if is_list and array.shape[array.ndim - len(shape) :] == shape:
        return array.reshape((*array.shape[: array.ndim - len(shape)], -1))
    if isinstance(space, Box) and not shape and array.ndim < 2:
        return array[..., None]
    return array


def _values_of(space: Any, value: Any, name: str = "") -> Iterator[Any]:
    """Yield the values at the leaves of a tree; ValueError if it has other parts than its space."""
    if not isinstance(space, Dict | Tuple):
        yield value
        return
    keys = [key for key, _ in _parts_of(space)]
    if isinstance(space, Dict):
        fits = isinstance(value, Mapping) and value.keys() == set(keys)
    else:
        fits = isinstance(value, tuple | list) and len(value) == len(keys)
    if not fits:
        raise ValueError(f"{f'of the part {name} ' if name else ''}{_describe_misfit(keys, value)}")
    for key, part in _parts_of(space):
        yield from _values_of(part, value[key], f"{name}/{key}" if name else str(key))


def _describe_misfit(keys: list[Any], value: Any) -> str:
    """Return what a value has, or is, in the place of a node with parts of these keys."""
    received = f"are of type {type(value).__name__}"
    if isinstance(value, Mapping):
        received = f"have the parts {', '.join(map(str, value))}"
    elif isinstance(value, tuple | list):
        received = f"have {len(value)} parts"
    return f"{received}: expected the parts {', '.join(map(str, keys))}"


# ---------------------------------------------------------------- actions


class ActionLeaf(NamedTuple):
    """Numbers of an action that belong to one leaf."""

    leaf: Leaf
    begin: int  # the first of them among those of the whole action
    end: int
    choices: tuple[int, ...]  # how many there are of each number; () of floats
    low: Array  # (end - begin,), of the leaf's dtype: the first choices, or the bounds of floats
    high: Array  # (end - begin,), the upper bounds of floats; (0,) of choices


class ActionForm(NamedTuple):
    """Converts actions of policies to those of an environment's space, and back."""

    original: Any  # the environment's space
    leaves: tuple[ActionLeaf, ...]
    space: Any  # of policies: a `Discrete` or `MultiDiscrete` from 0 on, or a `Box` of one axis

    @classmethod
    def of(cls, id: str, space: Any) -> ActionForm:
        """Return the form of an environment's actions.

        Raises:
            TypeError: a leaf has another kind than policies know, or some are choices and some
                floats.
        """
        place, leaves, begin = f"{id}: action_space", [], 0
        for leaf in _named_leaves(place, space):
            leaves.append(_action_leaf(place, leaf, begin))
            begin = leaves[-1].end
        choices = [choice for leaf in leaves for choice in leaf.choices]
        if len(leaves) == 1 and isinstance(leaves[0].leaf.space, Discrete):
            return cls(space, tuple(leaves), Discrete(choices[0]))
        if choices and len(choices) < begin:
            floats = [leaf.leaf.name for leaf in leaves if not leaf.choices]
            raise TypeError(
                f"{place}={describe_space(space)}: {', '.join(floats)} are floats, and all others "
                "choices: expected parts of one kind; gymnasium.wrappers.TransformAction(env, "
                "function, space) makes them of a MultiDiscrete, or of a Box"
            )
        if choices:
            return cls(space, tuple(leaves), MultiDiscrete(choices))
        with np.errstate(over="ignore"):
            low, high = (
                np.concatenate([getattr(leaf, name).astype(np.float32) for leaf in leaves])
                for name in ("low", "high")
            )
        return cls(space, tuple(leaves), Box(low, high, dtype=np.float32))

    def to_own(self, actions: Array) -> Any:
        """Return actions of policies in the form of the environment's space.

        Floats are clipped to the bounds, in the dtype of their `Box`.

        Args:
            actions: (...,) of one choice, (..., size) of a list.

        Returns:
            An array (..., *shape of the leaf), or of a tree dicts and tuples of these.
        """
        lists = actions[..., None] if isinstance(self.space, Discrete) else actions
        values = []
        for leaf, begin, end, choices, low, high in self.leaves:
            with np.errstate(over="ignore"):  # of float16; and whole numbers wrap as they have to
                numbers = lists[..., begin:end].astype(leaf.space.dtype)
            numbers = numbers + low if choices else np.clip(numbers, low, high)
            shaped = numbers.reshape((*lists.shape[:-1], *leaf.space.shape))
            values.append(shaped[()] if isinstance(leaf.space, Discrete) else shaped)
        return _tree_of(self.original, iter(values))

    def of_own(self, actions: Any) -> Array:
        """Return actions in the form of the environment's space as policies have them.

        It is the inverse of `to_own`, but that floats stay what they are.

        Raises:
            ValueError: a tree of other parts, or another shape.
        """
        columns = []
        values = [np.asarray(value) for value in _values_of(self.original, actions)]
        for leaf, value in zip(self.leaves, values, strict=True):
            shape = leaf.leaf.space.shape
            lead = value.shape[: value.ndim - len(shape)]
            if value.shape != (*lead, *shape):
                name = f"[{leaf.leaf.name!r}]" if leaf.leaf.name else ""
                reason = f"expected {', '.join(('...', *map(str, shape)))}"
                raise ValueError(f"actions{name} have shape {value.shape}: {reason}")
            numbers = value.reshape((*lead, -1))
            if leaf.choices:
                numbers = numbers.astype(np.int64) - leaf.low.astype(np.int64)
            columns.append(numbers)
        numbers = np.concatenate(columns, axis=-1)
        return numbers[..., 0] if isinstance(self.space, Discrete) else numbers

    def parts(self) -> list[list[Any]]:
        """Return each leaf's name, shape and first choices if one is not 0, as JSON takes them."""
        return [_described(x.leaf, x.low if x.choices else 0) for x in self.leaves]

    def describe(self) -> str:
        """Return what the numbers of policies are in the environment; "" if they are the same."""
        has_starts = any(leaf.choices and leaf.low.any() for leaf in self.leaves)
        if not has_starts and self.original.shape == self.space.shape:
            return ""
        parts = []
        for leaf, begin, end, choices, low, _ in self.leaves:
            count = "1 number" if end - begin == 1 else f"{end - begin} numbers"
            shape = f" of shape {leaf.space.shape}" if len(leaf.space.shape) > 1 else ""
            added = f", plus {' '.join(map(str, low))}" if choices and low.any() else ""
            parts.append(f"{leaf.name or describe_space(self.original)} ({count}{shape}{added})")
        return f"The numbers of an action are {'; '.join(parts)}."


def _action_leaf(place: str, leaf: Leaf, begin: int) -> ActionLeaf:
    """Return the numbers of a leaf of actions; TypeError if policies know no such."""
    space, choices = leaf.space, np.zeros(0, np.int64)
    if isinstance(space, Discrete):
        low, choices = np.array([space.start], space.dtype), np.array([int(space.n)])
    elif isinstance(space, MultiDiscrete) and space.nvec.size:
        low, choices = space.start.ravel(), space.nvec.ravel()
    elif isinstance(space, MultiBinary):
        choices = np.full(math.prod(space.shape), 2)
        low = np.zeros(choices.size, space.dtype)
    elif isinstance(space, Box) and math.prod(space.shape) > 0 and space.dtype.kind in "fiub":
        low, high = space.low.ravel(), space.high.ravel()
        if space.dtype.kind == "f":
            return ActionLeaf(leaf, begin, begin + low.size, (), low, high)
        counts = [int(b) - int(a) + 1 for a, b in zip(low, high, strict=True)]
        if max(counts) > MOST_CHOICES:
            raise TypeError(
                f"{_place_of(place, leaf)}: a whole number of {max(counts):,} choices, expected at "
                f"most {MOST_CHOICES:,}; gymnasium.wrappers.TransformAction(env, function, space) "
                "makes it of a Box of floats"
            )
        choices = np.array(counts)
    else:
        raise TypeError(
            f"{_place_of(place, leaf)}: expected a Box, Discrete, MultiBinary or MultiDiscrete of "
            "at least one number, or a Dict or Tuple of these; "
            "gymnasium.wrappers.TransformAction(env, function, space) makes others of one"
        )
    return ActionLeaf(leaf, begin, begin + low.size, tuple(choices.tolist()), low, low[:0])


def _tree_of(space: Any, values: Iterator[Any]) -> Any:
    """Return the values at the leaves of a space, in its order, as a tree."""
    if isinstance(space, Dict):
        return {name: _tree_of(part, values) for name, part in _parts_of(space)}
    if isinstance(space, Tuple):
        return tuple(_tree_of(part, values) for part in space.spaces)
    return next(values)
