"""First lines of users of stable-baselines3 and CleanRL are answered with what to write."""

from __future__ import annotations

import dataclasses
import functools
import operator
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box

import rlcpu
from rlcpu import cli
from rlcpu.cli.commands import build_parser
from rlcpu.train import DQN, PPO, SAC, TD3, PPOConfig
from rlcpu.translation import ANSWERS, COMMANDS, NAMES, OPTIONS


@functools.cache
def agent(kind: Any = PPO) -> Any:
    """An agent that makes few steps."""
    return kind("CartPole-v1", num_envs=2)


def gym() -> Any:
    return gymnasium.make("CartPole-v1")


POLE, ROD = "CartPole-v1", "Pendulum-v1"
#: What is written, and what the answer says.
LINES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "MlpPolicy": (
        lambda: PPO("MlpPolicy", gym(), verbose=1),
        TypeError,
        "PPO takes env alone without a name; "
        "'MlpPolicy': network=\"mlp\" is the default, leave it out",
    ),
    "CnnPolicy": (
        lambda: DQN("CnnPolicy", POLE),
        TypeError,
        'DQN takes env .*write network="conv"',
    ),
    "recurrent": (lambda: PPO(POLE, "MlpLstmPolicy"), TypeError, 'write network="lstm"'),
    "by name": (
        lambda: PPO(env=POLE, policy="MlpPolicy"),
        TypeError,
        "policy='MlpPolicy': network=\"mlp\" is the default, leave it out",
    ),
    "policy of DQN": (
        lambda: DQN(POLE, policy="MlpPolicy"),
        TypeError,
        "policy: DQN has no such setting; did you mean network=",
    ),
    "no name": (lambda: PPO(POLE, 3), TypeError, "PPO takes env alone without a name; name the"),
    "tensorboard_log": (
        lambda: PPO(POLE, tensorboard_log="logs"),
        TypeError,
        r"no such setting; write agent.learn\(..., callback=rlcpu.train.TensorBoard\(folder\)\)",
    ),
    "a function": (
        lambda: DQN(POLE, learning_rate=lambda remaining: 1e-3 * remaining),
        TypeError,
        "expected a number; learning_rate_schedule is .* a function of what remains",
    ),
    "lin_3e-4": (
        lambda: PPO(POLE, learning_rate="lin_3e-4"),
        TypeError,
        'expected a number; learning_rate_schedule is "linear"',
    ),
    "clip_range": (
        lambda: PPOConfig(clip_range=lambda remaining: 0.2),  # type: ignore[arg-type]
        TypeError,
        "expected a number; clip_schedule is",
    ),
    "clip_range_vf": (
        lambda: PPO(POLE, clip_range_vf=0.2),
        TypeError,
        "did you mean clip_range_value",
    ),
    "clip_vloss": (lambda: PPO(POLE, clip_vloss=True), TypeError, "write clip_range_value=0.2"),
    "policy_kwargs": (lambda: PPO(POLE, policy_kwargs={}), TypeError, "mean hidden and activation"),
    "verbose": (lambda: PPO(POLE, verbose=1), TypeError, r"agent.learn\(..., progress=True\)"),
    "device": (lambda: PPO(POLE, device="cuda"), TypeError, "learn on the CPU, leave it out"),
    "n_steps": (lambda: PPO(POLE, n_steps=8), TypeError, "did you mean num_steps"),
    "n_step returns": (lambda: DQN(POLE, n_steps=3), TypeError, "did you mean n_step[?]"),
    "entropy": (lambda: PPO(POLE, ent_coef=0.1), TypeError, "did you mean entropy_coefficient"),
    "temperature": (lambda: SAC(ROD, ent_coef="auto"), TypeError, "did you mean temperature"),
    "target_entropy": (
        lambda: SAC(ROD, target_entropy="auto"),  # type: ignore[arg-type]
        TypeError,
        "expected a number, or None",
    ),
    "action_noise": (lambda: TD3(ROD, action_noise=0.1), TypeError, "mean exploration_noise"),
    "no action_noise": (lambda: SAC(ROD, action_noise=0.1), TypeError, "draws actions itself"),
    "batch_size": (lambda: PPO(POLE, batch_size=64), TypeError, "did you mean minibatch_size"),
    "minibatch_size": (lambda: DQN(POLE, minibatch_size=64), TypeError, "did you mean batch_size"),
    "eval_freq": (
        lambda: PPO(POLE, eval_freq=9),
        TypeError,
        r"write .*, evaluations=20\), how many",
    ),
    "evaluating": (lambda: agent().learn(8, eval_freq=9), TypeError, "did you mean evaluations, h"),
    "eval_env": (lambda: agent().learn(8, eval_env=gym()), TypeError, r"Evaluations\(20, env=env"),
    "the best": (
        lambda: agent().learn(8, best_model_save_path="logs"),
        TypeError,
        "did you mean keep_best[?]",
    ),
    "save_freq": (lambda: agent().learn(8, save_freq=1000), TypeError, "did you mean save_every"),
    "EvalCallback": (
        lambda: rlcpu.train.EvalCallback,  # type: ignore[attr-defined]
        AttributeError,
        'evaluations=20, keep_best="best.npz"',
    ),
    "CheckpointCallback": (
        lambda: rlcpu.train.CheckpointCallback,  # type: ignore[attr-defined]
        AttributeError,
        'save_to="agent-{steps}.npz", save_every=100_000',
    ),
    "no improvement": (
        lambda: rlcpu.train.StopTrainingOnNoModelImprovement,  # type: ignore[attr-defined]
        AttributeError,
        "evaluations=20, patience=5",
    ),
    "ortho_init": (lambda: PPO(POLE, ortho_init=False), TypeError, "orthogonal at first, leave it"),
    "nothing like it": (lambda: PPO(POLE, xyzzy=1), TypeError, "expected one of seed, "),
    "SAC": (
        lambda: SAC(POLE),
        TypeError,
        r"has action_space=Discrete\(2\): expected a Box; PPO, PQN, DQN and QRDQN take a Discrete",
    ),
    "DQN": (
        lambda: DQN(ROD),
        TypeError,
        "expected Discrete; PPO, SAC, TQC, TD3 and DDPG take a Box",
    ),
    "total_timesteps": (
        lambda: agent().learn(total_timesteps=1000),
        TypeError,
        "total_timesteps: PPO.learn has no such argument; did you mean total_steps[?]",
    ),
    "progress_bar": (lambda: agent().learn(8, progress_bar=True), TypeError, "mean progress[?]"),
    "a callback": (
        lambda: agent().learn(8, print),
        TypeError,
        "PPO.learn takes total_steps alone without a name; name the others",
    ),
    "log_interval": (lambda: agent().learn(8, log_interval=1), TypeError, "after every rollout"),
    "n_eval_episodes": (
        lambda: agent(DQN).evaluate(n_eval_episodes=9),
        TypeError,
        "n_eval_episodes: DQN.evaluate has no such argument; did you mean num_episodes[?]",
    ),
    "obs": (lambda: agent().predict(obs=np.zeros(4)), TypeError, "did you mean observations"),
    "load": (lambda: PPO.load("a.npz", device="cpu"), TypeError, "PPO.load has no .*on the CPU"),
    "set_env": (lambda: agent().set_env(gym()), AttributeError, "'set_env'; .*keeps agent.env"),
    "num_timesteps": (lambda: agent().num_timesteps, AttributeError, "write agent.steps"),
    "buffer": (lambda: agent(DQN).save_replay_buffer("x"), AttributeError, r"agent.save\(path\)"),
    "a setting": (lambda: agent().gamma, AttributeError, "'gamma'; it is a field of agent.config"),
    "no attribute": (lambda: agent().xyzzy, AttributeError, "no attribute 'xyzzy'$"),
    "make_vec_env": (lambda: rlcpu.make_vec_env, AttributeError, r"write rlcpu.make_vec\(id, num_"),  # type: ignore[attr-defined]
    "VecNormalize": (lambda: rlcpu.VecNormalize, AttributeError, "write normalize_observations"),  # type: ignore[attr-defined]
    "A2C": (lambda: rlcpu.train.A2C, AttributeError, "'A2C': PPO takes the same environments"),  # type: ignore[attr-defined]
    "SAK": (lambda: rlcpu.train.SAK, AttributeError, "'SAK'$"),  # type: ignore[attr-defined]
    "n_envs": (lambda: rlcpu.make_vec(POLE, n_envs=4), TypeError, "did you mean num_envs[?]$"),
    "seed": (lambda: rlcpu.make_vec(POLE, 4, seed=0), TypeError, r"write env.reset\(seed=0\)$"),
    "Nope-v0": (lambda: PPO("Nope-v0"), ValueError, "'Nope-v0' is unknown: known are"),
    "Atari": (lambda: PPO("PongNoFrameskip-v4"), ValueError, "ale-py it is 'ale_py:ALE/"),
}


@pytest.mark.parametrize("name", LINES)
def test_a_line_of_python_is_answered(name: str) -> None:
    line, error, message = LINES[name]
    with pytest.raises(error, match=message):
        line()


def test_actions_without_bounds_are_those_of_ppo() -> None:
    env: Any = gymnasium.make(ROD)
    env.unwrapped.action_space = Box(-np.inf, np.inf, (1,), np.float32)
    with pytest.raises(ValueError, match="has to be bounded; PPO takes it as it is"):
        SAC(env)


def test_what_is_right_is_not_answered() -> None:
    assert PPO(POLE, num_envs=2, num_steps=4, learning_rate=1e-3).learn(total_steps=8).steps == 8


def test_an_agent_of_ours_does_not_go_on_in_gymnasium_s(tmp_path: Path) -> None:
    ours, theirs = agent(), PPO(gym(), num_steps=4)
    for each in (ours, theirs):
        each.save(tmp_path / "agent.npz")
        env = gym() if each is ours else rlcpu.make_vec(POLE, 1)
        whose = "rlcpu" if each is ours else "Gymnasium"
        with pytest.raises(ValueError, match=f"expected CartPole-v1, one of {whose}"):
            PPO.load(tmp_path / "agent.npz", env=env)


def refusal(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """What the command says of arguments."""
    with pytest.raises(SystemExit):
        cli.main(argv)
    return capsys.readouterr().err


MODULE = """
import dataclasses
import rlcpu
for name in {names}:
    rlcpu.register(dataclasses.replace(rlcpu.envs.find("CartPole-v1"), id=name))
"""


def test_a_file_of_the_user_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rlcpu.register(dataclasses.replace(rlcpu.envs.find("CartPole-v1"), id="Zero-v0"))  # no file's
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "two_poles.py").write_text(MODULE.format(names=["One-v0", "Two-v0"]))
    (tmp_path / "no_pole.py").write_text(MODULE.format(names=[]))
    written = "is a file: write more.two_poles:One-v0 or more.two_poles:Two-v0"
    assert written in refusal(capsys, "train", "more/two_poles.py")
    assert written in refusal(capsys, "check", "./more/two_poles")
    message = "more.two_poles registers One-v0 and Two-v0, not 'Nope-v0'"
    assert message in refusal(capsys, "train", "more.two_poles:Nope-v0")
    assert "there is no file 'pole.py'" in refusal(capsys, "train", "pole.py")
    for name in ("Zero-v0", "One-v0", "Two-v0"):
        gymnasium.registry.pop(f"rlcpu/{name}")
        del rlcpu.envs.contract.registry.made[name]
    assert "no_pole registers no environment" in refusal(capsys, "info", "--env", "no_pole.py")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("train Nope-v0", "unknown environment 'Nope-v0'; `rlcpu list` has all"),
        ("train ALE/Pong-v5", "with the package ale-py it is ale_py:ALE/Breakout-v5 and the like"),
        ("train CartPole-v1 --algo sac", "expected a Box; PPO, PQN, DQN and QRDQN take a Discrete"),
        ("train CartPole-v1 --algo A2C", "invalid choice: 'a2c' (choose from"),
        ("train CartPole-v1 --target soon", "expected a number, got 'soon'"),
        ("train --env CartPole-v1", "unrecognized arguments: --env; the environment comes first"),
        ("train CartPole-v1 -n 1000", "-n 1000; write --steps N"),
        ("train CartPole-v1 --total-timesteps 9", "write --steps N"),
        ("train CartPole-v1 --learning-rate 1", "write --set learning_rate=VALUE"),
        ("train CartPole-v1 --gae-lambda=1", "did you mean lambda_? Write --set NAME=VALUE"),
        ("train CartPole-v1 --device cpu", "agents learn on the CPU, leave it out"),
        ("train CartPole-v1 --eval-freq 9", "write --evaluations N, how many there are on the way"),
        ("train CartPole-v1 --save-freq 9", "write --save-every N"),
        ("train CartPole-v1 --xyzzy", "unrecognized arguments: --xyzzy\n"),
        ("enjoy CartPole-v1", "did you mean eval?"),
        ("tran CartPole-v1", "'warmup')\n"),
    ],
)
def test_a_command_is_answered(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refusal(capsys, *words.split())


def test_algorithms_in_capitals_and_no_target(capsys: pytest.CaptureFixture[str]) -> None:
    words = "train CartPole-v1 --algo PPO --target None --steps 64 --num-envs 2 --set num_steps=32"
    assert cli.main([*words.split(), "--episodes", "2"]) == 0
    printed = capsys.readouterr().out
    assert "until       64 steps" in printed
    assert "solved" not in printed


# ---------------------------------------------------------------- the tables are true


def test_names_that_are_meant_exist() -> None:
    kinds = [getattr(rlcpu.train, each) for each in rlcpu.train.__all__ if each.endswith("Config")]
    known = {name for kind in kinds for name in kind.names()} | {"seed", "num_threads", "buffer"}
    known |= {"total_steps", "progress", "num_episodes", "observations", "action_masks", "starts"}
    known |= {"callback", "evaluations", "keep_best", "patience", "save_every", "save_to"}
    for theirs, ours in NAMES.items():
        meant = [re.split(r"\W", each)[0] for each in ours]
        assert set(meant) <= known, theirs
        assert theirs not in meant


def test_what_is_answered_exists() -> None:
    agents = agent(), agent(DQN)
    texts = [*ANSWERS.values(), *OPTIONS.values()]
    for text in texts:
        for path in re.findall(r"\brlcpu((?:\.\w+)+)", text):
            operator.attrgetter(path[1:])(rlcpu)
        for path in re.findall(r"\bagent((?:\.\w+)+)", text):
            assert any(operator.attrgetter(path[1:])(each) is not None for each in agents[::-1]), (
                path
            )
    options = str([each.format_help() for each in commands()])
    for option in re.findall(r"write (--[\w-]+)", " ".join(texts)):
        assert f"{option} " in options
    assert set(COMMANDS.values()) <= set(build_parser().format_help().split())


def commands() -> list[Any]:
    """The parsers of the commands."""
    (subparsers,) = (each for each in build_parser()._actions if each.metavar == "COMMAND")
    choices: Any = subparsers.choices
    return list(choices.values())
