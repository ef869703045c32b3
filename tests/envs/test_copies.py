"""Copies by `copy.deepcopy` and `pickle`, which go on as the original does, on their own."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import rlcpu
from rlcpu.envs.contract import registry
from rlcpu.envs.engine.vector_env import VectorEnv
from rlcpu.envs.tasks.classic_control import cartpole
from tests.envs.rollouts import Lean, lean

#: More than a block of 64, and the last block is not full.
NUM_ENVS = 70
WAYS = {"deepcopy": copy.deepcopy, "pickle": lambda env: pickle.loads(pickle.dumps(env))}
each_way = pytest.mark.parametrize("copied", WAYS.values(), ids=WAYS)


def play(env: Any, num_steps: int = 20) -> list[Any]:
    """What some steps of actions drawn from the environment's own space lead to."""
    results: list[Any] = []
    for _ in range(num_steps):
        observations, rewards, terminated, truncated, infos = env.step(env.action_space.sample())
        results += [observations, rewards, terminated, truncated]
        results += [each for each in infos.get("final_obs", ()) if each is not None]
        if env.spec is not None and (np.all(terminated) or np.all(truncated)):
            results.append(env.reset()[0])
    return results


def assert_same(ours: list[Any], theirs: list[Any]) -> None:
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, other)


def started(mode: AutoresetMode, **options: Any) -> VectorEnv:
    """Environments some steps after their reset, with spaces that have been sampled from."""
    limit = None if mode is AutoresetMode.DISABLED else 7
    options = {"max_episode_steps": limit, **options}
    env = rlcpu.make_vec("Pendulum-v1", NUM_ENVS, autoreset_mode=mode, **options)
    env.reset(seed=4)
    env.action_space.seed(5)
    play(env, 10)
    return env


@each_way
@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.value)
def test_environments_go_on_bit_for_bit(mode: AutoresetMode, copied: Any) -> None:
    """With random streams, clocks, episodes that wait for their reset, and seeds of the spaces."""
    env = started(mode, mass=0.8)
    twin, third = copied(env), copied(env)
    assert type(twin) is VectorEnv
    assert (repr(twin), twin.spec, twin.dtype) == (repr(env), env.spec, env.dtype)
    expected = play(env)
    assert_same(play(twin), expected)
    policy = rlcpu.policies.Uniform()
    rollouts = [rlcpu.collect(each, policy, 20) for each in (env, twin)]
    assert_same(*([each.observations, each.rewards] for each in rollouts))
    assert_same(play(third), expected)  # which the steps of the others have left alone


@each_way
def test_copies_of_what_has_no_episode_yet(copied: Any) -> None:
    env = copied(rlcpu.make_vec("CartPole-v1", 3))
    with pytest.raises(gymnasium.error.ResetNeeded):
        _ = env.state
    assert_same([env.reset(seed=1)[0]], [rlcpu.make_vec("CartPole-v1", 3).reset(seed=1)[0]])


@each_way
@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_single_environments_go_on_bit_for_bit(name: str, copied: Any) -> None:
    """With all of Gymnasium's wrappers, also where an episode has just ended."""
    env = gymnasium.make(f"rlcpu/{name}", max_episode_steps=30, render_mode="rgb_array")
    env.reset(seed=0)
    env.action_space.seed(1)
    play(env, 25)
    env.render()
    twin, third = copied(env), copied(env)
    expected = play(env, 50)
    assert_same(play(twin, 50), expected)
    np.testing.assert_array_equal(env.render(), twin.render())
    assert_same(play(third, 50), expected)


def policies(env: VectorEnv) -> list[Any]:
    spaces = env.single_observation_space, env.single_action_space
    kinds = rlcpu.policies
    own = kinds.Scalar(lean, Lean(), 2)
    return [kinds.Uniform(), kinds.Linear(*spaces, seed=3), kinds.MLP(*spaces), own]


@each_way
@pytest.mark.parametrize("kind", range(4))
def test_policies_act_alike(kind: int, copied: Any) -> None:
    env = rlcpu.make_vec("CartPole-v1" if kind != 1 else "Acrobot-v1", NUM_ENVS)
    env.reset(seed=0)
    policy = policies(env)[kind]
    rlcpu.collect(env, policy, 3)
    twin, other = copy.deepcopy(env), copied(policy)
    ours, theirs = rlcpu.collect(env, policy, 20), rlcpu.collect(twin, other, 20)
    assert_same([ours.actions, ours.observations], [theirs.actions, theirs.observations])
    if kind in (1, 2):
        other.parameters[:] = 0.0
        assert policy.parameters.any()


def test_another_process_goes_on(tmp_path: Path) -> None:
    """As `multiprocessing` does when it spawns: pickled here, loaded there."""
    env = started(AutoresetMode.NEXT_STEP)
    single = gymnasium.make("rlcpu/CartPole-v1")
    single.reset(seed=0)
    (tmp_path / "envs").write_bytes(pickle.dumps((env, single, cartpole.DYNAMICS)))
    code = (
        "import pickle, sys\n"
        "path = sys.argv[1]\n"
        "env, single, dynamics = pickle.load(open(path + '/envs', 'rb'))\n"
        "results = [*env.step(env.action_space.sample())[:4], single.step(1)[0], dynamics.params]\n"
        "pickle.dump(results, open(path + '/results', 'wb'))\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code, str(tmp_path)], check=True)
    results = pickle.loads((tmp_path / "results").read_bytes())
    expected = [*env.step(env.action_space.sample())[:4], single.step(1)[0]]
    assert_same(results, [*expected, cartpole.DYNAMICS.params])


# ---------------------------------------------------------------- Dynamics


def test_dynamics_are_made_again_by_the_names_of_their_functions() -> None:
    moon = cartpole.DYNAMICS.with_params(gravity=1.6)
    again = pickle.loads(pickle.dumps(moon))
    assert again.step is moon.step
    for field in dataclasses.fields(moon):
        assert getattr(again, field.name) == getattr(moon, field.name)
    assert copy.deepcopy(moon) is copy.copy(moon) is moon


class Push(NamedTuple):
    force: float = 1.0


def own(**changes: Any) -> rlcpu.Dynamics:
    fields: dict[str, Any] = {"step": stay, "reset": draw, "params": Push(), "reset_draws": 4}
    return dataclasses.replace(cartpole.DYNAMICS, id="Own-v0", reset_options={}, **fields | changes)


def stay(state: Any, action: int, params: Any) -> tuple[Any, float, bool]:
    return state, 1.0, False


def draw(uniforms: Any, params: Any) -> Any:
    return uniforms


def make_step() -> Any:
    def step(state: Any, action: int, params: Any) -> tuple[Any, float, bool]:
        return state, 1.0, False

    return step


def make_params() -> Any:
    class Local(NamedTuple):
        force: float = 1.0

    return Local()


def test_other_limits_of_a_registered_environment_travel() -> None:
    """The registered one would be found by its functions, and has limits of its own."""
    short = dataclasses.replace(cartpole.DYNAMICS, max_episode_steps=10, reward_threshold=9.0)
    again = pickle.loads(pickle.dumps(short))
    assert (again.max_episode_steps, again.reward_threshold) == (10, 9.0)
    assert not short.is_registered


def test_registered_environments_with_other_parameters_are_told() -> None:
    for name in ("CartPole-v1", "MinAtar/Breakout-v1", "FrozenLake-v1", "Hopper-v5"):
        dynamics = rlcpu.envs.find(name)
        numbers = {k: v for k, v in dynamics.params._asdict().items() if type(v) is float}
        assert dynamics.with_params(**numbers).is_registered


@pytest.mark.parametrize(
    ("field", "value", "name"),
    [
        ("step", make_step(), r"make_step\.<locals>\.step"),
        ("reset", lambda uniforms, params: uniforms, "<lambda>"),
        ("params", make_params(), r"make_params\.<locals>\.Local"),
    ],
)
def test_what_pickle_cannot_find_by_name_is_said(field: str, value: Any, name: str) -> None:
    assert pickle.loads(pickle.dumps(own())).step is stay
    dynamics = own(**{field: value})
    message = rf"^Own-v0: {field} is .*{name}, which pickle cannot find .* top level of a module"
    with pytest.raises(pickle.PicklingError, match=message):
        pickle.dumps(rlcpu.make_vec(dynamics, 2))
    assert copy.deepcopy(rlcpu.make_vec(dynamics, 2)).dynamics is dynamics


def first_four(state: Any, params: Any) -> Any:
    return state[0], state[1], state[2], state[3]


def test_state_of_another_size_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module may have changed since."""
    dynamics = own()
    monkeypatch.setitem(registry.made, "Own-v0", dynamics)
    pickled = pickle.dumps(VectorEnv(dynamics, 2))
    monkeypatch.setitem(registry.made, "Own-v0", own(reset_draws=5, observe=first_four))
    with pytest.raises(ValueError, match=r"Own-v0 had a state of 4 floats when it was .* has 5"):
        pickle.loads(pickled)
