"""Agents in files: NumPy's npz format and one JSON text, no pickle.

A file holds the networks, Adam's moments, all random streams and the running episodes, so that a
loaded agent goes on bit for bit as the saved one would have.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.envs.policies import MLP
from rlcpu.envs.registration import make_vec
from rlcpu.envs.vector_env import VectorEnv

FORMAT = "rlcpu PPO 1"


def save(agent: Any, path: str | os.PathLike[str]) -> None:
    """Write an agent to a file; an older file stays whole until the new one is."""
    arrays: dict[str, Any] = {f"state {name}": value for name, value in _state(agent).items()}
    path = Path(path)
    handle, temporary = tempfile.mkstemp(dir=path.parent or ".", prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, format=FORMAT, description=json.dumps(_describe(agent)), **arrays)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


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


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
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


def _state(agent: Any) -> dict[str, npt.NDArray[Any]]:
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
    return kind(env, seed=description["seed"], num_threads=num_threads, policy=policy, **config)
