"""Agents in files: NumPy's npz format and one JSON text, no pickle.

A file holds the networks, Adam's moments, all random streams and the running episodes, so that a
loaded agent goes on bit for bit as the saved one would have.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
import warnings
import zipfile
from collections.abc import Mapping
from typing import IO, Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from rlcpu.envs.collect import Rollout
from rlcpu.envs.dynamics import Dynamics
from rlcpu.envs.engine.lane import LANES, NUM_WORDS
from rlcpu.envs.gymnasium.task import GymnasiumTask
from rlcpu.envs.registration import find, is_of_gymnasium, make_vec, registered
from rlcpu.envs.running import is_one
from rlcpu.envs.vector_env import VectorEnv
from rlcpu.kernels.checks import check_count
from rlcpu.nn.export import FORMATS as FORMATS
from rlcpu.nn.export import ExportedPolicy
from rlcpu.nn.network import num_parameters
from rlcpu.train.actors import check_masks
from rlcpu.train.config import check_config, check_env, describe_unknown, signature_of
from rlcpu.train.files import replacing
from rlcpu.train.history import losses_type
from rlcpu.train.normalise import RewardNormalizer

Array = npt.NDArray[Any]
#: Stands in a file for a schedule that is a function.
_FUNCTION = "<function>"
#: What follows from the learner's parameters while an agent learns.
#: Parameters that settings of a file may ask for where a subclass brings other networks.
_MOST_PARAMETERS = 2**22
_OF_LEARNER = {"policy_parameters", "policy_value_parameters", "policy_log_std", "learner_copies"}


class Snapshot(NamedTuple):
    """Copy of all that a call of `learn` changes of an agent.

    Attributes:
        arrays: by the names of `state_of`; what follows from the learner's may be missing.
        steps: environment steps.
        returns: of the last training episodes.
        num_updates: of the present call of `learn`.
    """

    arrays: dict[str, Array]
    steps: int
    returns: tuple[float, ...]
    num_updates: int


class Agent:
    """Base of all agents: how they act, and how they get to files and back.

    A class brings what it learns and acts with, `_parts`, and numbers of its own.
    """

    algorithm: ClassVar[str]
    Config: ClassVar[Any]
    #: Statistics of its algorithm that `history.losses` holds.
    reported: ClassVar[tuple[str, ...]]
    policy: Any
    networks: Any
    env: VectorEnv
    config: Any
    seed: int
    steps: int
    history: Any
    returns: Any
    rewards: RewardNormalizer
    rng: np.random.Generator

    def __init_subclass__(cls) -> None:
        """Show the fields of the config where the class is shown, as by `help`."""
        super().__init_subclass__()
        if hasattr(cls, "Config"):
            made: Any = cls
            made.__signature__ = signature_of(cls)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute of an agent that is made, where somebody will read it.

        Settings are fields of `config`, which may be replaced; what follows from others when an
        agent is made, such as networks of `hidden` layers, may not.
        """
        is_made = "history" in self.__dict__  # the last that a constructor sets
        if is_made and not name.startswith("_"):
            self._check_attribute(name, value)
        super().__setattr__(name, value)

    def _check_attribute(self, name: str, value: Any) -> None:
        """Raise AttributeError for an attribute that an agent lacks or that nobody may set."""
        made: Any = type(self)
        kind, settings = made.__name__, self.Config.names()
        if name in settings:
            self._check_attribute("config", self.config.replace({name: value}))
            change = f"agent.config = agent.config.replace({{{name!r}: {value!r}}})"
            raise AttributeError(f"{name} is a field of {kind}'s config: {change}")
        if name in ("policy", "seed"):
            raise AttributeError(f"{name}: {kind} is made with it, make another one")
        if name == "config":
            check_config(self.config, value)
        is_ours = made.__module__.startswith("rlcpu.")  # others may have more attributes
        if is_ours and name not in _attributes(made):
            reason = describe_unknown(name, settings, kind)
            raise AttributeError(f"{reason}; settings are fields of its config")

    def predict(
        self,
        observations: npt.ArrayLike | Mapping[str, npt.ArrayLike],
        deterministic: bool = True,
        action_masks: npt.ArrayLike | None = None,
        *,
        state: npt.ArrayLike | None = None,
        starts: npt.ArrayLike | None = None,
    ) -> Any:
        """Return actions for observations.

        Args:
            observations: (n, observation_size), or (observation_size,) of one environment; of a
                `Dict` a mapping of its parts.
            deterministic: take the most likely action, or the best, in place of drawing one.
            action_masks: (n, num_actions), or (num_actions,), of bools or zeros and ones: which
                actions are allowed, as `infos["action_mask"]` says; None where all are.
            state: of an agent with memory what it remembers, (n, state_size) or (state_size,), from
                `initial_state` or the last call.
            starts: (n,) bools, where an episode has begun since, and nothing is remembered; None
                for nowhere.

        Returns:
            Actions (n,) int64 of a `Discrete`, (n, action_size) float32 of a `Box`, within its
            bounds; without the first axis for one observation. Of an agent with memory these, and
            the state for the next call.

        Raises:
            TypeError: the environment has action masks and none are given.
            ValueError: observations, masks or a state have another shape, a mask allows nothing,
                or an agent with memory is given no state.
            FloatingPointError: they, or the policy's parameters, hold NaN or infinity.
        """
        masks = check_masks(self.env.dynamics, action_masks)
        single = is_one(observations, self.policy.view)
        if not self.state_size:
            if state is not None or starts is not None:
                raise ValueError(f"state, starts: {type(self).__name__} has no memory")
            actions = self._actions_of(observations, deterministic, masks)
            return actions[0] if single else actions
        if state is not None and np.ndim(state) == 1 and single:
            state = np.asarray(state)[None]
        if starts is not None and single:
            starts = np.atleast_1d(starts)
        memory = state, starts
        actions, after = self._actions_of(observations, deterministic, masks, memory)
        return (actions[0], after[0]) if single else (actions, after)

    def _actions_of(
        self, observations: Any, greedy: bool, masks: Array | None, memory: Any = None
    ) -> Any:
        """Return actions for observations.

        Masks (n, num_actions) are those of `check_masks`, memory the state and starts of an agent
        that has one, whose state afterwards is returned too.
        """
        raise NotImplementedError

    @property
    def state_size(self) -> int:
        """Return how many numbers it remembers of an environment to act; 0 without memory."""
        sizes: dict[str, int] = getattr(self.policy, "state_sizes", {})
        return sizes.get("policy", 0)

    def initial_state(self, num_envs: int = 1) -> npt.NDArray[np.float32]:
        """Return the state of an agent before episodes, zeros (num_envs, state_size)."""
        return np.zeros((check_count("num_envs", num_envs), self.state_size), np.float32)

    @functools.cached_property
    def _no_losses(self) -> Any:
        """Return the losses of an agent that has learnt nothing yet."""
        kind = losses_type((*self.reported, "gradient_norm", "num_gradients"))
        return kind._make([math.nan] * (len(kind._fields) - 1) + [0])

    def _losses_of(self, report: Mapping[str, float]) -> Any:
        """Return the losses for `history` of an update whose learner returned `report`."""
        return self._no_losses._make(report[name] for name in self._no_losses._fields)

    def _check_reported(self, learner: Any) -> None:
        """Raise ValueError where the algorithm has no statistic of a name in `reported`."""
        known = [name for names in learner.tape.statistics for name in names]
        for name in self.reported:
            if name not in known:
                raise ValueError(
                    f"{type(self).__name__}.reported has {name!r}: its updates have the statistics "
                    f"{', '.join(known)}"
                )

    @classmethod
    def _usual(cls, config: Any) -> Any:
        """Return the tuned settings of a base class as those of a class with its own `Config`."""
        if type(config) is cls.Config:
            return config
        names = cls.Config.names()
        return cls.Config().replace({k: v for k, v in vars(config).items() if k in names})

    def _rewards_of(self, rollout: Rollout) -> Array:
        """Return the rewards (T, N) of a rollout as they are learnt, float32."""
        if self.config.normalize_rewards:
            self.rewards.add(rollout, self.config.gamma)
        return self._learnt_rewards(rollout.rewards)

    def _learnt_rewards(self, rewards: Array, n_step: int = 1) -> Array:
        """Return rewards, or sums of `n_step`, as they are learnt from, float32."""
        if self.config.normalize_rewards:
            rewards = self.rewards.divide(rewards, n_step)
        scale = np.float32(getattr(self.config, "reward_scale", 1.0))
        learnt: Array = rewards.astype(np.float32, copy=False)
        return learnt if scale == 1.0 else learnt * scale

    def _parts(self) -> dict[str, Any]:
        """Return the parts with a `state()` by name: "policy", "env", "learner" with networks."""
        raise NotImplementedError

    def _numbers(self) -> dict[str, Any]:
        """Return further numbers of this class for files, as JSON takes them."""
        return {}

    def _take_numbers(self, numbers: dict[str, Any]) -> None:
        """Restore the numbers of `_numbers`, which stand among others."""

    def _more_arrays(self) -> dict[str, Array]:
        """Return the arrays that a file keeps and `_arguments_of` reads."""
        return {}

    @classmethod
    def _arguments_of(
        cls, description: dict[str, Any], arrays: dict[str, Array], num_threads: int | None
    ) -> dict[str, Any]:
        """Return the arguments for the agent of a file; takes `_more_arrays` out of its arrays."""
        return {}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything that the agent is to one file, a buffer too.

        An older file stays whole until the new one is.

        Raises:
            OSError: it cannot be written.
        """
        arrays = {**state_of(self), **self._more_arrays()}
        parts = {"format": _format(type(self)), "description": json.dumps(describe(self))}
        with replacing(path) as file:
            write_parts(file, {**parts, **{f"state {name}": x for name, x in arrays.items()}})

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write the policy to one file that acts without this library.

        It takes the actions of `predict` without drawing, from the same observations: they are
        normalised in the file.

        Args:
            path: the ending chooses the format. ".c" is a file of C99 that includes `math.h` alone;
                ".onnx" a model for ONNX's runtimes; ".npz" and ".json" hold arrays and a list of
                what to compute with them, for a short reader in any language.

        Raises:
            ValueError: there is no format of this ending, or the format has no such layer.
            OSError: it cannot be written.
        """
        stem, ending = os.path.splitext(os.path.basename(os.fspath(path)))
        if ending not in FORMATS:
            *others, last = FORMATS
            raise ValueError(f"path={path!r}: expected a name with {', '.join(others)} or {last}")
        dynamics = self.env.dynamics
        title = f"A policy for {dynamics.id}, learnt by {self.algorithm} in rlcpu"
        program = ExportedPolicy.of(title, self.policy, dynamics.num_masked > 0)
        content = FORMATS[ending](program, stem)
        with replacing(path) as file:
            file.write(content)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        env: VectorEnv | None = None,
        num_threads: int | None = None,
        network: Any = None,
    ) -> Self:
        """Return the agent of a file; it goes on exactly as the saved one would have.

        Args:
            path: what `save` wrote.
            env: environments to go on in, for an environment that is not registered; they take
                over the saved state.
            num_threads: threads at most; None takes all of numba's.
            network: the function that made the layers, if the saved agent was given one.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file is damaged or something else, or env does not fit.
        """
        name = os.fspath(path)
        description, arrays = read(path, _format(cls))
        try:
            options = cls._arguments_of(description, arrays, num_threads)
            config = cls.Config(**_without_functions(description["config"], name, network))
            is_ours = cls.networks.__module__.startswith("rlcpu.")
            is_ours &= getattr(config, "network", "mlp") == "mlp"
            _check_sizes(find_env(description, env), config, arrays, is_ours)
            made = make_env(description, config.num_envs, env, num_threads)
            seed = description["seed"]
            agent = cls(made, seed=seed, num_threads=num_threads, config=config, **options)  # type: ignore[call-arg]
            _restore(agent, description, arrays)
        except (LookupError, OverflowError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"{name}: does not fit: {error}") from error
        return agent


def _without_functions(config: dict[str, Any], file: str, network: Any) -> dict[str, Any]:
    """Return the settings of a file; schedules that were functions are constant, with a warning.

    Raises:
        ValueError: the network was a function and none is given, or the other way round.
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
            stacklevel=3,
        )
    return {**config, **dict.fromkeys(functions, "constant")}


@functools.cache
def _attributes(kind: Any) -> set[str]:
    """Return the names of attributes of a class, and of those that it says its objects have."""
    declared = [vars(each).get("__annotations__", {}) for each in kind.__mro__]
    return {*dir(kind), *(name for names in declared for name in names)}


def _format(kind: type[Agent]) -> str:
    return f"rlcpu {kind.algorithm} 1"


def write_parts(file: IO[bytes], parts: Mapping[str, Any]) -> None:
    """Write arrays by name as `numpy.savez` does, but that Ctrl-C stays KeyboardInterrupt.

    NumPy closes the archive whatever has happened, and `zipfile` raises ValueError if a part was
    just being opened. A file that is interrupted is given up: nothing more is written to it.
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


def state_of(agent: Agent) -> dict[str, Array]:
    """Return all arrays of an agent that a checkpoint keeps, to read or to write."""
    parts = {name: part.state() for name, part in agent._parts().items()}
    return {f"{part}_{name}": array for part in parts for name, array in parts[part].items()}


def _restore(agent: Agent, description: dict[str, Any], arrays: dict[str, Array]) -> None:
    """Make a new agent the described one."""
    state = state_of(agent)
    check_fit(state, arrays)
    for name, target in state.items():
        target[...] = arrays[name]
    agent._parts()["learner"].write_networks()
    for name, target in state.items():
        if name.startswith("policy_"):  # its user may have written to it after the last update
            target[...] = arrays[name]
    agent.steps = description["steps"]
    agent.returns.extend(map(float, description["returns"]))
    agent.rng.bit_generator.state = description["rng"]
    agent._take_numbers(description)


def take_snapshot(agent: Any, arrays: dict[str, Array]) -> Snapshot:
    """Return the agent as it is now, in the arrays of the last snapshot: new memory is slow."""
    for name, array in state_of(agent).items():
        if name in _OF_LEARNER:
            continue
        if name in arrays:
            np.copyto(arrays[name], array)
        else:
            arrays[name] = array.copy()
    return Snapshot(arrays, agent.steps, tuple(agent.returns), len(agent.history.updates))


def go_back(agent: Any, snapshot: Snapshot) -> None:
    """Restore the agent from a snapshot. Interrupted, it can be called again."""
    agent.updater.discard()
    state = state_of(agent)
    for name, source in snapshot.arrays.items():
        state[name][...] = source
    if not snapshot.arrays.keys() >= _OF_LEARNER:
        agent.updater.write_copies()
        agent.updater.write_networks()
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
    try:
        description, arrays = _read(path, format)
        _check_description(description, arrays)
        return description, arrays
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
    """Return the format that a file says to have; "" if it is no file of ours."""
    try:
        with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
            return _read_text(archive, archive.getinfo("format.npy"))
    except (OSError, LookupError, ValueError, zipfile.BadZipFile):
        return ""


def _read(path: str | os.PathLike[str], format: str) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read description and arrays of a file. No array takes more memory than its bytes there.

    Raises:
        Exception: of any kind, if it is something else.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        raise ValueError("it is no file")
    with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
        parts = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        if len(parts) != len(archive.infolist()):
            raise ValueError("it has two parts of one name")
        texts = {name: _read_text(archive, parts[name]) for name in ("format", "description")}
        if texts["format"] != format:
            raise ValueError(f"format is {texts['format']}, expected {format}")
        names = sorted(parts.keys() - texts.keys())
        return json.loads(texts["description"]), {
            name.removeprefix("state "): _read_part(archive, parts[name]) for name in names
        }


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


def _check_sizes(dynamics: Dynamics, config: Any, arrays: dict[str, Array], is_ours: bool) -> None:
    """Raise ValueError where settings would make more than the file's arrays have room for.

    `is_ours` tells whether the networks are those of the settings.
    """
    inputs = dynamics.observation_size if is_ours else 1  # of images few reach dense layers
    least = num_parameters((inputs, *config.hidden))
    if arrays["policy_parameters"].size < least and (is_ours or least > _MOST_PARAMETERS):
        size = arrays["policy_parameters"].size
        raise ValueError(f"policy_parameters has {size} numbers, expected {least} at least")
    words = -(-config.num_envs // LANES) * NUM_WORDS * LANES
    if dynamics.engine is None and arrays["env_words"].size != words:
        raise ValueError(f"env_words has {arrays['env_words'].size} numbers, expected {words}")


def find_env(description: dict[str, Any], env: VectorEnv | None) -> Dynamics:
    """Return the described environment, or the given one if it is that.

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
    if description["env"] not in registered() and not is_of_gymnasium(description["env"]):
        raise ValueError(
            f"its environment {description['env']} is not registered: import the module that does "
            "so first, or give env= (on the command line, module:id)"
        )
    return find(description["env"])


def take_env(env: Any) -> VectorEnv:
    """Return the environments to go on in.

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
    """Return the described environments, or the given ones.

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
    """Return the environment's settings for `make_env`, as JSON takes them."""
    return {
        "env": env.dynamics.id,
        "params": env.dynamics.settings(),
        "dtype": env.dtype.name,
        "max_episode_steps": env.max_episode_steps,
        "given": isinstance(env.dynamics, GymnasiumTask) and env.dynamics.make is None,
    }


def describe(agent: Agent) -> dict[str, Any]:
    """Return an agent's description, all that is no array, as JSON takes it."""
    config = agent.config
    functions = [name for name in config.names() if callable(getattr(config, name))]
    plain = config.replace({k: "mlp" if k == "network" else "constant" for k in functions})
    return {
        **describe_env(agent.env),
        "config": {**dataclasses.asdict(plain), **dict.fromkeys(functions, _FUNCTION)},
        "seed": agent.seed,
        "steps": agent.steps,
        "returns": list(agent.returns),
        "rng": agent.rng.bit_generator.state,
        **agent._numbers(),
    }
