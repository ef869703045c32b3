"""What a user sees of the library by `dir`, `help` and a type checker."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import rlcpu
from tests import public_names

ROOT = Path(__file__).parents[1]
PARTS = ("envs", "experiments", "nn", "policies", "replay", "scan", "train")
MODULES = ("rlcpu", *(f"rlcpu.{part}" for part in PARTS))
NAMES = [(name, each) for name in MODULES for each in importlib.import_module(name).__all__]


@pytest.mark.parametrize("name", MODULES)
def test_dir_shows_the_public_names_only(name: str) -> None:
    module = importlib.import_module(name)
    assert set(dir(module)) - {"__version__"} == set(module.__all__)
    assert all(hasattr(module, each) for each in module.__all__)


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_help_names_the_arguments(module: str, name: str) -> None:
    found = getattr(importlib.import_module(module), name)
    assert inspect.getdoc(found)
    if inspect.isfunction(found):
        parameters = inspect.signature(found).parameters.values()
        assert all(each.annotation is not each.empty for each in parameters)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("PPO", "rlcpu.train.PPO"),
        ("SumTree", "rlcpu.replay.SumTree"),
        ("MLP", "rlcpu.policies.MLP"),
        ("gae", "rlcpu.scan.gae"),
        ("make", "rlcpu.make_vec"),
        ("polices", "rlcpu.policies"),
        ("PrioritisedReplayBuffer", "rlcpu.replay.PrioritizedReplayBuffer"),
        ("find", "rlcpu.envs.find"),
        ("xyzzy", None),
    ],
)
def test_near_misses_get_a_hint(name: str, place: str | None) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(rlcpu, name)
    hint = f": did you mean {place}?" if place else ""
    assert str(caught.value) == f"module 'rlcpu' has no attribute {name!r}{hint}"


def test_what_tools_look_for_imports_nothing() -> None:
    code = (
        "import sys, rlcpu; "
        "assert not hasattr(rlcpu, '__wrapped__') and not hasattr(rlcpu, '_ipython_display_'); "
        "print({'rlcpu.train', 'rlcpu.replay', 'rlcpu.scan', 'numba'} & sys.modules.keys())"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "set()"


def test_policies_can_be_imported_from_where_they_are_used() -> None:
    code = (
        "from rlcpu.policies import Uniform; import rlcpu; assert rlcpu.policies.Uniform is Uniform"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_names_and_signatures_change_with_a_line_in_the_changelog() -> None:
    """They are those of `public_names.txt`, whose program asks for the line."""
    before = public_names.FILE.read_text("utf-8").splitlines()[1:]
    changed = public_names.changes(before, list(public_names.lines()))
    line = "" if public_names.is_first() else "add a line to CHANGELOG.md and "
    how = f"{line}run python -m tests.public_names"
    assert not changed, "\n".join([how, *changed])


def test_the_list_is_not_written_without_a_line_in_the_changelog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "names.txt"
    monkeypatch.setattr(public_names, "FILE", file)
    news = ["- `collect` is new"]
    monkeypatch.setattr(public_names, "unreleased", lambda: news[-1])
    monkeypatch.setattr(public_names, "is_first", lambda: False)
    monkeypatch.setattr(public_names, "lines", lambda: iter(["rlcpu.collect(env)"]))
    public_names.main()
    monkeypatch.setattr(public_names, "lines", lambda: iter(["rlcpu.collect(env, steps=1)"]))
    with pytest.raises(SystemExit, match="is what it was: add a line"):
        public_names.main()
    news.append("- `gather` is new")
    with pytest.raises(SystemExit, match="nothing unreleased names collect"):
        public_names.main()
    news.append("- `collect` is new, and takes `steps`")
    public_names.main()
    assert file.read_text().splitlines()[1:] == ["rlcpu.collect(env, steps=1)"]
    monkeypatch.setattr(public_names, "is_first", lambda: True)
    monkeypatch.setattr(public_names, "lines", lambda: iter(["rlcpu.gather(env)"]))
    public_names.main()  # everything is new
    assert file.read_text().splitlines()[1:] == ["rlcpu.gather(env)"]


TYPED = """
import numpy as np
import rlcpu
from rlcpu import replay

example = {"observation": np.zeros(4, np.float32)}
reveal_type(replay.SumTree(10))
reveal_type(replay.ReplayBuffer(10, example))
reveal_type(replay.PrioritizedReplayBuffer(10, example))
reveal_type(replay.ReturnWeightedBuffer(10, example))
reveal_type(replay.TrajectoryBuffer(2, 10, example, 5))
reveal_type(replay.PrioritizedTrajectoryBuffer(2, 10, example, 5))
reveal_type(replay.TrajectoryQueue(2, 10, example, 5))
reveal_type(rlcpu.make_vec("CartPole-v1"))
reveal_type(rlcpu.collect(rlcpu.make_vec("CartPole-v1"), rlcpu.policies.Uniform(), 5))
reveal_type(rlcpu.envs.find("CartPole-v1"))
reveal_type(rlcpu.train.PPO("CartPole-v1"))
replay.SumTree(10, sed=1)
rlcpu.PPO
rlcpu.envs.chek
rlcpu.train.DQN("CartPole-v1", seed=1, learning_rate=1e-3, double=False)
rlcpu.train.DQN("CartPole-v1", learnin_rate=1e-3)
rlcpu.train.PQN("CartPole-v1", layer_norm="yes")
rlcpu.train.SAC("Pendulum-v1", tau="slow")
rlcpu.train.TD3("Pendulum-v1", policy_delays=2)
rlcpu.train.DDPG("Pendulum-v1", policy_delays=2)
"""


def test_type_checkers_see_classes_and_find_misspelt_names(tmp_path: Path) -> None:
    file = tmp_path / "user.py"
    file.write_text(TYPED)
    command = [sys.executable, "-m", "mypy", str(file)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert re.findall(r'Revealed type is ".*?(\w+)"', result.stdout) == [
        *("SumTree", "ReplayBuffer", "PrioritizedReplayBuffer", "ReturnWeightedBuffer"),
        *("TrajectoryBuffer", "PrioritizedTrajectoryBuffer", "TrajectoryQueue"),
        *("VectorEnv", "Rollout", "Dynamics", "PPO"),
    ], result.stdout
    errors = re.findall(r"error: (.*?)  \[", result.stdout)
    assert len(errors) == 8, result.stdout
    assert errors[0].startswith('Unexpected keyword argument "sed" for "SumTree"')
    assert errors[1] == 'Module has no attribute "PPO"'
    assert errors[2].startswith('Module has no attribute "chek"')
    assert errors[3].startswith('Unexpected keyword argument "learnin_rate" for "DQN"')
    assert errors[4].startswith('Argument "layer_norm" to "PQN" has incompatible type "str"')
    assert errors[5].startswith('Argument "tau" to "SAC" has incompatible type "str"')
    for error, kind in zip(errors[6:], ("TD3", "DDPG"), strict=True):
        assert error.startswith(f'Unexpected keyword argument "policy_delays" for "{kind}"')


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        (
            "NUMBA_NUM_THREADS",
            "0",
            "ValueError: NUMBA_NUM_THREADS='0': expected a whole number, at",
        ),
        ("NUMBA_NUM_THREADS", "abc", "ValueError: NUMBA_NUM_THREADS='abc': expected a whole numb"),
        (
            "NUMBA_DISABLE_JIT",
            "1",
            "ImportError: NUMBA_DISABLE_JIT='1': nothing of rlcpu runs with",
        ),
        ("NUMBA_DISABLE_JIT", "0", ""),
    ],
)
def test_settings_of_numba_that_cannot_work_are_one_sentence(
    name: str, value: str, sentence: str
) -> None:
    command = [sys.executable, "-W", "error", "-c", "import rlcpu"]
    settings = {**os.environ, name: value}
    result = subprocess.run(command, env=settings, capture_output=True, text=True, check=False)
    assert (result.returncode == 0) == (not sentence)
    assert result.stderr.strip().rpartition("\n")[2].startswith(sentence)
    assert "site-packages" not in result.stderr


@pytest.mark.parametrize("is_script", [True, False])
@pytest.mark.parametrize("setting", ["NUMBA_NUM_THREADS=abc", "NUMBA_DISABLE_JIT=1"])
def test_the_command_prints_such_a_sentence_alone(
    setting: str, is_script: bool, tmp_path: Path
) -> None:
    script = tmp_path / "rlcpu"  # as pip writes it
    script.write_text("import sys\nfrom rlcpu.cli import main\nsys.exit(main())\n")
    command = [sys.executable, *([str(script)] if is_script else ["-m", "rlcpu"]), "info"]
    name, _, value = setting.partition("=")
    settings = {**os.environ, "PYTHONPATH": str(ROOT), name: value}
    result = subprocess.run(command, env=settings, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"rlcpu: error: {name}='{value}': ")
    assert result.stderr.count("\n") == 1


def test_every_seed_below_two_to_the_128_is_taken() -> None:
    def draws(seed: int) -> list[list[float]]:
        tree = rlcpu.replay.SumTree(8, seed=seed)
        tree.update(np.arange(8), np.ones(8))
        buffer = rlcpu.replay.ReplayBuffer(64, {"x": 0.0}, seed=seed)
        buffer.add({"x": np.arange(64.0)})
        policy = rlcpu.policies.MLP(Box(-1.0, 1.0, (4,)), Discrete(2), hidden=(8,), seed=seed)
        agent = rlcpu.train.PPO("CartPole-v1", seed=seed)
        return [
            list(tree.sample(16)),
            list(buffer.sample(16)["x"]),
            list(policy.outputs(np.ones((1, 4))).ravel()),
            list(agent.env.state.ravel()),
            list(agent.evaluate(num_episodes=20, seed=seed)),
        ]

    largest = 2**128 - 1
    for one, same, other in zip(draws(largest), draws(largest), draws(largest - 1), strict=True):
        assert one == same
        assert one != other
