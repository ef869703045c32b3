"""The games of this library: kernels do what their plain Python does; ids, copies, pictures."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest

import rlcpu
from rlcpu.envs import find, registration
from rlcpu.envs.contract import registry
from rlcpu.envs.tasks import classic_control
from tests import naive

COPIES = 20
GAMES = [
    name
    for name, family in registry.families.items()
    if not family.package and family is not classic_control.FAMILY
]
every_game = pytest.mark.parametrize("name", GAMES)
#: Those of which no test of their own compares kernels and plain Python.
OWN_TESTS = "Lander|Walker|POPGym|Craftax|NoVel|BitFlip|PointMaze"
COMPARED = [name for name in GAMES if not re.search(OWN_TESTS, name)]


@pytest.mark.parametrize("name", COMPARED)
def test_kernels_step_as_plain_python_does(name: str) -> None:
    """Through ends of episodes, with states, observations and ends exactly equal."""
    env = rlcpu.make_vec(name, COPIES, autoreset_mode="SameStep")
    observations, _ = env.reset(seed=5)
    lanes = [naive.Lane(env, 5 + i) for i in range(COPIES)]
    rng = np.random.default_rng(0)
    for t in range(60):
        expected = np.stack([lane.observe() for lane in lanes])
        np.testing.assert_array_equal(observations, expected, f"{t}")
        assert states(env) == [lane.state for lane in lanes], t
        actions = rng.integers(0, env.dynamics.num_actions, COPIES)
        observations, rewards, terminated, truncated, _ = env.step(actions)
        results = [lane.step(int(a)) for lane, a in zip(lanes, actions, strict=True)]
        np.testing.assert_allclose(rewards, [r["rewards"] for r in results], rtol=1e-6)
        np.testing.assert_array_equal(terminated, [r["terminated"] for r in results])
        np.testing.assert_array_equal(truncated, [r["truncated"] for r in results])


def states(env: Any) -> list[Any]:
    """The states of all environments, as plain Python has them."""
    return env.dynamics.state.to_states(env.engine.get_state())


@every_game
def test_ids_are_known_before_a_game_is_made(name: str) -> None:
    dynamics, spec = find(name), gymnasium.spec(registration.gymnasium_id(name))
    limits = (dynamics.max_episode_steps, dynamics.reward_threshold)
    assert limits == (spec.max_episode_steps, spec.reward_threshold)
    assert find(name) is dynamics is find(f"rlcpu/{name}")
    with pytest.raises(ValueError, match="is an environment of rlcpu"):
        registration.register(dynamics.with_params())


def test_other_processes_find_what_was_pickled() -> None:
    code = (
        "import pickle, sys\n"
        "from rlcpu.envs import find\n"
        "dynamics = pickle.loads(bytes.fromhex(sys.argv[1]))\n"
        "assert dynamics.params.success_rate == 0.5, dynamics.params\n"
        "assert dynamics.step is find('FrozenLake-v1').step\n"
    )
    import pickle

    dynamics = find("FrozenLake-v1").with_params(success_rate=0.5)
    subprocess.run([sys.executable, "-c", code, pickle.dumps(dynamics).hex()], check=True)


def test_games_are_not_imported_before_they_are_asked_for() -> None:
    code = (
        "import sys, rlcpu.envs\n"
        "games = [name for name in sys.modules if name.startswith('rlcpu.envs.tasks.')]\n"
        "assert all(name.count('.') == 3 for name in games), games"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_pictures_are_rendered() -> None:
    env: Any = rlcpu.make_vec("FrozenLake-v1", 3, render_mode="rgb_array", is_slippery=False)
    env.reset(seed=0)
    before = env.render()
    env.step(np.array([2, 1, 0]))
    after = env.render()
    assert len(after) == 3
    picture = env.dynamics.picture
    for frame, state in zip(after, states(env), strict=True):
        np.testing.assert_array_equal(frame, picture(state, env.dynamics.params))
    assert [(a == b).all() for a, b in zip(before, after, strict=True)] == [False, False, True]
    single: Any = gymnasium.make("rlcpu/FrozenLake-v1", render_mode="rgb_array")
    single.reset(seed=0)
    np.testing.assert_array_equal(single.render(), before[0])
    with pytest.raises(ValueError, match="can be rendered as"):
        gymnasium.make("rlcpu/FrozenLake-v1", render_mode="human")
