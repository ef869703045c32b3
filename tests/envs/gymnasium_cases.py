"""Environments of Gymnasium that keep a book of what happened in them."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

Array = Any


class Book(gymnasium.Env[Any, Any]):
    """Episodes of given lengths, every second one truncated; rewards and observations are unique.

    Args:
        lengths: of the episodes, again and again.
        number: of the environment.
        observed, acting: its spaces.
        masked: whether two of three actions are allowed, which is asserted; in a terminated episode
            nothing is.
    """

    def __init__(
        self,
        lengths: list[int],
        number: int = 0,
        observed: Any = None,
        acting: Any = None,
        masked: bool = False,
    ) -> None:
        self.observation_space = observed or Box(-1e6, 1e6, (2,), np.float64)
        self.action_space = acting or Discrete(3)
        self.lengths, self.number, self.masked = lengths, number, masked
        self.episode = self.moment = -1
        self.book: list[dict[str, Any]] = []
        self.seeds: list[int | None] = []

    def look(self) -> Any:
        if isinstance(self.observation_space, Discrete):
            return (self.episode * 5 + self.moment) % self.observation_space.n
        seen = np.zeros(self.observation_space.shape)
        seen[:2] = 1000.0 * self.number + self.episode, self.moment
        return seen.astype(self.observation_space.dtype)

    def allowed(self) -> Any:
        return (np.arange(3) + self.episode + self.moment + self.number) % 3 != 0

    def infos(self, over: bool = False) -> dict[str, Any]:
        return {"action_mask": (self.allowed() & (not over)).astype(np.int8)} if self.masked else {}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.episode, self.moment = self.episode + 1, 0
        return self.look(), self.infos()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        before, masks = self.look(), {"action_mask": self.allowed()}
        assert not self.masked or masks["action_mask"][action], action
        self.moment += 1
        ends = self.moment >= self.lengths[self.episode % len(self.lengths)]
        cut = ends and self.episode % 2 == 1
        reward = 100.0 * self.number + 10.0 * self.episode + self.moment
        entry = {"observation": before, "action": action, "reward": reward}
        entry |= {"next_observation": self.look(), "terminated": ends and not cut, "truncated": cut}
        masks["next_action_mask"] = self.allowed() & (not entry["terminated"])
        self.book.append(entry | (masks if self.masked else {}))
        return self.look(), reward, entry["terminated"], cut, self.infos(entry["terminated"])


class Plain(VectorEnv[Any, Any, Any], gymnasium.Env[Any, Any]):
    """A vector environment that only has what it must: no masks, no list of seeds.

    As EnvPool's it is an `Env` as well.
    """

    def __init__(self, env: SyncVectorEnv) -> None:
        self.inner, self.num_envs = env, env.num_envs
        self.metadata = {"autoreset_mode": env.autoreset_mode}
        for name in ("single_observation_space", "single_action_space", "observation_space"):
            setattr(self, name, getattr(env, name))
        self.action_space = env.action_space

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        assert seed is None or isinstance(seed, int)
        assert not options
        return self.inner.reset(seed=seed)

    def step(self, actions: Any) -> Any:
        return self.inner.step(actions)


class OneArray(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Returns all observations, or each part of them, in one array, into which it writes."""

    def __init__(self, env: gymnasium.Env[Any, Any], parts: bool = False) -> None:
        super().__init__(env)
        self.array, self.parts = np.zeros(env.observation_space.shape or ()), parts
        if parts:
            self.observation_space = Dict({"here": env.observation_space, "there": Discrete(9)})

    def write(self, observation: Any) -> Any:
        self.array[...] = observation
        return {"here": self.array, "there": 3} if self.parts else self.array

    def reset(self, **options: Any) -> Any:
        observation, infos = self.env.reset(**options)
        return self.write(observation), infos

    def step(self, action: Any) -> Any:
        observation, *others = self.env.step(action)
        return self.write(observation), *others


def make_books(lengths: list[list[int]], mode: str, **spaces: Any) -> tuple[Any, list[Book]]:
    """A vector environment over books, and these; mode "plain" is next-step, without masks."""
    books = [Book(each, i, **spaces) for i, each in enumerate(lengths)]
    kind = AutoresetMode.NEXT_STEP if mode == "plain" else AutoresetMode(mode)
    env = SyncVectorEnv([lambda book=book: book for book in books], autoreset_mode=kind)
    return (Plain(env) if mode == "plain" else env), books


class Reach(gymnasium.Env[Any, Any]):
    """Walk to 1 on a line from -1 in steps of at most 0.4; each step costs its distance."""

    observation_space = Box(-3.0, 3.0, (1,), np.float64)
    metadata: ClassVar[Any] = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, discrete: bool = True, render_mode: str | None = None) -> None:
        self.action_space: Any = Discrete(3) if discrete else Box(-2.0, 2.0, (1,), np.float64)
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.x = self.np_random.uniform(-1.1, -0.9)
        return np.array([self.x]), {}

    def step(self, action: Any) -> Any:
        discrete = isinstance(self.action_space, Discrete)
        self.x += 0.4 * (action - 1) if discrete else 0.2 * action[0]
        self.x = min(max(self.x, -3.0), 3.0)
        return np.array([self.x]), -abs(self.x - 1.0), bool(abs(self.x - 1.0) < 0.15), False, {}

    def render(self) -> Any:
        return np.full((20, 30, 3), int(100 + 20 * self.x), np.uint8)


MODES = ("NextStep", "SameStep", "Disabled", "plain")
