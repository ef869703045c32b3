"""Buffers of episodes that somebody has recorded, for agents that learn offline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu import replay
from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.contract.names import find
from rlcpu.envs.engine.observations import ObservationView, each_part
from rlcpu.envs.engine.vector_env import VectorEnv
from rlcpu.envs.gymnasium.task import GymnasiumTask
from rlcpu.envs.rollout.transitions import example_of

Array = npt.NDArray[Any]


def buffer_of_episodes(
    env: VectorEnv | Dynamics | str,
    episodes: Iterable[Any],
    *,
    prioritized: bool = False,
    n_step: int = 1,
    gamma: float = 0.99,
    seed: int = 0,
) -> replay.ReplayBuffer:
    """Return a buffer of an agent with the transitions of recorded episodes.

    Args:
        env: the environment, or `rlcpu.envs.spaces_of` its spaces.
        episodes: objects with these attributes, such as Minari's `EpisodeData`, or mappings with
            these keys: `actions` (T, ...); `observations` (T + 1, ...), or (T, ...) where the last
            one is not known, which then stands for it; `rewards` (T,), zeros if they are left out;
            `terminations` and `truncations` (T,), without which an episode is truncated at its end.
            Observations of a `Dict` are a mapping of arrays.
        prioritized: whether they are drawn by priority.
        n_step: steps whose rewards are added up.
        gamma: discount of these.
        seed: of draws.

    Raises:
        TypeError: observations are planes of an environment of rlcpu's, which are packed and not
            converted here; `spaces_of` a `MultiBinary` keeps them as they are.
        ValueError: arrays of an episode have other lengths or numbers that are not finite, the
            environment has action masks, or there is no episode.

    Example:
        >>> from rlcpu.train import buffer_of_episodes
        >>> recorded = {"observations": np.zeros((6, 4)), "actions": np.ones(5, int)}
        >>> len(buffer_of_episodes("CartPole-v1", [recorded]))
        5
    """
    dynamics: Any = env.dynamics if isinstance(env, VectorEnv) else find(env)
    if dynamics.num_masked:
        raise ValueError(f"{dynamics.id} has action masks, which episodes lack")
    columns = [_columns_of(dynamics, number, each) for number, each in enumerate(episodes)]
    if not columns:
        raise ValueError("episodes: expected one at least")
    count = sum(len(each["reward"]) for each in columns)
    kind = replay.PrioritizedReplayBuffer if prioritized else replay.ReplayBuffer
    buffer = kind(count, example_of(dynamics), num_envs=1, n_step=n_step, gamma=gamma, seed=seed)
    for each in columns:
        buffer.add({name: each_part(lambda x: x[:, None], column) for name, column in each.items()})
    return buffer


def _columns_of(dynamics: Any, number: int, episode: Any) -> dict[str, Any]:
    """Return the transitions of an episode, by the names of `example_of`, (T, ...)."""
    get = episode.get if isinstance(episode, Mapping) else lambda name: getattr(episode, name, None)
    actions = np.asarray(get("actions"))
    length = len(actions) if actions.ndim else 0
    observations = _stored(dynamics, get("observations"))
    sizes = [len(x) for x in (observations.values() if _is_tree(observations) else [observations])]
    if not length or set(sizes) not in ({length}, {length + 1}):
        counts = f"{sizes[0]} observations and {length} actions"
        raise ValueError(f"episodes[{number}] has {counts}: expected as many, or one more")
    if isinstance(dynamics, GymnasiumTask):
        actions = dynamics.acted.of_own(actions)
    dtype, width = (np.int64, ()) if dynamics.is_discrete else (np.float32, (dynamics.action_size,))
    following = np.minimum(np.arange(1, length + 1), sizes[0] - 1)
    columns = {
        "observation": each_part(lambda x: x[:length], observations),
        "next_observation": each_part(lambda x: x[following], observations),
        "action": np.asarray(actions).astype(dtype).reshape(length, *width),
    }
    for name, key, kind in (
        ("reward", "rewards", np.float32),
        ("terminated", "terminations", np.bool_),
        ("truncated", "truncations", np.bool_),
    ):
        values = get(key)
        columns[name] = np.zeros(length, kind) if values is None else np.array(values, kind)
        if columns[name].shape != (length,):
            reason = f"of shape {columns[name].shape}: expected ({length},)"
            raise ValueError(f"episodes[{number}] has {key} {reason}")
    columns["truncated"][-1] |= not columns["terminated"][-1]
    parts = observations if _is_tree(observations) else {"observations": observations}
    checked = {**parts, "actions": columns["action"], "rewards": columns["reward"]}
    for name, array in checked.items():
        if not np.isfinite(array).all():
            raise ValueError(f"episodes[{number}] has {name} that are not finite")
    return columns


def _stored(dynamics: Any, observations: Any) -> Any:
    """Return observations (n, ...) as a buffer stores them."""
    view = ObservationView.of(dynamics, planes="uint8", dtype=np.dtype(np.float32))
    if view.kind == "planes":
        raise TypeError(f"{dynamics.id} has observations of planes, which are not converted here")
    return view.to_stored(view.pack(dynamics.policy_observations(observations)))


def _is_tree(observations: Any) -> bool:
    return isinstance(observations, Mapping)
