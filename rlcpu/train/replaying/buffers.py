"""The replay buffer of an agent: how it is made, checked, filled and saved.

Settings that a buffer was made with become those of the agent that it is given to, see
`settings_of`.
"""

from __future__ import annotations

import contextlib
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu import replay
from rlcpu.envs.contract.fields import GOALS
from rlcpu.envs.engine.observations import each_part
from rlcpu.envs.engine.vector_env import VectorEnv
from rlcpu.envs.rollout.results import Rollout
from rlcpu.envs.rollout.transitions import example_of
from rlcpu.replay.buffer import Buffer
from rlcpu.replay.lock import complete
from rlcpu.replay.structure import TransitionStructure

Array = npt.NDArray[Any]
#: Classes of buffers by the name that settings give them.
BUFFERS: dict[str, type[Buffer]] = {
    "uniform": replay.ReplayBuffer,
    "prioritized": replay.PrioritizedReplayBuffer,
    "return": replay.ReturnWeightedBuffer,
    "hindsight": replay.HindsightReplayBuffer,
}


def make_buffer(example: Mapping[str, Any], config: Any, seed: int) -> Any:
    """Make the buffer of an `OffPolicyConfig`; `example` is one transition."""
    kind: Any = BUFFERS[config.replay]
    options: dict[str, Any] = {"fill_up": True}  # at the first success few have a weight
    if config.replay == "hindsight":
        options = {"goal": config.hindsight_goal, "ratio": config.hindsight_ratio}
        options |= {"num_envs": config.num_envs}
    elif config.replay != "return":
        options = {"num_envs": config.num_envs, "n_step": config.n_step, "gamma": config.gamma}
    return kind(config.capacity, example, seed=seed, **options)


def check_buffer(buffer: Any, env: VectorEnv, example: Mapping[str, Any]) -> None:
    """Raise TypeError or ValueError unless a buffer holds transitions like an example."""
    kinds = replay.ReplayBuffer, replay.ReturnWeightedBuffer
    if not isinstance(buffer, kinds) or isinstance(buffer, replay.ItemBuffer):
        raise TypeError(
            f"buffer={buffer!r}: expected a ReplayBuffer, PrioritizedReplayBuffer, "
            "HindsightReplayBuffer or ReturnWeightedBuffer"
        )
    if buffer.device != "cpu":
        raise TypeError(f"buffer={buffer!r}: expected one on the CPU")
    check_fields(buffer, example)
    if buffer.num_envs not in (None, env.num_envs):
        raise ValueError(f"buffer has num_envs={buffer.num_envs}: env has {env.num_envs}")
    n_step = getattr(buffer, "n_step", 1)
    if buffer.num_envs is None and n_step > 1 and env.num_envs > 1:
        raise ValueError(
            f"buffer has n_step={n_step} and num_envs=None: it adds up rewards of one environment, "
            f"expected num_envs={env.num_envs}"
        )
    is_hindsight = isinstance(buffer, replay.HindsightReplayBuffer)
    if buffer.num_envs is None and is_hindsight and env.num_envs > 1:
        raise ValueError(
            "buffer has num_envs=None: its episodes are those of one environment, expected "
            f"num_envs={env.num_envs}"
        )


def check_goals(env: VectorEnv) -> None:
    """Raise TypeError unless an environment tells the rewards of other goals than it pursues."""
    parts = example_of(env)["observation"]
    parts = parts if isinstance(parts, dict) else {}
    try:
        env.compute_reward(*(np.asarray(parts.get(name, 0.0))[None] for name in GOALS))
    except TypeError as error:
        raise TypeError(f'replay="hindsight": {error}') from None


def options_of_draws(buffer: Any, env: VectorEnv) -> dict[str, Any]:
    """Return options of a buffer's `sample`: the rewards of goals, where it has none of its own."""
    if isinstance(buffer, replay.HindsightReplayBuffer) and buffer.compute_reward is None:
        return {"compute_reward": env.compute_reward}
    return {}


# ---------------------------------------------------------------- settings of a given buffer


def settings_of(buffer: Any, capacity: Any = None) -> dict[str, Any]:
    """Return the settings of an agent that a buffer decides, by name; none if it is no buffer.

    `gamma` is among them where returns are of several steps: those of one have no discount.
    `capacity` is that of the agent's settings; a buffer of sequences rounds it down.
    """
    drawn = "prioritized" if has_priorities(buffer) else "uniform"
    if isinstance(buffer, replay.ReturnWeightedBuffer):
        return {"replay": "return", "n_step": 1, "capacity": buffer.capacity}
    if isinstance(buffer, replay.HindsightReplayBuffer):
        decided = {"replay": "hindsight", "n_step": 1, "capacity": buffer.capacity}
        decided |= {"hindsight_goal": buffer.goal, "hindsight_ratio": buffer.ratio}
        return decided | ({"num_envs": buffer.num_envs} if buffer.num_envs else {})
    if isinstance(buffer, replay.ReplayBuffer):
        decided = {"replay": drawn, "n_step": buffer.n_step, "capacity": buffer.capacity}
        decided |= {"gamma": buffer.gamma} if buffer.n_step > 1 else {}
        return decided | ({"num_envs": buffer.num_envs} if buffer.num_envs else {})
    if isinstance(buffer, replay.TrajectoryBuffer):
        size, period = buffer.num_envs * buffer.length, buffer.num_envs * buffer.period
        is_same = isinstance(capacity, int | float) and capacity // period * period == size
        chosen = capacity if is_same else size
        return {"replay": drawn, "num_envs": buffer.num_envs, "capacity": chosen}
    return {}


def check_settings(decided: Mapping[str, Any], wanted: Mapping[str, Any], tuned: Any) -> None:
    """Raise ValueError where a user's setting is another than a buffer decides.

    A warning names those that are tuned for the environment, and lost.

    Args:
        decided: see `settings_of`.
        wanted: settings by the user's word.
        tuned: the settings of the environment, None if there are none.
    """
    for name, value in decided.items():
        if wanted.get(name, value) != value:
            reason = f"buffer has {value!r}, which counts; expected the same"
            raise ValueError(f"{name}={wanted[name]!r}: {reason}")
    # Class and capacity are written wherever a buffer is made; these have defaults there.
    for name in sorted({"n_step", "gamma"} & (decided.keys() - wanted.keys())):
        value = decided[name]
        best, usual = getattr(tuned, name, value), getattr(type(tuned)(), name, value)
        if best not in (value, usual):
            warnings.warn(
                f"{name}={best!r} is tuned for this environment: buffer has {value!r}, which "
                f"counts; make it with {name}={best!r}, or give the agent {name}={value!r} too",
                stacklevel=4,  # of whoever makes the agent
            )


def check_fields(buffer: Any, example: Any) -> None:
    """Raise ValueError unless a buffer has the fields of an example, in any order."""
    actual, expected = buffer.structure.fields, TransitionStructure(example).fields
    if sorted(actual) != sorted(expected):
        present, needed = (
            ", ".join(f"{field.name} {field.dtype} {field.shape}" for field in each)
            for each in (actual, expected)
        )
        raise ValueError(f"buffer has the fields {present}: expected {needed}")


def has_priorities(buffer: Any) -> bool:
    """Tell whether a buffer is to be given temporal differences as priorities."""
    kinds = replay.PrioritizedReplayBuffer, replay.PrioritizedTrajectoryBuffer
    return isinstance(buffer, kinds) or getattr(buffer, "prioritized", False)


def add(buffer: Any, rollout: Rollout, returns: Sequence[float], further: dict[str, Array]) -> None:
    """Store a rollout's transitions in a buffer of an agent.

    `returns` are those of the last episodes, of which some ended in the rollout; `further` has
    columns (T * N, ...) that a rollout has not.
    """
    # Names as in `example_of(env)`; the parts of a group are fields such as "observation.speed".
    names = [field.name.partition(".")[0] for field in buffer.structure.fields]
    usual = [name for name in names if name not in further]
    columns = rollout.transitions(usual, packed=True) | further
    if columns["reward"].dtype != np.float32:
        columns["reward"] = columns["reward"].astype(np.float32)
    if isinstance(buffer, replay.ReturnWeightedBuffer):
        _add_weighted(buffer, columns, rollout, float(np.mean(returns)) if returns else 0.0)
        return
    if buffer.num_envs is not None:
        shape = rollout.rewards.shape
        columns = {
            name: each_part(lambda array: array.reshape(*shape, *array.shape[1:]), column)
            for name, column in columns.items()
        }
    buffer.add(columns)


def _add_weighted(
    buffer: replay.ReturnWeightedBuffer, columns: Any, rollout: Rollout, mean: float
) -> None:
    """Store transitions with `mean` as their values, and give those of ended episodes the return.

    Transitions of an episode that goes on, or began in an earlier rollout, are valued when it ends.
    `final_indices` (num_episodes, 2) are the step and environment of each end in this rollout.
    Transition number `num_added + step * N + i` is that of environment i at a step of this rollout;
    negative steps are those of earlier ones.
    """
    first, num_envs = buffer.num_added, rollout.rewards.shape[1]
    buffer.add(columns, mean)
    oldest = max(0, buffer.num_added - buffer.capacity)  # that is still there
    ends = zip(rollout.final_indices, rollout.episode_lengths, rollout.episode_returns, strict=True)
    for (step, i), length, episode_return in ends:
        steps = np.arange(max(step + 1 - length, -first // num_envs), step + 1)
        numbers = first + steps * num_envs + i
        numbers = numbers[numbers >= oldest]
        if numbers.size:
            buffer.update_values(numbers % buffer.capacity, episode_return)


def files_of(buffer: Buffer) -> dict[str, Array]:
    """Save a buffer to a temporary folder, and return its files as arrays of bytes by name."""
    with _temporary_folder() as folder:
        place = folder / "buffer"
        buffer.save(place)
        buffer.forget_folder()  # a later save to the user's folder is not one of changes since this
        files = sorted(place.iterdir())
        return {f"buffer {file.name}": np.fromfile(file, np.uint8) for file in files}


def buffer_of(name: str, arrays: dict[str, Array], num_threads: int | None) -> Buffer:
    """Return the buffer of a class that `files_of` saved; its files are removed from `arrays`."""
    kind: Any = getattr(replay, name)
    with _temporary_folder() as folder:
        place = folder / "buffer"
        place.mkdir()
        for part in [name for name in arrays if name.startswith("buffer ")]:
            # A name in a file may not lead out of the folder.
            arrays.pop(part).tofile(place / Path(part.removeprefix("buffer ")).name)
        buffer: Buffer = kind.load(place, num_threads=num_threads)
        buffer.forget_folder()
        return buffer


@contextlib.contextmanager
def _temporary_folder() -> Iterator[Path]:
    """Yield a new folder, which is removed after the block, also where Ctrl-C comes meanwhile.

    After `tempfile.TemporaryDirectory` an interrupt may become `OSError`: a file is closed twice.
    """
    folder = Path(tempfile.mkdtemp())
    try:
        yield folder
    finally:
        complete(_remove, folder)


def _remove(folder: Path) -> None:
    """Remove a folder and its files, as far as they still exist."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
    if folder.is_dir():
        folder.rmdir()
