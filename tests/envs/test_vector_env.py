"""The contract of every registered environment, and of every way to step it."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import rlcpu
from rlcpu.envs.engine.vector_env import VectorEnv
from tests.envs.rollouts import CLASSIC

MODES = list(AutoresetMode)
#: More than a block of 64, and the last block is not full.
NUM_ENVS = 70
LIMIT = 6
#: Reset bounds from which a random policy ends episodes within `LIMIT` steps. The continuous
#: car's are no short decimals: from those, one new state in 1,300 is a float32 by chance, which its
#: step takes for one that Gymnasium has stored in float32.
WIDE = {
    "CartPole-v1": {"reset_low": -0.15, "reset_high": 0.15},
    "MountainCar-v0": {"reset_low": 0.45, "reset_high": 0.55},
    "MountainCarContinuous-v0": {"reset_low": 0.4142135, "reset_high": 0.5099019},
    "Acrobot-v1": {"reset_low": -3.0, "reset_high": 3.0},
}
every_environment = pytest.mark.parametrize("name", CLASSIC)
every_mode = pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)


class Results(NamedTuple):
    """What `step` returns."""

    observations: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    infos: dict[str, Any]

    @property
    def done(self) -> np.ndarray:
        return self.terminated | self.truncated


def make(name: str, **options: Any) -> VectorEnv:
    return rlcpu.make_vec(name, **{"num_envs": NUM_ENVS, **WIDE.get(name, {}), **options})


def random_actions(env: VectorEnv, rng: np.random.Generator) -> np.ndarray:
    """Actions, also of a `Box` beyond its bounds."""
    if env.dynamics.is_discrete:
        return rng.integers(env.dynamics.num_actions, size=env.num_envs)
    shape = (env.num_envs, env.dynamics.action_size)
    return (1.2 * env.single_action_space.high * rng.uniform(-1.0, 1.0, shape)).astype(np.float32)


def set_state(env: gymnasium.Env, state: np.ndarray) -> None:
    """Copy a new state in, of the type that Gymnasium's own reset leaves."""
    env.unwrapped.state = state.astype(np.asarray(env.unwrapped.state).dtype)


class Pair:
    """Our environment beside Gymnasium's SyncVectorEnv of the original, stepped together.

    Resets draw other numbers than Gymnasium's: after each, our state is copied into Gymnasium's
    sub-environment.
    """

    def __init__(self, name: str, mode: AutoresetMode, dtype: str) -> None:
        self.ours = make(name, dtype=dtype, autoreset_mode=mode, max_episode_steps=LIMIT)
        original = functools.partial(
            gymnasium.make, self.ours.dynamics.original, max_episode_steps=LIMIT
        )
        self.theirs = SyncVectorEnv([original] * NUM_ENVS, autoreset_mode=mode)
        self.mode, self.reset_now, self.pending = mode, np.ones(NUM_ENVS, np.bool_), None

    def reset(self, seed: int | None = None, **options: Any) -> np.ndarray:
        mask = options.get("reset_mask", np.ones(NUM_ENVS, np.bool_))
        observations, infos = self.ours.reset(seed=seed, options=dict(options))
        _, their_infos = self.theirs.reset(options=dict(options))
        assert infos == their_infos == {}
        self.copy_states(mask)
        return observations

    def copy_states(self, mask: np.ndarray) -> None:
        for i in np.flatnonzero(mask):
            set_state(self.theirs.envs[i], self.ours.state[i])

    def step(self, actions: np.ndarray) -> tuple[Results, Results, np.ndarray]:
        """Results of both, and which observations are the first of an episode."""
        ours, theirs = (Results(*env.step(actions)) for env in (self.ours, self.theirs))
        fresh = np.zeros(NUM_ENVS, np.bool_)
        if self.mode is AutoresetMode.SAME_STEP:
            fresh = ours.done
        elif self.mode is AutoresetMode.NEXT_STEP and self.pending is not None:
            fresh = self.pending
        self.pending = ours.done
        self.copy_states(fresh)
        return ours, theirs, fresh


def observe(env: VectorEnv) -> np.ndarray:
    """Observations by the plain Python function."""
    rows = [env.dynamics.observe(tuple(s), env.dynamics.params) for s in env.state.tolist()]
    return np.array(rows, dtype=np.float32)


def assert_same_results(ours: Results, theirs: Results, fresh: np.ndarray, error: float) -> None:
    """Everything but the observations of new episodes, which have other states."""
    tolerance = {"rtol": error, "atol": error}
    np.testing.assert_array_equal(ours.terminated, theirs.terminated)
    np.testing.assert_array_equal(ours.truncated, theirs.truncated)
    np.testing.assert_allclose(ours.rewards, theirs.rewards, **tolerance)
    np.testing.assert_allclose(ours.observations[~fresh], theirs.observations[~fresh], **tolerance)
    assert ours.infos.keys() == theirs.infos.keys()
    for key in ours.infos.keys() - {"final_obs"}:
        np.testing.assert_array_equal(ours.infos[key], theirs.infos[key])
    if "final_obs" in ours.infos:
        for mine, other in zip(ours.infos["final_obs"], theirs.infos["final_obs"], strict=True):
            assert (mine is None) == (other is None)
            if mine is not None:
                assert (mine.dtype, mine.shape) == (other.dtype, other.shape)
                np.testing.assert_allclose(mine, other, **tolerance)


def assert_kinds(env: VectorEnv, results: Results) -> None:
    """Shapes and dtypes, and that no memory is shared with the environment."""
    n, size = env.num_envs, env.dynamics.observation_size
    assert results.observations.shape == (n, size)
    assert results.observations.dtype == np.float32
    assert results.rewards.shape == results.terminated.shape == results.truncated.shape == (n,)
    assert results.rewards.dtype == env.dtype
    assert results.terminated.dtype == results.truncated.dtype == np.bool_


#: float64 is bit for bit Gymnasium where NumPy's sine and cosine are libm's; elsewhere they differ
#: by an ulp a call, which six steps of Acrobot magnify a hundredfold.
EXACT_ERROR = 1e-13
#: In float32 the states are copied before each step: the error of one step, relative to the
#: largest numbers (Acrobot's velocities, Pendulum's cost).
SINGLE_ERROR = 5e-6


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        (name, mode)
        for name in CLASSIC
        for mode in MODES  # a reset in the same step is another kernel: for each kind of action
        if mode is not AutoresetMode.SAME_STEP or name in ("CartPole-v1", "Pendulum-v1")
    ],
)
def test_behaves_as_gymnasiums_vector_environment(name: str, mode: AutoresetMode) -> None:
    pair, rng = Pair(name, mode, "float64"), np.random.default_rng(1)
    pair.reset(seed=1)
    ends = np.zeros(3, np.int64)
    for step in range(150):
        actions = random_actions(pair.ours, rng)
        if mode is AutoresetMode.NEXT_STEP and pair.pending is not None:
            actions[pair.pending] = -1 if pair.ours.dynamics.is_discrete else np.nan  # ignored
        ours, theirs, fresh = pair.step(actions)
        assert_kinds(pair.ours, ours)
        assert_same_results(ours, theirs, fresh, EXACT_ERROR)
        np.testing.assert_allclose(ours.observations, observe(pair.ours), rtol=0, atol=1e-6)
        both = ours.terminated & ours.truncated
        ends += [ours.terminated.sum(), ours.truncated.sum(), both.sum()]
        if mode is AutoresetMode.DISABLED and ours.done.any():
            before = ours.observations
            observations = pair.reset(reset_mask=ours.done)
            np.testing.assert_array_equal(observations[~ours.done], before[~ours.done])
        elif step in (50, 51):  # a reset in the middle forgets clocks and finished episodes
            pair.reset()
            pair.pending = None
    assert ends[1] > 300
    assert name not in WIDE or (ends > 0).all()


@every_environment
def test_float32_behaves_alike(name: str) -> None:
    """One step after the other from the same states, which must end the same episodes."""
    pair, rng = Pair(name, AutoresetMode.NEXT_STEP, "float32"), np.random.default_rng(2)
    pair.reset(seed=2)
    for _ in range(60):
        ours, theirs, fresh = pair.step(random_actions(pair.ours, rng))
        assert_kinds(pair.ours, ours)
        assert_same_results(ours, theirs, fresh, SINGLE_ERROR)
        pair.copy_states(np.ones(NUM_ENVS, np.bool_))


@every_mode
@every_environment
def test_describes_itself_as_gymnasium_does(name: str, mode: AutoresetMode) -> None:
    pair = Pair(name, mode, "float32")
    ours, theirs = pair.ours, pair.theirs
    for space in ("observation_space", "action_space"):
        for prefix in ("", "single_"):
            assert getattr(ours, prefix + space) == getattr(theirs, prefix + space)
    assert ours.metadata["autoreset_mode"] is theirs.metadata["autoreset_mode"] is mode
    assert ours.metadata["render_fps"] == theirs.metadata["render_fps"]
    assert ours.num_envs == theirs.num_envs == NUM_ENVS
    assert ours.render_mode is theirs.render_mode is None
    assert ours.unwrapped is ours
    assert ours.spec is not None
    assert ours.spec.id == f"rlcpu/{name}"
    text = f"VectorEnv({name}, num_envs=70, dtype=float32, autoreset_mode={mode.value}"
    assert repr(ours).startswith(text)
    observations, _ = ours.reset(seed=0)
    assert ours.observation_space.contains(observations)
    ours.close()
    ours.close()
    assert ours.closed


def test_spaces_are_the_environments_own() -> None:
    """Seeding the spaces of one environment leaves those of another alone."""
    first, second = make("CartPole-v1"), make("CartPole-v1")
    first.single_action_space.seed(3)
    expected = [first.single_action_space.sample() for _ in range(50)]
    first.single_action_space.seed(3)
    drawn = []
    for _ in range(50):
        drawn.append(first.single_action_space.sample())
        second.single_action_space.sample()
    assert drawn == expected


def test_returned_arrays_are_new() -> None:
    env = make("CartPole-v1", num_envs=3)
    env.reset(seed=0)
    actions = np.ones(3, np.int64)
    first, second = Results(*env.step(actions)), Results(*env.step(actions))
    kept = first.observations.copy()
    second.observations[:] = second.rewards[:] = 7
    np.testing.assert_array_equal(first.observations, kept)
    state = env.state
    state[:] = 7
    assert (env.state != 7).all()


# ---------------------------------------------------------------- sizes of the batch


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("num_envs", [1, 63, 64, 70, 200])
def test_an_environment_does_not_depend_on_its_batch(num_envs: int, dtype: str) -> None:
    options: dict[str, Any] = {"dtype": dtype, "max_episode_steps": 9}
    env, alone = (rlcpu.make_vec("MountainCar-v0", n, **options) for n in (num_envs, 1))
    last = num_envs - 1
    first, _ = env.reset(seed=100)
    np.testing.assert_array_equal(first[last], alone.reset(seed=100 + last)[0][0])
    rng = np.random.default_rng(0)
    for _ in range(30):
        actions = rng.integers(0, 3, num_envs)
        many, one = env.step(actions), alone.step(actions[last:])
        for a, b in zip(many[:4], one[:4], strict=True):
            np.testing.assert_array_equal(a[last], b[0])


@pytest.mark.parametrize("num_envs", [70, 4096])
def test_kernels_of_all_sizes_are_exact(num_envs: int) -> None:
    """Serial and parallel float64 kernels give the bits of the plain Python function."""
    env = rlcpu.make_vec("CartPole-v1", num_envs, dtype="float64")
    dynamics, rng = env.dynamics, np.random.default_rng(5)
    states = rng.uniform(-0.2, 0.2, (num_envs, 4))
    actions = rng.integers(0, 2, num_envs)
    env.state = states
    env.step(actions)
    moves = zip(states.tolist(), actions.tolist(), strict=True)
    expected = [dynamics.step(tuple(s), a, dynamics.params)[0] for s, a in moves]
    np.testing.assert_array_equal(env.state, expected)
