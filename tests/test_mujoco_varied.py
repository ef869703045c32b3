"""Fields of the model that differ between simulations, or are drawn at each reset."""

from __future__ import annotations

import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
import scipy.stats

import rlcpu

mujoco = pytest.importorskip("mujoco")

from rlcpu.envs.engine.scalar_env import ScalarEnv  # noqa: E402
from rlcpu.envs.mujoco import MuJoCoDynamics  # noqa: E402
from rlcpu.policies import MLP  # noqa: E402
from tests.envs.samples import pole  # noqa: E402

HOPPER = "Hopper-v5"


def state_of(model: Any, env: Any, i: int) -> Any:
    """A simulation of a model, where environment i is."""
    data = mujoco.MjData(model)
    mujoco.mj_setState(model, data, env.state[i], mujoco.mjtState.mjSTATE_INTEGRATION)
    mujoco.mj_forward(model, data)
    return data


def test_steps_are_those_of_gymnasium_with_the_same_models() -> None:
    model = rlcpu.envs.find(HOPPER).model
    mass = model.body_mass * np.array([1.0, 2.0, 0.7])[:, None]
    gravity = np.array([[0.0, 0.0, -9.81], [0.0, 0.0, -3.7], [0.5, 0.0, -9.0]])
    options: dict[str, Any] = {"body_mass": mass, "gravity": gravity, "dof_damping": [2.0] * 6}
    env = rlcpu.make_vec(
        HOPPER, 3, dtype="float64", num_threads=2, autoreset_mode="Disabled", **options
    )
    env.reset(seed=0)
    others: list[Any] = [gymnasium.make(HOPPER).unwrapped for _ in range(3)]
    for i, other in enumerate(others):
        other.reset()
        other.model.body_mass[:] = mass[i]
        other.model.opt.gravity[:] = gravity[i]
        other.model.dof_damping[:] = 2.0
        mujoco.mj_setConst(other.model, mujoco.MjData(other.model))
    rng, ended, resets = np.random.default_rng(0), np.ones(3, bool), 0
    for _ in range(300):
        if ended.any():
            env.reset(options={"reset_mask": ended})
        for i in np.flatnonzero(ended):
            mujoco.mj_resetData(others[i].model, others[i].data)
            data = state_of(others[i].model, env, i)
            others[i].set_state(data.qpos, data.qvel)
            resets += 1
        actions = rng.uniform(-1, 1, (3, 3)).astype(np.float32)
        seen, rewards, ended, _, _ = env.step(actions)
        for i in range(3):
            theirs, reward, end, _, _ = others[i].step(actions[i])
            np.testing.assert_array_equal(seen[i], theirs)
            assert rewards[i] == reward
            assert ended[i] == end
    assert resets > 6


def randomize(rng, model, params):
    model.body_mass[1] *= 0.5 + rng.uniform(0)
    model.gravity[2] = -10.0 * rng.uniform(1)
    model.density[0] = 2.0


def network(env: Any) -> MLP:
    """Return a policy whose function is that of all networks, and compiled for other tests."""
    return MLP(env.single_observation_space, env.single_action_space, (8,), seed=1)


RANDOMIZED = {"randomize": randomize, "randomized": ("body_mass", "gravity", "density")}


def drawn(env: Any) -> Any:
    """Masses of carts, (num_envs,)."""
    return env.engine.model_rows[:, 1] / env.dynamics.model.body_mass[1]


def test_a_model_is_drawn_anew_at_each_reset() -> None:
    env = rlcpu.make_vec(pole(**RANDOMIZED), 256, dtype="float64")
    env.reset(seed=0)
    first = drawn(env)
    assert scipy.stats.kstest(first, "uniform", (0.5, 1.0)).pvalue > 0.01
    env.step(np.zeros((256, 1), np.float32))
    np.testing.assert_array_equal(drawn(env), first)
    mask = np.arange(256) % 2 == 0
    env.reset(options={"reset_mask": mask})
    np.testing.assert_array_equal(drawn(env) != first, mask)
    # A simulation of a model with the same numbers goes the same way.
    model = pole().model
    model.body_mass[1] *= drawn(env)[0]
    model.opt.gravity[2] = env.engine.model_rows[0, 3 + 2]
    model.opt.density = 2.0
    mujoco.mj_setConst(model, mujoco.MjData(model))
    data = state_of(model, env, 0)
    for _ in range(10):
        seen = env.step(np.full((256, 1), 0.5, np.float32))[0][0]
        data.ctrl[:] = 0.5
        mujoco.mj_step(model, data, 2)
        np.testing.assert_array_equal(seen, [*data.qpos, *data.qvel])


def test_threads_and_calls_do_not_change_what_is_drawn() -> None:
    results = []
    for num_threads, calls in ((1, [120]), (2, [70, 50])):
        env = rlcpu.make_vec(pole(**RANDOMIZED), 6, dtype="float64", num_threads=num_threads)
        env.reset(seed=3)
        policy = network(env)
        rollouts = [rlcpu.collect(env, policy, count) for count in calls]
        env = pickle.loads(pickle.dumps(env))
        rollouts.append(rlcpu.collect(env, policy, 10))
        results.append(np.concatenate([r.observations for r in rollouts]))
        results.append(env.engine.model_rows)
    np.testing.assert_array_equal(results[0], results[2])
    np.testing.assert_array_equal(results[1], results[3])


def test_a_snapshot_keeps_the_models() -> None:
    env = rlcpu.make_vec(pole(**RANDOMIZED), 3, dtype="float64")
    env.reset(seed=0)
    kept, action = env.snapshot(), np.ones((3, 1), np.float32)
    first = env.step(action)[0]
    env.reset(seed=1)
    assert not np.array_equal(env.step(action)[0], first)
    env.restore(kept)
    np.testing.assert_array_equal(env.step(action)[0], first)


def test_params_show_the_fields_that_vary() -> None:
    given = pole(**RANDOMIZED).with_params(body_mass=[[0, 1, 2], [0, 3, 4]], noise=0.5)
    env: Any = rlcpu.make_vec(given, 2, dtype="float64")
    env.reset(seed=0)
    params = env.params
    assert params._fields == (*env.dynamics.params._fields, *RANDOMIZED["randomized"])
    assert params.noise == 0.5
    masses = np.array([[0, 1, 2], [0, 3, 4]]) * [[1, x, 1] for x in params.body_mass[:, 1] / [1, 3]]
    np.testing.assert_array_equal(params.body_mass, masses)
    assert (params.body_mass[:, 1] / [1, 3] < 1.5).all()
    assert params.gravity.shape == (2, 3)
    assert (np.abs(params.gravity[:, 2] + 5) < 5).all()
    assert params.density.tolist() == [2.0, 2.0]
    params.body_mass[:] = 0.0  # a copy
    np.testing.assert_array_equal(env.body_mass, masses)
    with pytest.raises(AttributeError, match="body_mass cannot be set: make another environment"):
        env.body_mass = masses
    assert "body_mass=varied" in repr(rlcpu.make_vec(pole().with_params(body_mass=masses), 2))
    alone = ScalarEnv(pole().with_params(body_mass=masses[:1]))
    alone.reset(seed=0)
    assert alone.params.body_mass.tolist() == masses[0].tolist()


def test_fields_go_round_and_settings_make_the_same() -> None:
    given = pole().with_params(body_mass=[[0, 1, 2], [0, 3, 4]], noise=0.5)
    np.testing.assert_array_equal(given.resized(3).varied["body_mass"][:, 1], [1.0, 3.0, 1.0])
    assert given.resized(3, 1).settings()["body_mass"] == [[0, 3, 4], [0, 1, 2], [0, 3, 4]]
    again = pole().with_params(**given.settings())
    np.testing.assert_array_equal(again.varied["body_mass"][:, 2], [2.0, 4.0])
    same = pole().with_params(body_mass=[0, 5, 6])  # of all: a model, and no field that varies
    assert same.model.body_mass.tolist() == [0, 5, 6]
    assert same.model.body_subtreemass.tolist() == [11, 11, 6]
    assert not same.varied_fields.fields
    copied = pickle.loads(pickle.dumps(pole().with_params(frame_skip=3, gravity=[0, 0, -1])))
    assert copied.settings()["frame_skip"] == 3
    assert copied.model.opt.gravity.tolist() == copied.settings()["gravity"] == [0, 0, -1]
    assert pole(**RANDOMIZED).with_params(noise=0.5).varied_fields.drawn == RANDOMIZED["randomized"]


def write_nan(rng, model, params):
    model.gravity[0] = math_nan


math_nan = float("nan")


def write_negative(rng, model, params):
    model.body_mass[1] = -1.0


def write_rarely_bad(rng, model, params):
    model.body_mass[1] = 1.0 if rng.uniform(0) < 0.99 else -2.5


def test_bad_numbers_that_are_drawn_are_refused() -> None:
    """Few of them, so that no trial meets one; in the midst of many steps too."""
    rare = pole(randomize=write_rarely_bad, randomized=("body_mass",))
    sentence = (
        r"randomize wrote body_mass that holds -2\.5: expected .* not negative, in environment"
    )
    env = rlcpu.make_vec(rare, 1000)
    with pytest.raises(ValueError, match=sentence):
        env.reset(seed=0)
    assert (env.engine.model_rows[:, 1] >= 0.0).all()

    env = rlcpu.make_vec(rare, 1, dtype="float64", max_episode_steps=2)
    env.reset(seed=0)
    with pytest.raises(ValueError, match=sentence):
        rlcpu.simulate(env, network(env), 3000)
    env.reset()  # it goes on
    assert env.engine.model_rows[0, 1] == 1.0


@pytest.mark.parametrize(
    ("changes", "kind", "text"),
    [
        ({"body_mass": [1.0, 2.0]}, ValueError, r"body_mass has shape \(2,\): expected \(3,\), or"),
        ({"body_mass": [0.0, 1.0, np.nan]}, ValueError, "body_mass holds NaN"),
        ({"body_parentid": [0, 0, 0]}, ValueError, "no field of mjModel or mjOption that holds"),
        ({"timestep": 0.1}, ValueError, "timestep is a constant"),
        ({"body_ipos": np.ones((2, 3, 3))}, ValueError, "body_ipos decides .*sameframe"),
        ({"body_weight": 1.0}, TypeError, "no parameter body_weight; .*fields of mjModel"),
    ],
)
def test_bad_fields_are_refused(changes: Any, kind: type, text: str) -> None:
    with pytest.raises(kind, match=text):
        pole().with_params(**changes)


def test_bad_randomizations_are_refused() -> None:
    with pytest.raises(ValueError, match="expected the fields that randomize writes"):
        pole(randomize=randomize)
    with pytest.raises(ValueError, match="randomize wrote gravity"):
        pole(randomize=write_nan, randomized=("gravity",))
    with pytest.raises(ValueError, match="randomize wrote body_mass that holds -1"):
        pole(randomize=write_negative, randomized=("body_mass",))
    with pytest.raises(ValueError, match=r"body_mass has shape \(2, 3\): expected \(4, 3\)"):
        rlcpu.make_vec(pole().with_params(body_mass=np.ones((2, 3))), 4)
    assert isinstance(pole(), MuJoCoDynamics)
