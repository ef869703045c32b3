"""Agents and their policies in files: what is saved, and how it becomes an agent again."""

from __future__ import annotations

import json
import os
from collections import deque
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from rlcpu.envs.vector_env import VectorEnv
from rlcpu.nn.export import FORMATS as FORMATS
from rlcpu.nn.export import ExportedPolicy
from rlcpu.nn.scaling import USUAL_LIMIT
from rlcpu.train import checkpoint
from rlcpu.train.files import replacing
from rlcpu.train.normalise import Normalizer, RewardNormalizer
from rlcpu.translation import answered

Array = npt.NDArray[Any]


class SavedAgent:
    """Base of `rlcpu.train.agent.Agent`: how agents get to files and back."""

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

    def _undo_interrupted_update(self) -> None:
        """Undo an update that was interrupted, where an agent does so."""

    def _parts(self) -> dict[str, Any]:
        """Return by name the parts whose `state()` is saved."""
        # Of a policy with memory the environments carry what it remembers: make room for that.
        self.env.engine.carry(self.policy.mark, sum(self.policy.state_sizes.values()))
        parts = {"policy": self.policy, "learner": self.learner, "env": self.env.engine}
        return {**parts, "normalizer": self.normalizer, "rewards": self.rewards}

    def _state(self) -> dict[str, Array]:
        """Return all arrays of the parts by name, to be saved or written to."""
        states = {name: part.state() for name, part in self._parts().items()}
        return {f"{part}_{name}": array for part in states for name, array in states[part].items()}

    def _restore(self, description: dict[str, Any], arrays: dict[str, Array]) -> None:
        """Write a saved agent's description and arrays, those of `_state`, to this new one."""
        state = self._state()
        # Files that are older than limits are of policies that had this one.
        arrays.setdefault("policy_observation_limit", np.array(USUAL_LIMIT, np.float32))
        checkpoint.check_fit(state, arrays)
        for name, target in state.items():
            target[...] = arrays[name]
        # Networks are written from the learner; then the policy's again, for its user may have
        # written to it after the last update.
        self.learner.write_networks()
        for name, target in state.items():
            if name.startswith("policy_"):
                target[...] = arrays[name]
        self.steps = description["steps"]
        self.returns.extend(map(float, description["returns"]))
        self.rng.bit_generator.state = description["rng"]
        self._restore_numbers(description)

    def _numbers(self) -> dict[str, Any]:
        """Return further numbers of this class to be saved, as JSON takes them."""
        return {}

    def _restore_numbers(self, numbers: dict[str, Any]) -> None:
        """Restore the numbers of `_numbers`, which stand among others."""

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
        """
        self._undo_interrupted_update()
        arrays = {**self._state(), **self._saved_arguments()}
        description = json.dumps(checkpoint.describe(self, self._numbers()))
        parts = {"format": checkpoint.format_of_class(type(self)), "description": description}
        with replacing(path) as file:
            checkpoint.write_parts(
                file, {**parts, **{f"state {name}": x for name, x in arrays.items()}}
            )

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
    @answered
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
