"""Agents and their policies in files: what is saved, and how it becomes an agent again.

A file holds the arrays of parts, such as the policy, whose `state()` returns them by name, numbers
of the agent itself, and what a subclass names in `saved_numbers`.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from rlcpu.envs.engine.vector_env import VectorEnv
from rlcpu.envs.gymnasium.alone import SpacesTask
from rlcpu.nn.export import FORMATS as FORMATS
from rlcpu.nn.export import ExportedPolicy
from rlcpu.nn.learning.learner import Learner
from rlcpu.nn.network.scaling import USUAL_LIMIT
from rlcpu.train.keeping import checkpoint
from rlcpu.train.keeping.files import replacing
from rlcpu.train.keeping.history import BestEvaluation, History, PastCall
from rlcpu.train.keeping.normalise import Normalizer, RewardNormalizer
from rlcpu.translation import answered

Array = npt.NDArray[Any]
#: Stand in a description for a number that is among the arrays: an array, or a scalar of NumPy.
_ARRAY, _SCALAR = "array", "scalar"


class SavedAgent:
    """Base of `rlcpu.train.agent.Agent`: how agents get to files and back."""

    #: Attributes of a subclass that files hold: numbers, arrays of numbers, and objects whose
    #: `state()` returns arrays by name, such as an `nn.Learner`.
    saved_numbers: ClassVar[tuple[str, ...]] = ()
    algorithm: ClassVar[str]
    Config: ClassVar[Any]
    policy: Any
    learner: Any
    networks: Any
    env: VectorEnv
    config: Any
    seed: int
    steps: int
    returns: deque[float]
    rng: np.random.Generator
    normalizer: Normalizer
    rewards: RewardNormalizer
    history: History
    #: Over all calls of `learn`; None before the first evaluation on the way.
    best_evaluation: BestEvaluation | None = None
    #: Outcomes of the calls of `learn` before the last one.
    _past: tuple[PastCall, ...] = ()

    @property
    def calls(self) -> list[PastCall]:
        """Return what came of each call of `learn`, those before the agent was saved too."""
        return [*self._past, *([self.history.outcome()] if self.history.updates else [])]

    def _undo_interrupted_update(self) -> None:
        """Undo an update that was interrupted, where an agent does so."""

    def _parts(self) -> dict[str, Any]:
        """Return by name the parts whose `state()` is saved."""
        # Of a policy with memory the environments carry what it remembers: make room for that.
        self.env.engine.carry(self.policy.mark, sum(self.policy.state_sizes.values()))
        parts = {"policy": self.policy, "learner": self.learner, "env": self.env.engine}
        parts |= {"normalizer": self.normalizer, "rewards": self.rewards}
        values = {f"saved {name}": getattr(self, name, None) for name in self.saved_numbers}
        return parts | {name: value for name, value in values.items() if _is_part(value)}

    def _state(self) -> dict[str, Array]:
        """Return all arrays of the parts by name, to be saved or written to."""
        states = {name: part.state() for name, part in self._parts().items()}
        return {f"{part}_{name}": array for part in states for name, array in states[part].items()}

    def _restore(self, description: dict[str, Any], arrays: dict[str, Array]) -> None:
        """Write a saved agent's description and arrays, those of `_state`, to this new one."""
        self._write_numbers(_take_numbers(description, arrays))
        state = self._state()
        # Files that are older than limits are of policies that had this one.
        arrays.setdefault("policy_observation_limit", np.array(USUAL_LIMIT, np.float32))
        checkpoint.check_fit(state, arrays)
        for name, target in state.items():
            target[...] = arrays[name]
        # Networks are written from learners; then the policy's again, for its user may have written
        # to it after the last update.
        self._write_networks()
        for name, target in state.items():
            if name.startswith("policy_"):
                target[...] = arrays[name]
        self.steps = description["steps"]
        self.returns.extend(map(float, description["returns"]))
        self._past = tuple(PastCall(**call) for call in description.get("calls", ()))
        best = description.get("best")
        self.best_evaluation = None if best is None else BestEvaluation(**best)
        self.rng.bit_generator.state = description["rng"]
        self._restore_numbers(description)

    def _numbers(self) -> dict[str, Any]:
        """Return further numbers of this class to be saved, as JSON takes them."""
        return {}

    def _restore_numbers(self, numbers: dict[str, Any]) -> None:
        """Restore the numbers of `_numbers`, which stand among others."""

    def _write_networks(self) -> None:
        """Write what learners have learnt to their networks, after their arrays were written."""
        for part in self._parts().values():
            if isinstance(part, Learner):
                part.write_copies()
                part.write_networks()

    # ------------------------------------------------------------ numbers of a subclass

    @classmethod
    def _check_saved_numbers(cls) -> None:
        """Raise TypeError unless `saved_numbers` are names that the library does not use."""
        names = cls.saved_numbers
        if not isinstance(names, tuple | list) or not all(isinstance(name, str) for name in names):
            raise TypeError(
                f'{cls.__name__}.saved_numbers={names!r}: expected a tuple of names, such as ("x",)'
            )
        for name in names:
            if name in attributes_of(_ours(cls)) or name in cls.Config.names():
                reason = f"{_ours(cls).__name__} or its config uses this name; expected another one"
                raise TypeError(f"{cls.__name__}.saved_numbers has {name!r}: {reason}")

    def _unsaved_numbers(self) -> str:
        """Return a sentence that names a subclass's numbers that no file would hold; "" for none.

        Attributes that are numbers, arrays or learners count. What is in containers and in other
        objects is not looked at, nor what a `cached_property` computes again.
        """
        kind = type(self)
        others = [
            name
            for name, value in vars(self).items()
            if (_is_numeric(value) or isinstance(value, Learner | Normalizer))
            and name not in attributes_of(_ours(kind))
            and name not in self.saved_numbers
            and not isinstance(inspect.getattr_static(kind, name, None), functools.cached_property)
        ]
        if not others:
            return ""
        return (
            f"{', '.join(others)}: numbers of {kind.__name__} that no file would hold; expected "
            f"them in saved_numbers = {(*self.saved_numbers, *others)!r} of the class, or settings "
            "as fields of its Config"
        )

    def _read_numbers(self) -> dict[str, Any]:
        """Return the numbers and copies of the arrays that `saved_numbers` names, by name.

        TypeError is raised for one that is not there, or is something else.
        """
        values: dict[str, Any] = {}
        for name in self.saved_numbers:
            value = getattr(self, name, None)
            if _is_numeric(value) or isinstance(value, bool | np.bool_):
                values[name] = value.copy() if isinstance(value, np.ndarray) else value
            elif not _is_part(value):
                raise TypeError(
                    f"{type(self).__name__}.saved_numbers has {name!r}, which is {value!r}: "
                    "expected a number, an array of numbers, or an object with a method state()"
                )
        return values

    def _write_numbers(self, values: Mapping[str, Any]) -> None:
        """Set the numbers and arrays of `_read_numbers`; arrays in place, where they have the size.

        ValueError is raised unless they are those that `saved_numbers` names.
        """
        parts = [name for name in self.saved_numbers if _is_part(getattr(self, name, None))]
        names = [name for name in self.saved_numbers if name not in parts]
        if values.keys() != set(names):
            present = ", ".join(values) or "none"
            raise ValueError(f"its saved numbers are {present}: expected {', '.join(names)}")
        for name, value in values.items():
            target = getattr(self, name, None)
            if not isinstance(value, np.ndarray):
                setattr(self, name, value)
            elif isinstance(target, np.ndarray) and _form(target) == _form(value):
                target[...] = value
            else:
                setattr(self, name, value.copy())

    def _saved_arguments(self) -> dict[str, Array]:
        """Return arrays to be saved of which `_arguments_of` makes the constructor's arguments."""
        return {}

    @classmethod
    def _arguments_of(
        cls, description: dict[str, Any], arrays: dict[str, Array], num_threads: int | None
    ) -> dict[str, Any]:
        """Return arguments for the constructor of a saved agent, of its description and arrays.

        Those of `_saved_arguments` are removed from the arrays.
        """
        return {}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything that the agent is to one file, a buffer too.

        An older file stays whole until the new one is.

        Raises:
            OSError: it cannot be written.
            TypeError: a subclass has set a number, or an array, that its `saved_numbers` does not
                name, or names there what is none.
        """
        self._undo_interrupted_update()
        if unsaved := self._unsaved_numbers():
            raise TypeError(unsaved)
        numbers, number_arrays = _describe_numbers(self._read_numbers())
        arrays = {**self._state(), **self._saved_arguments(), **number_arrays}
        description = json.dumps(
            {
                **checkpoint.describe(self, self._numbers()),
                "numbers": numbers,
                "versions": checkpoint.versions(),
                "calls": [call._asdict() for call in self.calls],
                "best": self.best_evaluation and self.best_evaluation._asdict(),
            }
        )
        parts = {"format": checkpoint.format_of_class(type(self)), "description": description}
        with replacing(path) as file:
            checkpoint.write_parts(
                file, {**parts, **{f"state {name}": x for name, x in arrays.items()}}
            )

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write the policy to one file that acts without this library.

        It takes the actions of `predict` without drawing, from the same observations: they are
        normalised in the file. Where an environment of Gymnasium has numbers of other forms, such
        as actions of a `Discrete` from 5 on, those of the file are as in rollouts, from 0 on, and
        it says so: in the comment of C, ONNX's `doc_string`, or "notes".

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
        is_masked, notes = dynamics.num_masked > 0, dynamics.describe_numbers()
        program = ExportedPolicy.of(title, self.policy, is_masked, notes)
        content = FORMATS[ending](program, stem)  # C names its functions by the stem
        with replacing(path) as file:
            file.write(content)

    @classmethod
    @answered
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        env: VectorEnv | SpacesTask | None = None,
        num_threads: int | None = None,
        network: Any = None,
    ) -> Self:
        """Return the agent of a file; it goes on exactly as the saved one would have.

        Args:
            path: what `save` wrote.
            env: environments to go on in, for an environment that is not registered; they take
                over the saved state. Of an agent of spaces alone what `rlcpu.envs.spaces_of`
                returns.
            num_threads: threads at most; None takes all of numba's.
            network: the function that made the layers, if the saved agent was given one.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file is damaged or something else, or env does not fit.
        """
        name = os.fspath(path)
        description, arrays = checkpoint.read(path, checkpoint.format_of_class(cls))
        try:
            options = cls._arguments_of(description, arrays, num_threads)
            settings = checkpoint.without_functions(description["config"], name, network)
            config, dynamics = cls.Config(**settings), checkpoint.find_env(description, env)
            # A subclass of a user's may make its own networks of the settings, or none of them.
            has_usual_networks = cls.networks.__module__.startswith("rlcpu.")
            has_usual_networks &= getattr(config, "network", "mlp") == "mlp"
            checkpoint.check_sizes(dynamics, config, arrays, has_usual_networks)
            environments = checkpoint.make_env(description, config.num_envs, env, num_threads)
            seed = description["seed"]
            agent = cls(environments, seed=seed, num_threads=num_threads, config=config, **options)  # type: ignore[call-arg]
            agent._restore(description, arrays)
        # A damaged description may be anything.
        except (LookupError, OverflowError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"{name}: does not fit: {error}") from error
        return agent


# ---------------------------------------------------------------- numbers of subclasses


def _ours(kind: type) -> type:
    """Return the nearest class of this library that a class of agents is, or is derived from."""
    return next(each for each in kind.__mro__ if each.__module__.startswith("rlcpu."))


@functools.cache
def attributes_of(kind: Any) -> set[str]:
    """Return the names of a class's attributes, and of those that it annotates."""
    declared = [vars(each).get("__annotations__", {}) for each in kind.__mro__]
    return {*dir(kind), *(name for names in declared for name in names)}


def _is_numeric(value: Any) -> bool:
    """Tell whether a value is a number or an array of numbers or flags; one flag is none."""
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "biufc"
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _is_part(value: Any) -> bool:
    """Tell whether a value has arrays of its own to be saved, by a method `state`."""
    return callable(getattr(value, "state", None))


def _form(array: Array) -> tuple[Any, ...]:
    return array.dtype, array.shape


def _describe_numbers(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return a subclass's numbers as JSON takes them, and its arrays by their names in a file."""
    numbers, arrays = dict(values), {}
    for name, value in values.items():
        if isinstance(value, np.ndarray | np.generic):
            numbers[name] = _ARRAY if isinstance(value, np.ndarray) else _SCALAR
            arrays[f"number {name}"] = np.asarray(value)
    return numbers, arrays


def _take_numbers(description: dict[str, Any], arrays: dict[str, Array]) -> dict[str, Any]:
    """Return the numbers and arrays of `_describe_numbers`; the arrays are removed from `arrays`.

    Files of older versions have none. Any exception is raised where they are damaged.
    """
    values: dict[str, Any] = {}
    for name, number in description.get("numbers", {}).items():
        if number in (_ARRAY, _SCALAR):
            array = arrays.pop(f"number {name}")
            number = array if number == _ARRAY else array[()]
        if not _is_numeric(number) and not isinstance(number, bool | np.bool_):
            raise ValueError(f"its saved number {name} is {number!r}")
        values[name] = number
    return values
