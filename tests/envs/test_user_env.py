"""A user's own environment: from a module, a script, and a notebook's cell; edited and wrong."""

from __future__ import annotations

import dataclasses
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import gymnasium
import nbclient
import nbformat
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import rlcpu
from rlcpu.policies import Uniform
from tests import naive

#: Imported by the environment: editing it must take effect, too.
PHYSICS = """
def rise(height, speed, gravity):
    return height + 0.1 * speed, speed - 0.1 * gravity
"""
#: A ball that is pushed up, with a noise of its own and an option.
BALL = '''
"""Keep a ball in the air."""

import math
from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box

import rlcpu
from rlcpu.envs import Dynamics

import physics

TOP = 3.0
SHARE = 0.5


class Params(NamedTuple):
    gravity: float = 9.8
    noise: float = 0.5
    bounce: bool = False


def step(state, action, params, uniforms):
    height, speed = physics.rise(state[0], state[1], params.gravity)
    speed = speed + 4.0 * action[0] + params.noise * (uniforms[0] - SHARE)
    speed = abs(speed) if params.bounce and height < 0.0 else speed
    return (height, speed), -math.fabs(height - TOP), height < 0.0 or height > 2.0 * TOP


def reset(uniforms, params):
    return TOP + uniforms[0] - 0.5, 0.0


ball = Dynamics(
    id="Ball-v0",
    step=step,
    reset=reset,
    reset_draws=1,
    step_draws=1,
    params=Params(),
    observation_space=Box(-np.inf, np.inf, (2,), np.float32),
    action_space=Box(-1.0, 1.0, (1,), np.float32),
    max_episode_steps=20,
)
rlcpu.register(ball)
'''
#: What a user does with it.
USE = """
env = rlcpu.make_vec("Ball-v0", 5, dtype="float64")
env.reset(seed=2)
rollout = rlcpu.collect(env, rlcpu.policies.Uniform(), 40)
print("result", rollout.rewards.sum(), rollout.terminated.sum(), env.state.sum())
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the environment's modules, which are imported from there."""
    (tmp_path / "physics.py").write_text(PHYSICS)
    (tmp_path / "ball.py").write_text(BALL)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("ball", "physics"):
        sys.modules.pop(name, None)
    rlcpu.envs.contract.registry.made.pop("Ball-v0", None)
    gymnasium.registry.pop("rlcpu/Ball-v0", None)


def run(folder: Path, *argv: str) -> list[float]:
    """The numbers that a Python process prints, which must warn of nothing."""
    path = os.pathsep.join((str(folder), *filter(None, sys.path)))
    result = subprocess.run(
        [sys.executable, "-W", "error", *argv],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return parse(result.stdout)


def parse(output: str) -> list[float]:
    match = re.search(r"^result (.*)$", output, re.MULTILINE)
    assert match, output
    return [float(number) for number in match[1].split()]


def expected(module: ModuleType) -> list[float]:
    """The numbers by plain Python."""
    env = rlcpu.make_vec(module.ball, 5, dtype="float64")
    rollout = naive.collect(env, Uniform(), 40, range(2, 7))
    return [rollout["rewards"].sum(), rollout["terminated"].sum()]


def test_module_script_and_cell_give_the_same(folder: Path) -> None:
    import ball  # type: ignore[import-not-found]

    plain = expected(ball)
    assert plain[1] > 5
    (folder / "script.py").write_text(BALL + USE)
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source) for source in (BALL, USE)]
    )
    resources = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(notebook, timeout=300, resources=resources).execute()
    results = [
        run(folder, "-c", f"import ball, rlcpu\n{USE}"),
        run(folder, "script.py"),
        parse("".join(o["text"] for o in notebook.cells[1].outputs if o.get("name") == "stdout")),
    ]
    assert results[0] == results[1] == results[2]
    np.testing.assert_allclose(results[0][:2], plain, rtol=1e-12)


STEPS = """
env = rlcpu.make_vec("Ball-v0", 5, dtype="float64", autoreset_mode="SameStep")
env.reset(seed=2)
print("result", sum(env.step([[0.1 * i]] * 5)[1].sum() for i in range(9)))
"""


def nine_steps(module: ModuleType) -> float:
    """The number that `STEPS` prints, by plain Python."""
    env = rlcpu.make_vec(module.ball, 5, dtype="float64")
    lanes = [naive.Lane(env, seed) for seed in range(2, 7)]
    actions = [(float(np.float32(0.1 * i)),) for i in range(9)]
    return sum(lane.step(action)["rewards"] for action in actions for lane in lanes)


def test_edits_take_effect_in_the_next_process(folder: Path) -> None:
    """In the file itself, and in a module that it imports: machine code on disk is not reused."""
    results = []
    for physics, ball in (
        (PHYSICS, BALL),
        (PHYSICS.replace("0.1 * gravity", "0.05 * gravity"), BALL),
        (PHYSICS, BALL.replace("SHARE = 0.5", "SHARE = 0.6")),
    ):
        (folder / "physics.py").write_text(physics)
        (folder / "ball.py").write_text(ball)
        results += run(folder, "-c", f"import ball, rlcpu\n{STEPS}")
    assert len(set(results)) == 3
    importlib.invalidate_caches()
    assert results[-1] == pytest.approx(nine_steps(importlib.import_module("ball")), rel=1e-12)


def test_edits_take_effect_when_registered_again(folder: Path) -> None:
    module = importlib.import_module("ball")
    first = step_here()
    source = BALL.replace("4.0 * action", "2.0 * action")
    exec(compile(source, str(folder / "ball.py"), "exec"), vars(module))
    second = step_here()
    assert first != second
    assert second == pytest.approx(nine_steps(module), rel=1e-12)
    assert rlcpu.registered().count("Ball-v0") == 1


def test_a_constant_changed_since_takes_effect_in_the_next_environment(folder: Path) -> None:
    """The functions are the same objects; an environment keeps the code it was made with."""
    module = importlib.import_module("ball")
    before = rlcpu.make_vec("Ball-v0", 5, dtype="float64", autoreset_mode="SameStep")
    first = step_here()
    module.SHARE = 0.6
    second = step_here()
    assert second == pytest.approx(nine_steps(module), rel=1e-12)
    before.reset(seed=2)
    assert first == sum(before.step([[0.1 * i]] * 5)[1].sum() for i in range(9)) != second


def test_equal_code_shares_kernels(folder: Path) -> None:
    """Whatever the environment's name, and however often its file is executed."""
    module = importlib.import_module("ball")
    same = rlcpu.make_vec(dataclasses.replace(module.ball, id="Other-v0"), 3)
    assert same.engine.code is rlcpu.make_vec("Ball-v0", 5).engine.code
    exec(compile(BALL, str(folder / "ball.py"), "exec"), vars(module))
    assert same.engine.code.step is rlcpu.make_vec("Ball-v0", 5).engine.code.step


def step_here() -> float:
    env = rlcpu.make_vec("Ball-v0", 5, dtype="float64", autoreset_mode="SameStep")
    env.reset(seed=2)
    return sum(env.step([[0.1 * i]] * 5)[1].sum() for i in range(9))


def test_gymnasium_knows_it(folder: Path) -> None:
    env = gymnasium.make_vec("ball:rlcpu/Ball-v0", num_envs=3, gravity=1.0)
    assert env.dynamics.params.gravity == 1.0
    assert env.max_episode_steps == 20
    env.reset(seed=0)
    assert env.step(np.zeros((3, 1), np.float32))[0].shape == (3, 2)
    single = gymnasium.make("rlcpu/Ball-v0", bounce=True)
    single.reset(seed=0)
    assert single.step(np.zeros(1, np.float32))[0].shape == (2,)


def test_parameters_by_name(folder: Path) -> None:
    importlib.import_module("ball")
    env = rlcpu.make_vec("Ball-v0", 3, gravity=0.0, noise=0.0)
    env.state = [[1.0, 2.0], [2.0, 1.0], [0.1, -2.0]]
    actions = np.zeros((3, 1), np.float32)
    assert env.step(actions)[2].tolist() == [False, False, True]
    np.testing.assert_allclose(env.state, [[1.2, 2.0], [2.1, 1.0], [-0.1, -2.0]], rtol=1e-6)
    env = rlcpu.make_vec("Ball-v0", 3, gravity=0.0, noise=0.0, bounce=True)
    env.state = [[1.0, 2.0], [2.0, 1.0], [0.1, -2.0]]
    env.step(actions)
    np.testing.assert_allclose(env.state, [[1.2, 2.0], [2.1, 1.0], [-0.1, 2.0]], rtol=1e-6)
    with pytest.raises(TypeError, match="Ball-v0 has no parameter weight; it has: gravity, noise"):
        rlcpu.make_vec("Ball-v0", 3, weight=1.0)


@pytest.mark.parametrize(
    ("old", "new", "error", "message"),
    [
        ("return (height, speed), -", "return (height,), -", ValueError, "returned 1: "),
        ("return (height, speed), -", "return height, -", TypeError, "new_state as a tuple"),
        ("-math.fabs(height - TOP)", "None", TypeError, "step has to return reward as a number"),
        ("height < 0.0 or height > 2.0 * TOP", "0", TypeError, "terminated as a bool"),
        ("step_draws=1", "step_draws=0", TypeError, r"step has to take \(state, action, params\)"),
        ("reset_draws=1", "reset_draws=0", ValueError, "reset raised IndexError"),
    ],
)
def test_faults_are_found_when_it_is_defined(
    folder: Path, old: str, new: str, error: type[Exception], message: str
) -> None:
    assert BALL.count(old) == 1
    (folder / "ball.py").write_text(BALL.replace(old, new))
    with pytest.raises(error, match=f"Ball-v0: .*{message}"):
        importlib.import_module("ball")
    assert "Ball-v0" not in rlcpu.registered()


def test_what_computes_in_float64_is_named_by_its_line(folder: Path) -> None:
    """A reset says it, too: one function of the environment is compiled for both."""
    source = BALL.replace("4.0 * action[0]", "np.float64(action[0])")
    (folder / "ball.py").write_text(f"import numpy as np\n{source}")
    importlib.import_module("ball")
    env = rlcpu.make_vec("Ball-v0", 3)
    line = 2 + source[: source.index("np.float64")].count("\n")
    for _ in range(2):
        with pytest.raises(TypeError, match=rf"line {line}, in step: `speed = speed \+ np.float64"):
            env.reset(seed=0)


def test_parallel_is_serial(folder: Path) -> None:
    importlib.import_module("ball")
    states: list[Any] = []
    for num_threads in (1, 2):
        env = rlcpu.make_vec("Ball-v0", 20_000, num_threads=num_threads)
        env.reset(seed=0)
        for step in range(10):
            env.step(np.full((20_000, 1), np.sin(step), np.float32))
        states.append(env.state)
    np.testing.assert_array_equal(*states)


class Halved(NamedTuple):
    place: float


def halved(state: Halved, action: int, params: Any) -> Any:
    half = np.float64(state.place)
    if action == 1:
        return state, 0.0, False
    return Halved(half), 0.0, False


def test_float64_in_one_of_two_results_is_named_at_the_line_that_makes_it() -> None:
    class Nothing(NamedTuple):
        pass

    dynamics = rlcpu.Dynamics(
        id="Halved-v0",
        step=halved,
        reset=lambda rng, params: Halved(rng.uniform()),
        observation_space=Box(-1.0, 1.0, (1,), np.float32),
        observe=lambda state, params: (state.place,),
        action_space=Discrete(2),
        params=Nothing(),
    )
    env = rlcpu.make_vec(dynamics, 4, num_threads=1)
    line = halved.__code__.co_firstlineno + 1
    where = f"line {line}, in halved: `half = .* computes half in float64"
    with pytest.raises(TypeError, match=where):
        env.reset(seed=0)
