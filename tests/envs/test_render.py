"""Pictures: those that Gymnasium draws of the same state."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

import rlcpu
from rlcpu.envs import find
from tests.envs.rollouts import CLASSIC

every_environment = pytest.mark.parametrize("name", CLASSIC)


def picture(
    name: str, state: np.ndarray, action: np.ndarray | None, **options: float
) -> np.ndarray:
    """Gymnasium's own frame; Pendulum draws the torque of the last action."""
    env = gymnasium.make(name, render_mode="rgb_array").unwrapped
    env.reset()
    for key, value in options.items():
        assert hasattr(env, key)
        setattr(env, key, value)
    env.state = state.astype(np.float64)
    env.last_u = action
    frame = env.render()
    env.close()
    return frame


@every_environment
def test_frames_are_gymnasiums(name: str) -> None:
    env = rlcpu.make_vec(name, 3, dtype="float64", render_mode="rgb_array")
    original = find(name).original
    env.reset(seed=0)
    for state, frame in zip(env.state, env.render(), strict=True):
        np.testing.assert_array_equal(frame, picture(original, state, None))
    env.action_space.seed(0)
    actions = env.action_space.sample()
    env.step(actions)
    frames = env.render()
    assert len(frames) == 3
    for i, frame in enumerate(frames):
        last = actions[i, 0] if env.dynamics.action_size else None
        expected = picture(original, env.state[i], last)
        assert (frame.dtype, frame.shape) == (np.uint8, expected.shape)
        np.testing.assert_array_equal(frame, expected)
    assert len({frame.tobytes() for frame in frames}) > 1
    env.close()
    env.close()


@every_environment
def test_single_environment_is_drawn_alike(name: str) -> None:
    env = gymnasium.make(f"rlcpu/{name}", render_mode="rgb_array")
    env.reset(seed=0)
    frame = env.render()
    np.testing.assert_array_equal(frame, picture(find(name).original, env.unwrapped.state, None))
    assert env.metadata["render_fps"] == gymnasium.make(find(name).original).metadata["render_fps"]
    env.close()


@every_environment
def test_frames_are_collected(name: str) -> None:
    """Mode "rgb_array_list", by Gymnasium's own wrapper."""
    env = gymnasium.make(f"rlcpu/{name}", render_mode="rgb_array_list")
    frames = []
    for each in (env, gymnasium.make(env.spec)):
        each.reset(seed=0)
        each.action_space.seed(0)
        for _ in range(2):
            each.step(each.action_space.sample())
        frames.append(each.render())
    assert [frame.dtype for frame in frames[0]] == [np.uint8] * 3
    np.testing.assert_array_equal(frames[0], frames[1])
    assert env.render() == []


@every_environment
def test_window_shows_every_state(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mode "human" draws what "rgb_array" returns, at the pace of the original."""
    pygame = pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    env = gymnasium.make(f"rlcpu/{name}", render_mode="human")
    twin = gymnasium.make(f"rlcpu/{name}", render_mode="rgb_array")
    shown = []
    monkeypatch.setattr(
        pygame.display, "flip", lambda: shown.append(pygame.surfarray.array3d(screen()))
    )
    screen = pygame.display.get_surface
    env.action_space.seed(0)
    for each in (env, twin):
        each.reset(seed=0)
    for _ in range(3):
        np.testing.assert_array_equal(shown[-1].swapaxes(0, 1), twin.render())
        action = env.action_space.sample()
        env.step(action)
        twin.step(action)
    assert len(shown) == 4
    assert env.render() is None
    env.close()
    assert screen() is None


def test_modes_that_there_are_not() -> None:
    with pytest.raises(ValueError, match=r"render_mode='human': CartPole-v1 .* \['rgb_array'\]"):
        rlcpu.make_vec("CartPole-v1", render_mode="human")
    with (
        pytest.raises(ValueError, match="render_mode='ansi': CartPole-v1 can be rendered as"),
        pytest.warns(UserWarning, match="not in the possible render_modes"),
    ):
        gymnasium.make("rlcpu/CartPole-v1", render_mode="ansi")


def test_torque_beyond_its_bounds_is_drawn_as_it_acts() -> None:
    env = rlcpu.make_vec("Pendulum-v1", 1, dtype="float64", render_mode="rgb_array")
    env.reset(seed=0)
    env.step(np.full((1, 1), -9.0, np.float32))
    np.testing.assert_array_equal(env.render()[0], picture("Pendulum-v1", env.state[0], -2.0))


def test_parameters_are_drawn() -> None:
    env = rlcpu.make_vec("CartPole-v1", 1, length=1.0, render_mode="rgb_array")
    env.reset(seed=0)
    np.testing.assert_array_equal(
        env.render()[0], picture("CartPole-v1", env.state[0], None, length=1.0)
    )
    env = rlcpu.make_vec("Acrobot-v1", 1, link_length_1=0.5, render_mode="rgb_array")
    env.reset(seed=0)
    np.testing.assert_array_equal(
        env.render()[0], picture("Acrobot-v1", env.state[0], None, LINK_LENGTH_1=0.5)
    )


def test_without_a_mode_there_is_no_picture() -> None:
    env = rlcpu.make_vec("CartPole-v1", 2)
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="CartPole-v1 was made without a render mode"):
        assert env.render() is None


def test_environment_without_an_original_has_no_picture() -> None:
    import dataclasses

    own = dataclasses.replace(find("CartPole-v1"), id="Own-v0", original=None)
    assert rlcpu.make_vec(own).metadata["render_fps"] == 30
    with pytest.raises(ValueError, match="render_mode='rgb_array': Own-v0 can be rendered as None"):
        rlcpu.make_vec(own, render_mode="rgb_array")
