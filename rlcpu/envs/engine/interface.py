"""The facts of an environment on which a policy's part of a kernel depends.

Environments that have them in common share the machine code of policies.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from rlcpu.envs.contract.policies import PolicyCode
from rlcpu.envs.engine.lane import LANES
from rlcpu.envs.engine.observations import GroupPart
from rlcpu.envs.engine.steps import is_whole
from rlcpu.envs.engine.structure import Structure
from rlcpu.kernels.compiler.compile import inline
from rlcpu.nn.network.heads import UNROLLED


class Interface(NamedTuple):
    """Facts of an environment on which a policy's functions depend.

    Where nothing reads a fact it has the value that says so: environments that differ there share
    code.
    """

    #: Whether the numbers of observations lie in rows of LANES, not one lane after the other.
    in_rows: bool
    #: Environments that act at a time, at most.
    lanes: int
    #: See `Structure`.
    action_size: int
    num_actions: int
    #: Whether actions are whole numbers.
    is_whole: bool
    #: Row of an observation where its action mask begins; 0 without masks.
    mask_row: int
    #: Choices of which the mask tells; 0 where the policy does not ask for it.
    num_masked: int
    #: Whether the policy acts in loops, see `rlcpu.envs.acting.choices`.
    loops: bool
    #: Whether a user's policy gets the mask as an array of bools, as `action_mask` writes it.
    mask_is_array: bool
    #: What networks read: "floats", "choice", "planes" or "group".
    kind: str
    #: The smallest value of the choice; 0 of other kinds.
    lowest: int
    #: 0 of other kinds than planes.
    num_planes: int
    #: Of a group; () of other kinds.
    parts: tuple[GroupPart, ...]
    #: Of an observation without its mask, for a scalar policy or a group; 0 of others.
    num_rows: int
    #: `Structure.observation` and its attributes of these names, for a scalar policy; None, () and
    #: False for networks.
    layout: Any
    written_shape: tuple[int, ...]
    is_int_array: bool


def interface_of(env: Structure, policy: PolicyCode) -> Interface:
    """Return the facts of an environment on which the functions of a policy depend."""
    is_network, rows = policy.act is None, env.observation_rows
    has_loops = is_network or policy.loop_act is not None
    # Planes are a tuple of boards; a choice is one number, whose field has the size 0.
    planes = 0 if env.observation.is_record else env.observation.fields[0].size
    if env.group_parts:
        kind = "group"
    elif env.writes_observation or env.observation.is_plain:
        kind = "floats"
    else:
        kind = "planes" if planes else "choice"
    return Interface(
        in_rows=not env.state.is_record,
        lanes=LANES,
        action_size=env.action_size,
        num_actions=env.num_actions,
        is_whole=is_whole(env),
        mask_row=rows if policy.masked else 0,
        num_masked=env.num_masked if policy.masked else 0,
        loops=has_loops and _has_many_actions(env),
        mask_is_array=policy.masked and not has_loops and env.writes_mask,
        kind=kind,
        lowest=sum(env.choice_starts) if kind == "choice" else 0,  # a sum of one number
        num_planes=planes if kind == "planes" else 0,
        parts=env.group_parts,
        num_rows=0 if is_network and kind != "group" else rows,
        layout=None if is_network else env.observation,
        written_shape=() if is_network else env.written_shape,
        is_int_array=not is_network and env.is_int_array,
    )


def _has_many_actions(env: Structure) -> bool:
    """Tell whether kernels would have too many lines if each action, or number of one, had its own.

    The choices of a `MultiDiscrete` are drawn from short lists: lines take time with the square of
    the longest, and with the length of all. 128 choices in lists of 4 take 5 s to compile.
    """
    longest = max(env.num_actions, env.action_size, *env.choices)
    return longest > UNROLLED or sum(env.choices) > 4 * UNROLLED


@functools.cache
def make_number_at(in_rows: bool) -> Callable[..., Any]:
    """Make an inlinable (observations, k, i) -> position of number k of lane i's observation.

    `in_rows` says whether observations are rows of LANES numbers, or one after the other.
    """
    if in_rows:
        return inline(lambda observations, k, i: k * LANES + i)
    return inline(lambda observations, k, i: i * (observations.size // LANES) + k)
