"""Agents in files: NumPy's npz format and one JSON text, no pickle.

A file holds the networks, Adam's moments, all random streams and the running episodes, so that a
loaded agent goes on bit for bit as the saved one would have.
"""

from __future__ import annotations

import dataclasses
import json
import os
import zipfile
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.envs.policies import MLP
from rlcpu.envs.registration import make_vec
from rlcpu.envs.vector_env import VectorEnv
from rlcpu.train.config import PPOConfig
from rlcpu.train.files import replacing

Array = npt.NDArray[Any]
FORMAT = "rlcpu PPO 1"


class Snapshot(NamedTuple):
    """What a call of `learn` changes of an agent, copied.

    Attributes:
        arrays: by the names of `_state`.
        steps: environment steps.
        observations: that the normalizer has seen.
        returns: of the last training episodes.
        num_updates: of the present call of `learn`.
    """

    arrays: dict[str, Array]
    steps: int
    observations: int
    returns: tuple[float, ...]
    num_updates: int


def take_snapshot(agent: Any) -> Snapshot:
    """The agent as it is now."""
    arrays = {name: array.copy() for name, array in _state(agent).items()}
    count, returns = agent.normalizer.count, tuple(agent.returns)
    return Snapshot(arrays, agent.steps, count, returns, len(agent.history.updates))


def go_back(agent: Any, snapshot: Snapshot) -> None:
    """Make the agent what it was. Interrupted, it can be called again."""
    agent.updater.discard()
    for name, target in _state(agent).items():
        target[...] = snapshot.arrays[name]
    agent.steps, agent.normalizer.count = snapshot.steps, snapshot.observations
    agent.returns.clear()
    agent.returns.extend(snapshot.returns)
    agent.history.go_back(snapshot.num_updates)


def save(agent: Any, path: str | os.PathLike[str]) -> None:
    """Write an agent to a file; an older file stays whole until the new one is."""
    arrays: dict[str, Any] = {f"state {name}": value for name, value in _state(agent).items()}
    with replacing(path) as file:
        np.savez(file, format=FORMAT, description=json.dumps(_describe(agent)), **arrays)


def load(
    kind: type, path: str | os.PathLike[str], env: VectorEnv | None, num_threads: int | None
) -> Any:
    """The agent of class `kind` in a file; see `PPO.load`."""
    description, arrays = _read(path)
    try:
        agent = _rebuild(kind, description, env, num_threads)
        for name, target in _state(agent).items():
            source = arrays[f"state {name}"]
            if source.dtype != target.dtype or source.shape != target.shape:
                wanted = f"{target.dtype} {target.shape}"
                raise ValueError(f"{name} is {source.dtype} {source.shape}, expected {wanted}")
            target[...] = source
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{os.fspath(path)}: does not fit: {error}") from error
    agent.steps = description["steps"]
    agent.normalizer.count = description["observations"]
    agent.rng.bit_generator.state = description["rng"]
    agent.returns.extend(description["returns"])
    return agent


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Array]]:
    """Description and arrays of a file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is damaged, or not one of ours.
    """
    try:
        # Opened here, for NumPy leaves a damaged file open.
        with open(path, "rb") as handle, np.load(handle, allow_pickle=False) as file:
            if str(file["format"]) != FORMAT:
                raise ValueError(f"format is {file['format']}, expected {FORMAT}")
            return json.loads(str(file["description"])), {k: file[k] for k in file.files}
    except FileNotFoundError:
        raise
    except (OSError, EOFError, KeyError, ValueError, TypeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{os.fspath(path)}: no agent of rlcpu, or damaged: {error}") from error


def _describe(agent: Any) -> dict[str, Any]:
    """What is no array, as JSON takes it."""
    env, policy = agent.env, agent.policy
    return {
        "env": env.dynamics.id,
        "params": env.dynamics.params._asdict(),
        "dtype": env.dtype.name,
        "max_episode_steps": env.max_episode_steps,
        "config": dataclasses.asdict(agent.config),
        "policy": {"hidden": policy.hidden, "activation": policy.activation, "value": policy.value},
        "seed": agent.seed,
        "steps": agent.steps,
        "observations": agent.normalizer.count,
        "returns": list(agent.returns),
        "rng": agent.rng.bit_generator.state,
    }


def _state(agent: Any) -> dict[str, Array]:
    """Every array of an agent that a checkpoint keeps, to read or to write."""
    policy, memory, updater = agent.policy, agent.env.memory, agent.updater
    return {
        "parameters": policy.parameters,
        "value_parameters": policy.value_parameters,
        "log_std": policy.log_std,
        "observation_mean": policy.observation_mean,
        "observation_scale": policy.observation_scale,
        "normalizer_mean": agent.normalizer.mean,
        "normalizer_squares": agent.normalizer.squares,
        "learner": updater.learner.parameters,
        "learner_first": updater.learner.first,
        "learner_second": updater.learner.second,
        "learner_copies": updater.learner.copies,
        "counters": updater.counters,
        "key": updater.key,
        "env_real": memory.real,
        "env_words": memory.words,
        "env_clock": memory.clock,
    }


def _rebuild(
    kind: type, description: dict[str, Any], env: VectorEnv | None, num_threads: int | None
) -> Any:
    """A new agent like the described one; its arrays are still to be filled."""
    config = description["config"]
    if env is None:
        env = make_vec(
            description["env"],
            config["num_envs"],
            dtype=description["dtype"],
            max_episode_steps=description["max_episode_steps"],
            num_threads=num_threads,
            **description["params"],
        )
    if env.dynamics.id != description["env"]:
        raise ValueError(f"env={env!r}: expected {description['env']}")
    spaces = env.single_observation_space, env.single_action_space
    policy = MLP(*spaces, **description["policy"])
    settings = PPOConfig(**config)
    return kind(
        env, seed=description["seed"], num_threads=num_threads, policy=policy, config=settings
    )
