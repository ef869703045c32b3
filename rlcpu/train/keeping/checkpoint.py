"""Agents in files: NumPy's npz format and one JSON text, no pickle.

A file holds the networks, Adam's moments, all random streams and the running episodes, so that a
loaded agent goes on bit for bit as the saved one would have.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from typing import IO, Any, NamedTuple

import gymnasium
import numba
import numpy as np
import numpy.typing as npt

import rlcpu
from rlcpu.envs.contract.dynamics import Dynamics
from rlcpu.envs.contract.names import find, is_of_gymnasium
from rlcpu.envs.engine.lane import LANES, NUM_WORDS
from rlcpu.envs.engine.vector_env import VectorEnv
from rlcpu.envs.gymnasium.alone import SpacesTask
from rlcpu.envs.gymnasium.task import GymnasiumTask
from rlcpu.envs.registration import make_vec, registered
from rlcpu.kernels.checks import check_count
from rlcpu.nn.network.graph import num_parameters
from rlcpu.train.settings.arguments import check_env

Array = npt.NDArray[Any]
#: Stands in a file for a schedule that is a function.
_FUNCTION = "<function>"
#: Parameters that settings of a file may ask for where a subclass brings other networks.
_MOST_PARAMETERS = 2**22
#: Arrays that are copies of the learner's parameters while an agent learns.
_DERIVED = {"policy_parameters", "policy_value_parameters", "policy_log_std", "learner_copies"}


class Snapshot(NamedTuple):
    """Copy of all that a call of `learn` changes of an agent."""

    arrays: dict[str, Array]  # by the names of the agent's state, but for `_DERIVED`
    steps: int  # environment steps
    returns: tuple[float, ...]  # of the last training episodes
    numbers: dict[str, Any]  # that a subclass names in `saved_numbers`
    num_updates: int  # of the present call of `learn`


def without_functions(config: dict[str, Any], file: str, network: Any) -> dict[str, Any]:
    """Return saved settings; schedules that were functions are "constant", with a warning.

    `network` takes the place of a network that was a function; `file` is named in the warning.

    Raises:
        ValueError: the network was a function and none is given, or another one than the saved
            name is given.
    """
    if config.get("network") == _FUNCTION:
        if not callable(network):
            raise ValueError("its network was a function, which no file holds: give network=")
        config = {**config, "network": network}
    elif network is not None and network != config.get("network"):
        raise ValueError(f"network={network!r}: the agent has {config.get('network')!r}")
    functions = [name for name, value in config.items() if value == _FUNCTION]
    if functions:
        warnings.warn(
            f"{file}: {', '.join(functions)} was a function, which no file holds: it is "
            f'"constant" until you set agent.config = agent.config.replace({{...}})',
            stacklevel=4,  # of whoever calls `load`
        )
    return {**config, **dict.fromkeys(functions, "constant")}


def format_of_class(kind: Any) -> str:
    """Return the format of the files of a class of agents."""
    return f"rlcpu {kind.algorithm} 1"


def write_parts(file: IO[bytes], parts: Mapping[str, Any]) -> None:
    """Write arrays by name as `numpy.savez` does, but let Ctrl-C raise KeyboardInterrupt.

    NumPy closes the archive whatever has happened, and `zipfile` raises ValueError if a part was
    just being opened. Here nothing more is written to a file that was interrupted.
    """
    archive = zipfile.ZipFile(file, "w")
    try:
        for name, part in parts.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as target:
                np.lib.format.write_array(target, np.asarray(part), allow_pickle=False)
        archive.close()
    except BaseException:
        archive.fp = None  # as if closed, for its finalizer too
        raise


def take_snapshot(
    agent: Any, state: dict[str, Array], numbers: dict[str, Any], arrays: dict[str, Array]
) -> Snapshot:
    """Return a snapshot of an agent during `learn`, whose arrays are `state`.

    `numbers` are copies of those that a subclass names.

    The arrays of its last snapshot, none at first, are overwritten: new memory is slow.
    """
    for name, array in state.items():
        if name in _DERIVED:
            continue  # written anew from the others
        if name in arrays:
            np.copyto(arrays[name], array)
        else:
            arrays[name] = array.copy()
    return Snapshot(
        arrays=arrays,
        steps=agent.steps,
        returns=tuple(agent.returns),
        numbers=numbers,
        num_updates=len(agent.history.updates),
    )


def restore_snapshot(agent: Any, state: dict[str, Array], snapshot: Snapshot) -> None:
    """Restore an agent and its state from a snapshot, but for networks and a subclass's numbers.

    Interrupted, it can be called again.
    """
    for name, source in snapshot.arrays.items():
        state[name][...] = source
    agent.steps = snapshot.steps
    agent.returns.clear()
    agent.returns.extend(snapshot.returns)
    agent.history.go_back(snapshot.num_updates)


def read(path: str | os.PathLike[str], format: str) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read the description and arrays of a file.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is of another format, or damaged.
    """
    with _damage_named(path):
        description, arrays = _read(path, format)
        _check_description(description, arrays)
        return description, arrays


@contextlib.contextmanager
def _damage_named(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise ValueError with the file's name for what is wrong with it in a block."""
    try:
        yield
    except FileNotFoundError:
        raise
    except Exception as error:  # NumPy's readers, and zip's, raise many kinds
        plain = isinstance(error, OSError | ValueError | zipfile.BadZipFile)
        reason = str(error) if plain else repr(error)
        name = os.fspath(path)
        raise ValueError(f"{name}: no agent of rlcpu, or damaged: {reason}") from error


def read_description(path: str | os.PathLike[str]) -> tuple[str, dict[str, Any]]:
    """Return the format of a saved agent's file and its description, without its arrays.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is of another format, or damaged.
    """
    with _damage_named(path), _open_archive(path) as (archive, parts):
        format = _read_text(archive, parts["format"])
        if not re.fullmatch(r"rlcpu \w+ 1", format):
            raise ValueError(f"format is {format}, expected that of an agent")
        description: dict[str, Any] = json.loads(_read_text(archive, parts["description"]))
        return format, description


def versions() -> dict[str, str]:
    """Return the versions of what decides results, by name."""
    modules = {"rlcpu": rlcpu, "numba": numba, "numpy": np, "gymnasium": gymnasium}
    numbers = {name: str(module.__version__) for name, module in modules.items()}
    return {**numbers, "python": platform.python_version()}


def check_fit(state: dict[str, Array], arrays: dict[str, Array]) -> None:
    """Raise ValueError unless a file has an agent's arrays, and no others."""
    if state.keys() != arrays.keys():
        raise ValueError(f"it has other parts than {', '.join(state)}")
    for part, target in state.items():
        source = arrays[part]
        if source.dtype != target.dtype or source.shape != target.shape:
            expected = f"{target.dtype} {target.shape}"
            raise ValueError(f"{part} is {source.dtype} {source.shape}, expected {expected}")


def format_of(path: str | os.PathLike[str]) -> str:
    """Return the format that a file says to have; "" if it is no file of ours."""
    try:
        with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
            return _read_text(archive, archive.getinfo("format.npy"))
    except (OSError, LookupError, ValueError, zipfile.BadZipFile):
        return ""


def _read(path: str | os.PathLike[str], format: str) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read description and arrays of a file; raises an exception of any kind for another file.

    No array takes more memory than its bytes there.
    """
    with _open_archive(path) as (archive, parts):
        texts = {name: _read_text(archive, parts[name]) for name in ("format", "description")}
        if texts["format"] != format:
            raise ValueError(f"format is {texts['format']}, expected {format}")
        names = sorted(parts.keys() - texts.keys())
        return json.loads(texts["description"]), {
            name.removeprefix("state "): _read_part(archive, parts[name]) for name in names
        }


@contextlib.contextmanager
def _open_archive(
    path: str | os.PathLike[str],
) -> Iterator[tuple[zipfile.ZipFile, dict[str, zipfile.ZipInfo]]]:
    """Yield an open file, and its parts by name."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise ValueError("it is no file")
    with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
        parts = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        if len(parts) != len(archive.infolist()):
            raise ValueError("it has two parts of one name")
        yield archive, parts


def _read_text(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> str:
    """Return the text of an array without axes.

    Not by `str(array)`: where Ctrl-C comes while NumPy begins to print one, it prints "..." of
    every later array at the same place in memory, and a good file was called damaged.
    """
    return str(_read_part(archive, part).item())


def _read_part(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> Array:
    """Read one array as NumPy wrote it, after its header was compared with the file's bytes."""
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


def _check_description(description: Any, arrays: dict[str, Array]) -> None:
    """Raise an exception of any kind unless an agent can go on from it."""
    if not np.isfinite([float(total) for total in description["returns"]]).all():
        raise ValueError("returns are not finite")
    if (arrays["learner_counters"] < 0).any():
        raise ValueError("counters are negative")
    check_count("steps", description["steps"], 0)
    np.random.default_rng(0).bit_generator.state = description["rng"]


def check_sizes(
    dynamics: Dynamics, config: Any, arrays: dict[str, Array], has_usual_networks: bool
) -> None:
    """Raise ValueError where saved settings ask for far more memory than the saved arrays have.

    `has_usual_networks` tells whether the networks are those that the settings describe. Others
    may have fewer parameters: their settings are refused if they ask for very many.
    """
    # Of an image, other networks' dense layers may read few numbers.
    inputs = dynamics.observation_size if has_usual_networks else 1
    least, size = num_parameters((inputs, *config.hidden)), arrays["policy_parameters"].size
    if size < least and (has_usual_networks or least > _MOST_PARAMETERS):
        raise ValueError(f"policy_parameters has {size} numbers, expected {least} at least")
    # An engine has whole blocks of `LANES` environments, and `NUM_WORDS` words for each.
    words = -(-config.num_envs // LANES) * NUM_WORDS * LANES
    if dynamics.runs_in_kernels and arrays["env_words"].size != words:
        raise ValueError(f"env_words has {arrays['env_words'].size} numbers, expected {words}")


def find_env(description: dict[str, Any], env: VectorEnv | SpacesTask | None) -> Dynamics:
    """Return the described environment, or the given one; ValueError if that is another one."""
    if env is not None:
        env = make_vec(env) if isinstance(env, SpacesTask) else take_env(env)
        id, is_ours = description["env"], not isinstance(env.dynamics, GymnasiumTask)
        was_ours = not description.get("given") and (id in registered() or not is_of_gymnasium(id))
        if env.dynamics.id != id or is_ours != was_ours:
            whose = "rlcpu" if was_ours else "Gymnasium"
            raise ValueError(f"env={env!r}: expected {id}, one of {whose}")
        return env.dynamics
    if description.get("given"):
        raise ValueError(
            f"its environments, {description['env']}, were given to the agent: give them as env="
        )
    if description["env"] not in registered() and not is_of_gymnasium(description["env"]):
        raise ValueError(
            f"its environment {description['env']} is not registered: import the module that does "
            "so first, or give env= (on the command line, module:id)"
        )
    return find(description["env"])


def take_env(env: Any) -> VectorEnv:
    """Return environments to go on in; TypeError if it is something else."""
    environments = None if isinstance(env, str | Dynamics) else check_env(env)
    if not isinstance(environments, VectorEnv):
        raise TypeError(f"env={env!r}: expected a VectorEnv, or an environment of Gymnasium")
    return environments


def make_env(
    description: dict[str, Any],
    num_envs: int,
    env: VectorEnv | SpacesTask | None,
    num_threads: int | None,
) -> VectorEnv:
    """Return the described environments, or the given ones; see `find_env`."""
    dynamics, params = find_env(description, env), description["params"]
    if env is not None:
        made = make_vec(env, num_envs) if isinstance(env, SpacesTask) else take_env(env)
    else:
        dynamics.with_params(**params)  # raises for other names, which `make_vec` might take
        made = make_vec(
            description["env"],
            num_envs,
            dtype=description["dtype"],
            max_episode_steps=description["max_episode_steps"],
            num_threads=num_threads,
            **params,
        )
    if made.num_envs != num_envs:
        raise ValueError(f"env has num_envs={made.num_envs}, expected {num_envs}, as it was saved")
    # Files of older versions do not tell.
    spaces = _describe_spaces(made)
    for name, parts in description.get("spaces", spaces).items():
        if parts != spaces.get(name):
            raise ValueError(
                f"{name} of {made.dynamics.id} has the parts {spaces.get(name)}, expected {parts}: "
                "each a name, its shape and its first choices if they are not 0"
            )
    return made


def describe_env(env: VectorEnv) -> dict[str, Any]:
    """Return the environment's settings for `make_env`, as JSON takes them."""
    return {
        "env": env.dynamics.id,
        "params": env.dynamics.settings(),
        "dtype": env.dtype.name,
        "max_episode_steps": env.max_episode_steps,
        "given": isinstance(env.dynamics, SpacesTask)
        or (isinstance(env.dynamics, GymnasiumTask) and env.dynamics.make is None),
        "spaces": _describe_spaces(env),
    }


def _describe_spaces(env: VectorEnv) -> dict[str, Any]:
    """Return the parts of the spaces of an environment of Gymnasium, as JSON takes them.

    They say what numbers stand for that policies have.
    """
    if not isinstance(env.dynamics, GymnasiumTask):
        return {}
    observed, acted = env.dynamics.observed, env.dynamics.acted
    return {"observation_space": observed.parts(), "action_space": acted.parts()}


def describe(agent: Any, numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Return all of an agent that is no array, and the numbers of its class, as JSON takes them."""
    settings = {name: getattr(agent.config, name) for name in agent.config.names()}
    return {
        **describe_env(agent.env),
        "config": {k: _FUNCTION if callable(value) else value for k, value in settings.items()},
        "seed": agent.seed,
        "steps": agent.steps,
        "returns": list(agent.returns),
        "rng": agent.rng.bit_generator.state,
        **numbers,
    }
