"""Agents in files: NumPy's npz format and one JSON text, no pickle.

A file holds the networks, Adam's moments, all random streams and the running episodes, so that a
loaded agent goes on bit for bit as the saved one would have.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import zipfile
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.gymnasium_env import GymnasiumTask
from rlcpu.envs.lane import LANES, NUM_WORDS
from rlcpu.envs.registration import find, is_of_gymnasium, known, make_vec
from rlcpu.envs.vector_env import VectorEnv
from rlcpu.kernels.checks import check_count
from rlcpu.nn.network import num_parameters
from rlcpu.train.config import PPOConfig, check_env
from rlcpu.train.files import replacing

Array = npt.NDArray[Any]
FORMAT = "rlcpu PPO 1"
#: What follows from the learner's parameters while an agent learns.
_OF_LEARNER = {"policy_parameters", "policy_value_parameters", "policy_log_std", "learner_copies"}


class Snapshot(NamedTuple):
    """What a call of `learn` changes of an agent, copied.

    Attributes:
        arrays: by the names of `state_of`; what follows from the learner's may be missing.
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


def state_of(agent: Any) -> dict[str, Array]:
    """Every array of an agent that a checkpoint keeps, to read or to write."""
    parts = {
        "policy": agent.policy.state(),
        "normalizer": agent.normalizer.state(),
        "learner": agent.updater.state(),
        "env": agent.env.memory.state(),
    }
    return {f"{part}_{name}": array for part in parts for name, array in parts[part].items()}


def take_snapshot(agent: Any) -> Snapshot:
    """The agent as it is now, in the memory of the last snapshot: new memory costs page faults."""
    arrays: dict[str, Array] = agent._snapshot_arrays
    for name, array in state_of(agent).items():
        if name in _OF_LEARNER:
            continue
        if name in arrays:
            np.copyto(arrays[name], array)
        else:
            arrays[name] = array.copy()
    count, returns = agent.normalizer.count, tuple(agent.returns)
    return Snapshot(arrays, agent.steps, count, returns, len(agent.history.updates))


def go_back(agent: Any, snapshot: Snapshot) -> None:
    """Make the agent what it was. Interrupted, it can be called again."""
    agent.updater.discard()
    state = state_of(agent)
    for name, source in snapshot.arrays.items():
        state[name][...] = source
    if not snapshot.arrays.keys() >= _OF_LEARNER:
        agent.updater.write_copies()
        agent.updater.write_networks()
    agent.steps, agent.normalizer.count = snapshot.steps, snapshot.observations
    agent.returns.clear()
    agent.returns.extend(snapshot.returns)
    agent.history.go_back(snapshot.num_updates)


def save(agent: Any, path: str | os.PathLike[str]) -> None:
    """Write an agent to a file; an older file stays whole until the new one is."""
    arrays: dict[str, Any] = {f"state {name}": value for name, value in state_of(agent).items()}
    write(path, FORMAT, _describe(agent), arrays)


def write(
    path: str | os.PathLike[str], format: str, description: Any, arrays: dict[str, Any]
) -> None:
    """Write what is described as JSON, and arrays whose names begin with "state "."""
    with replacing(path) as file:
        np.savez(file, format=format, description=json.dumps(description), **arrays)


def load(
    kind: type, path: str | os.PathLike[str], env: VectorEnv | None, num_threads: int | None
) -> Any:
    """The agent of class `kind` in a file; see `PPO.load`."""
    name = os.fspath(path)
    description, arrays, (snapshot, rng) = read(path, FORMAT, _check_description)
    try:
        agent = _rebuild(kind, description, arrays, env, num_threads)
        check_fit(state_of(agent), arrays)
    except (LookupError, OverflowError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{name}: does not fit: {error}") from error
    go_back(agent, snapshot)
    agent.rng.bit_generator.state = rng
    return agent


def read(
    path: str | os.PathLike[str], format: str, check: Callable[[Any, dict[str, Array]], Any]
) -> tuple[dict[str, Any], dict[str, Array], Any]:
    """Description and arrays of a file, and what `check` makes of them.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is of another format, or damaged.
    """
    try:
        description, arrays = _read(path, format)
        return description, arrays, check(description, arrays)
    except FileNotFoundError:
        raise
    except Exception as error:  # NumPy's readers, and zip's, raise many kinds
        plain = isinstance(error, OSError | ValueError | zipfile.BadZipFile)
        reason = str(error) if plain else repr(error)
        name = os.fspath(path)
        raise ValueError(f"{name}: no agent of rlcpu, or damaged: {reason}") from error


def check_fit(state: dict[str, Array], arrays: dict[str, Array]) -> None:
    """Raise ValueError unless a file has an agent's arrays, and no others."""
    if state.keys() != arrays.keys():
        raise ValueError(f"it has other parts than {', '.join(state)}")
    for part, target in state.items():
        source = arrays[part]
        if source.dtype != target.dtype or source.shape != target.shape:
            wanted = f"{target.dtype} {target.shape}"
            raise ValueError(f"{part} is {source.dtype} {source.shape}, expected {wanted}")


def format_of(path: str | os.PathLike[str]) -> str:
    """The format that a file says to have; "" if it is no file of ours."""
    try:
        with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
            return str(_read_part(archive, archive.getinfo("format.npy")))
    except (OSError, LookupError, ValueError, zipfile.BadZipFile):
        return ""


def _read(path: str | os.PathLike[str], format: str) -> tuple[dict[str, Any], dict[str, Array]]:
    """Description and arrays of a file. No array takes more memory than it has bytes in the file.

    Raises:
        Exception: of any kind, if it is something else.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        raise ValueError("it is no file")
    with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
        parts = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        if len(parts) != len(archive.infolist()):
            raise ValueError("it has two parts of one name")
        texts = {name: str(_read_part(archive, parts[name])) for name in ("format", "description")}
        if texts["format"] != format:
            raise ValueError(f"format is {texts['format']}, expected {format}")
        names = sorted(parts.keys() - texts.keys())
        return json.loads(texts["description"]), {
            name.removeprefix("state "): _read_part(archive, parts[name]) for name in names
        }


def _read_part(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> Array:
    """One array, as NumPy wrote it, after its header was compared with its bytes in the file."""
    if part.compress_type != zipfile.ZIP_STORED or part.file_size != part.compress_size:
        raise ValueError(f"{part.filename} is compressed")
    with archive.open(part) as file:
        if np.lib.format.read_magic(file) != (1, 0):
            raise ValueError(f"{part.filename} is of another version of NumPy's format")
        shape, in_columns, dtype = np.lib.format.read_array_header_1_0(file)
        size = part.file_size - file.tell()
        if dtype.hasobject or math.prod(shape) * dtype.itemsize != size:
            raise ValueError(f"{part.filename} has {size} bytes for {dtype} {shape}")
        data = file.read()
        return np.ndarray(shape, dtype, data, order="F" if in_columns else "C")


def _check_description(
    description: Any, arrays: dict[str, Array]
) -> tuple[Snapshot, dict[str, Any]]:
    """What `go_back` takes, and the state of the generator of `predict`, if it is one."""
    returns = tuple(map(float, description["returns"]))
    if not np.isfinite(returns).all():
        raise ValueError("returns are not finite")
    if (arrays["learner_counters"] < 0).any():
        raise ValueError("counters are negative")
    steps = check_count("steps", description["steps"], 0)
    observations = check_count("observations", description["observations"], 0)
    np.random.default_rng(0).bit_generator.state = description["rng"]
    return Snapshot(arrays, steps, observations, returns, 0), description["rng"]


def _rebuild(
    kind: type,
    description: dict[str, Any],
    arrays: dict[str, Array],
    env: VectorEnv | None,
    num_threads: int | None,
) -> Any:
    """A new agent like the described one, of the arrays' size; they are still to be copied."""
    config = PPOConfig(**description["config"])
    dynamics = find_env(description, env)
    layers = dynamics.observation_size, *config.hidden
    outputs = sum(dynamics.choices) or dynamics.num_actions + dynamics.action_size
    value_layers = (*layers, 1) if config.value == "separate" else ()
    sizes = {
        "policy_parameters": num_parameters((*layers, outputs + (config.value == "shared"))),
        "policy_value_parameters": num_parameters(value_layers),
    }
    if dynamics.engine is None:
        sizes["env_words"] = -(-config.num_envs // LANES) * NUM_WORDS * LANES
    for name, size in sizes.items():
        if arrays[name].size != size:
            raise ValueError(f"{name} has {arrays[name].size} numbers, expected {size}")
    env = make_env(description, config.num_envs, env, num_threads)
    return kind(env, seed=description["seed"], num_threads=num_threads, config=config)


def find_env(description: dict[str, Any], env: VectorEnv | None) -> Dynamics:
    """The described environment, or the given one if it is that.

    Raises:
        ValueError: it is another one, or not registered.
    """
    if env is not None:
        env = take_env(env)
        if env.dynamics.id != description["env"]:
            raise ValueError(f"env={env!r}: expected {description['env']}")
        return env.dynamics
    if description.get("given"):
        raise ValueError(
            f"its environments, {description['env']}, were given to the agent: give them as env="
        )
    if description["env"] not in known() and not is_of_gymnasium(description["env"]):
        raise ValueError(
            f"its environment {description['env']} is not registered: import the module that does "
            "so first, or give env= (on the command line, module:id)"
        )
    return find(description["env"])


def take_env(env: Any) -> VectorEnv:
    """Environments to go on in.

    Raises:
        TypeError: they are none.
    """
    taken = None if isinstance(env, str | Dynamics) else check_env(env)
    if not isinstance(taken, VectorEnv):
        raise TypeError(f"env={env!r}: expected a VectorEnv, or an environment of Gymnasium")
    return taken


def make_env(
    description: dict[str, Any], num_envs: int, env: VectorEnv | None, num_threads: int | None
) -> VectorEnv:
    """The described environments, or the given ones.

    Raises:
        ValueError: see `find_env`.
    """
    dynamics = find_env(description, env)
    if env is not None:
        return take_env(env)
    params = description["params"]
    dynamics.with_params(**params)  # the names are those of parameters, and of nothing else
    return make_vec(
        description["env"],
        num_envs,
        dtype=description["dtype"],
        max_episode_steps=description["max_episode_steps"],
        num_threads=num_threads,
        **params,
    )


def describe_env(env: VectorEnv) -> dict[str, Any]:
    """What `make_env` makes environments of, as JSON takes it."""
    return {
        "env": env.dynamics.id,
        "params": env.dynamics.settings(),
        "dtype": env.dtype.name,
        "max_episode_steps": env.max_episode_steps,
        "given": isinstance(env.dynamics, GymnasiumTask) and env.dynamics.make is None,
    }


def _describe(agent: Any) -> dict[str, Any]:
    """What is no array, as JSON takes it."""
    return {
        **describe_env(agent.env),
        "config": dataclasses.asdict(agent.config),
        "seed": agent.seed,
        "steps": agent.steps,
        "observations": agent.normalizer.count,
        "returns": list(agent.returns),
        "rng": agent.rng.bit_generator.state,
    }
