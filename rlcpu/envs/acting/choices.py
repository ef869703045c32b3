"""Memory in which a policy chooses among many actions, in loops.

Up to `UNROLLED` actions, or numbers of an action, a kernel has lines for each, and tuples hold
them: lanes become vectors. Such lines take time with the square of their number to compile. So
beyond, where `Interface.loops` says so, a policy has loops over the arrays of a `ChoiceMemory`,
which are the last numbers of a block's scratch memory. Its action of several numbers is an array
there, which the next choice overwrites.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rlcpu.envs.contract.policies import PolicyCode
from rlcpu.envs.engine.interface import Interface
from rlcpu.envs.engine.masks import make_unpack, mask_rows, write_mask
from rlcpu.kernels.compiler.compile import define, inline
from rlcpu.kernels.compiler.scopes import ANY
from rlcpu.kernels.machine.memory import array_at, place_of
from rlcpu.kernels.machine.random import make_draw_keys, make_draw_many, uniforms_of_keys
from rlcpu.kernels.machine.rows import load_rows, store_rows

single = np.float32


class ChoiceMemory(NamedTuple):
    """Arrays in which a policy chooses an action; those that it does not need are empty."""

    #: (draws,) float32, random numbers in [0, 1).
    uniforms: Any
    #: (action_size,) int32 of whole numbers, or float32: the action.
    numbers: Any
    #: (num_masked,) bool, which choices are allowed.
    mask: Any
    #: (rows,) float32, of an observation and its mask, which a kernel has as a tuple.
    rows: Any


class Choosing(NamedTuple):
    """Inlinable functions with which a policy begins to choose."""

    #: (first,) -> keys of the policy's random numbers, of which `first` is the first.
    make_keys: Callable[..., Any]
    #: (scratch,) -> `ChoiceMemory`; () where it has no numbers.
    open: Callable[..., Any]
    #: (bits, keys, choice) -> the random numbers, a tuple or `choice.uniforms`.
    draw: Callable[..., Any]
    #: (rows, choice) -> the mask, a tuple of bools or `choice.mask`, of the rows of an observation
    #: and its mask as a scalar policy gets them: a tuple, or an array where `observe` writes.
    unpack_mask: Callable[..., Any]
    #: Numbers of scratch memory that the arrays take.
    size: int


def make_choosing(interface: Interface, policy: PolicyCode) -> Choosing:
    """Make the functions of a policy for an environment."""
    loops, num_masked = interface.loops, interface.num_masked
    takes_array = policy.masked and (loops or interface.mask_is_array)
    num_rows = interface.num_rows + mask_rows(num_masked) if policy.masked else 0
    is_tuple = policy.act is not None and not is_written(interface)
    open_choice, size = _make_open(
        ChoiceMemory(
            uniforms=policy.draws if loops else 0,
            numbers=interface.action_size if loops else 0,
            mask=num_masked if takes_array else 0,
            rows=num_rows if takes_array and is_tuple else 0,
        ),
        np.int32(0) if interface.is_whole else single(0),
    )
    make_keys, draw = make_draw_keys(policy.draws), uniforms_of_keys(policy.draws, single)
    draw_many, unpack = make_draw_many(single), make_unpack(interface.num_rows, num_masked)
    store, first_word = store_rows(num_rows, ANY), interface.num_rows

    @inline
    def draw_uniforms(bits, keys, choice):
        if loops:
            draw_many(bits[0], bits[1], keys, choice.uniforms)
            return choice.uniforms
        return draw(bits[0], bits[1], keys)

    @inline
    def unpack_mask(rows, choice):
        if not takes_array:
            return unpack(rows)
        if is_tuple:
            store(choice.rows, 1, 0, rows)
            write_mask(choice.rows, first_word, 1, choice.mask)
        else:
            write_mask(rows, first_word, 1, choice.mask)
        return choice.mask

    keys_of = inline(lambda first: first) if loops else make_keys
    return Choosing(keys_of, open_choice, draw_uniforms, unpack_mask, size)


def is_written(interface: Interface) -> bool:
    """Tell whether a scalar policy gets an observation in the memory into which `observe` wrote."""
    return interface.written_shape != () or interface.layout.is_record


def _make_open(counts: ChoiceMemory, like_number: Any) -> tuple[Callable[..., Any], int]:
    """Make `open` and `size` of `Choosing`, of arrays with so many items.

    `like_number` is a number of the dtype of `numbers`.
    """
    starts, size = [], 0
    for name, count in counts._asdict().items():
        starts.append(4 * size)
        size += -(-count // 4) if name == "mask" else count  # bools are bytes
    if size == 0:
        return inline(lambda scratch: ()), 0
    likes = ChoiceMemory(single(0), like_number, np.bool_(0), single(0))
    names: dict[str, Any] = {f"like{k}": like for k, like in enumerate(likes)}
    arrays = [
        f"array_at(place + {start}, ({count},), like{k})"
        for k, (start, count) in enumerate(zip(starts, counts, strict=True))
    ]
    source = f"""def open_choice(scratch):
    place = place_of(scratch, scratch.size - {size})
    return ChoiceMemory({", ".join(arrays)})"""
    return inline(
        define(source, array_at=array_at, place_of=place_of, ChoiceMemory=ChoiceMemory, **names)
    ), size


# ---------------------------------------------------------------- actions


def _number_for_env(number: str, k: object, size: int, is_whole: bool) -> str:
    """Return the source of number k of an action as the environment's step takes it.

    The policy's numbers are clipped to their bounds, (2 * size,) float32, and converted to the
    environment's dtype. They are made float32 before that, as they are recorded: so the environment
    gets what is recorded, but for the clipping. Whole numbers are choices, which have no bounds:
    they are converted to int32 alone.
    """
    if is_whole:
        return f"whole({number})"
    return f"real(min(max(single({number}), bounds[{k}]), bounds[{size} + {k}]))"


def _define_for_env(source: str, dtype: type) -> Any:
    """Return the inlinable function of a source with numbers of `_number_for_env`."""
    return inline(define(source, whole=np.int32, real=dtype, single=np.float32))


@functools.cache
def make_to_env_action(size: int, is_whole: bool, dtype: type, loops: bool = False) -> Any:
    """Make an inlinable function (action, bounds) -> the action as the environment's step takes it.

    Args:
        size: numbers of an action, which is a tuple; 0 of an action that is one whole number.
        is_whole: whether they are whole numbers.
        dtype: of the environment's floats.
        loops: whether an action of several numbers comes as an array. Its numbers are overwritten
            by the clipped ones, unless they are not finite: these are looked for after the step.
    """
    if size == 0:
        return inline(lambda action, bounds: np.int32(action))
    if not loops:
        numbers = [f"{_number_for_env(f'action[{k}]', k, size, is_whole)}, " for k in range(size)]
        source = f"def to_env_action(action, bounds): return ({''.join(numbers)})"
        return _define_for_env(source, dtype)
    to_env_number = make_to_env_number(size, is_whole, dtype)
    zero, load = np.float32(0), load_rows(size, ANY, np.int32 if is_whole else dtype)

    @inline
    def clip_and_load(action, bounds):
        for k in range(size):
            number = action[k]
            action[k] = to_env_number(number, bounds, k) if number * zero == zero else number
        return load(action, 1, 0)

    return clip_and_load


@functools.cache
def make_to_env_number(size: int, is_whole: bool, dtype: type) -> Any:
    """Make an inlinable (number, bounds, k) -> number k of an action as the step takes it.

    It is for actions that are arrays; the arguments are those of `make_to_env_action`.
    """
    number = _number_for_env("number", "k", size, is_whole)
    return _define_for_env(f"def to_env_number(number, bounds, k): return {number}", dtype)
