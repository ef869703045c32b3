"""Learning and saving stopped at any line, or at any time: the agent is whole and goes on."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import pickle
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import rlcpu
from rlcpu.train import DQN, PPO, SAC, Progress
from rlcpu.train.keeping import checkpoint, files
from rlcpu.train.running.interrupts import WholeRounds
from tests.train import test_off_policy as off_policy
from tests.train.states import state_of
from tests.train.test_agents import AGENTS

SMALL = {
    "num_envs": 8, "num_steps": 16, "minibatch_size": 64, "num_epochs": 2, "hidden": (16,),
    "num_threads": 2, "normalize_observations": True,
}  # fmt: skip
STEPS = 3 * 8 * 16
FOLDER = str(Path(rlcpu.train.__file__).parent)


def make_agent() -> PPO:
    return PPO("CartPole-v1", seed=3, **SMALL)


def everything(agent: PPO) -> dict[str, Any]:
    described = checkpoint.describe(agent, {})
    arrays = {name: array.tolist() for name, array in state_of(agent).items()}
    return {**described, **arrays}


def assert_whole(agent: PPO) -> None:
    """The learner's parameters are the policy's, and the history tells of as many steps."""
    present = agent.policy.parameters.copy(), agent.policy.value_parameters.copy()
    agent.learner.write_networks()
    np.testing.assert_array_equal(present[0], agent.policy.parameters)
    np.testing.assert_array_equal(present[1], agent.policy.value_parameters)
    assert agent.history.steps == agent.steps == 128 * len(agent.history.updates)
    assert len(agent.history.curve) == len(agent.history.updates)


def interrupt_at(
    number: int, run: Callable[[], object], folders: tuple[str, ...] = (FOLDER,)
) -> bool:
    """Raise KeyboardInterrupt at the given line of the folders; False if fewer are executed.

    Number 0 is the first; a negative one never comes.
    """
    left = number

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.startswith(folders):
            return None
        if event == "line":
            left -= 1
            if left == -1:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    interrupt_at.lines = number - left  # type: ignore[attr-defined]
    return False


def test_learning_interrupted_at_any_line_goes_on_bit_for_bit() -> None:
    whole = make_agent()
    whole.learn(STEPS)
    expected = everything(whole)
    assert not interrupt_at(10**9, lambda: make_agent().learn(STEPS))
    lines = interrupt_at.lines  # type: ignore[attr-defined]
    for number in np.linspace(0, lines - 1, 200).astype(int):
        agent = make_agent()
        interrupted = interrupt_at(int(number), lambda agent=agent: agent.learn(STEPS))  # type: ignore[misc]
        if not interrupted:
            continue
        assert_whole(agent)
        if agent.steps < STEPS:
            agent.learn(STEPS - agent.steps)
        assert everything(agent) == expected, number


# Where the interrupt comes between `open` and `with`, Python closes the file and says so.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_saving_interrupted_at_any_line_keeps_a_whole_file(tmp_path: Path) -> None:
    path, agent = tmp_path / "agent.npz", make_agent()
    agent.save(path)
    agent.learn(128)
    number, loadable, left = 0, set(), 0
    while interrupt_at(number, lambda: agent.save(path)):
        loadable.add(PPO.load(path).steps)
        rest = [each for each in tmp_path.iterdir() if each != path]
        left += len(rest)
        for each in rest:
            each.unlink()
        number += 1
    assert number > 30
    assert loadable == {0, 128}
    assert left <= 2  # the interrupt came just where the temporary file is removed


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_interrupts_an_archive_that_is_written_stays_ctrl_c(tmp_path: Path) -> None:
    """NumPy's own writer raises ValueError where a part of the archive is just being opened."""
    path, agent = tmp_path / "agent.npz", make_agent()
    folders = (zipfile.__file__, np.lib.npyio.__file__)
    assert not interrupt_at(10**9, lambda: agent.save(path), folders)
    lines = interrupt_at.lines  # type: ignore[attr-defined]
    for number in range(lines // 4):  # the first parts; all are written alike
        assert interrupt_at(number, lambda: agent.save(path), folders)
    assert PPO.load(path).steps == 0


def test_a_file_is_read_without_printing_arrays(tmp_path: Path) -> None:
    """NumPy prints "..." of an array whose printing was interrupted where it began."""
    path, agent = tmp_path / "agent.npz", make_agent()
    agent.save(path)
    printing = (inspect.getfile(inspect.unwrap(np.array_repr)),)
    assert not interrupt_at(0, lambda: PPO.load(path), printing)


def test_temporary_files_of_killed_saves_are_swept(tmp_path: Path) -> None:
    path, agent = tmp_path / "agent.npz", make_agent()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    dead = files._temporary(path).name.replace(f"-{os.getpid()}-", f"-{ended.pid}-")
    alive, other = files._temporary(path).name, dead.replace("agent", "another")
    for name in (dead, alive, other):
        (tmp_path / name).write_bytes(b"half")
    agent.save(path)
    swept = os.name == "posix"
    assert (tmp_path / dead).exists() != swept
    assert (tmp_path / alive).exists()
    assert (tmp_path / other).exists()


def test_an_exception_in_the_callback_leaves_the_agent_whole() -> None:
    expected = make_agent()
    expected.learn(STEPS)

    def fail(progress: Progress) -> None:
        if progress.steps == 256:
            raise RuntimeError("mine")

    agent = make_agent()
    with pytest.raises(RuntimeError, match="mine"):
        agent.learn(STEPS, callback=fail)
    assert agent.history.stopped == "error"
    assert [steps for steps, _ in agent.history.curve] == [128, 256]
    assert_whole(agent)
    agent.learn(128)
    assert everything(agent) == everything(expected)


def test_an_update_that_is_not_finite_is_undone() -> None:
    agent = make_agent()
    agent.learn(128)
    before = everything(agent)
    # The squares of such returns are beyond float32.
    agent.config = agent.config.replace({"reward_scale": 1e28})
    with pytest.raises(FloatingPointError, match="gradient step 5: ppo, value of ppo became NaN"):
        agent.learn(256)
    agent.config = agent.config.replace({"reward_scale": 1.0})
    assert everything(agent) == before
    agent.learn(128)
    assert np.isfinite(agent.history.losses).all()


# The interrupt may come inside a callback of the garbage collector (hypothesis has one).
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="Windows has no timers of this kind")
def test_interrupts_at_random_times() -> None:
    expected = make_agent()
    expected.learn(STEPS)
    rng = np.random.default_rng(5)
    times = []
    for _ in range(5):
        agent, start = make_agent(), time.perf_counter()
        agent.learn(STEPS)
        times.append(time.perf_counter() - start)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    stopped = 0
    try:
        for delay in rng.uniform(1e-5, min(times), 200):
            agent = make_agent()
            try:
                signal.setitimer(signal.ITIMER_REAL, delay)
                agent.learn(STEPS)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                stopped += 1
            assert_whole(agent)
            if agent.steps < STEPS:
                agent.learn(STEPS - agent.steps)
            assert everything(agent) == everything(expected)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert stopped > 20


# What is interrupted in a finalizer or a weak reference's callback, Python says and goes on.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="Windows has no timers of this kind")
@pytest.mark.parametrize("make", AGENTS.values(), ids=AGENTS)
def test_ctrl_c_is_keyboard_interrupt_whatever_an_agent_does(make: Any, tmp_path: Path) -> None:
    """And leaves an agent that learns, files that load, and the handlers that there were."""
    agent, path = make(), tmp_path / "agent.npz"
    observations = np.zeros((3, agent.env.dynamics.observation_size))
    calls: tuple[tuple[Callable[[], object], int], ...] = (
        (lambda: agent.learn(128), 150),
        (lambda: agent.evaluate(5), 50),
        (lambda: agent.predict(observations), 50),
        (lambda: agent.save(path), 40),
        (lambda: type(agent).load(path), 40),
        (lambda: agent.history.to_csv(tmp_path / "curve.csv"), 10),
        (lambda: pickle.loads(pickle.dumps(agent)), 40),
    )
    handlers = {number: signal.getsignal(number) for number in (signal.SIGALRM, signal.SIGINT)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    rng, stopped = np.random.default_rng(11), 0
    try:
        for call, count in calls:
            call()
            start = time.perf_counter()
            call()
            duration = time.perf_counter() - start
            for delay in rng.uniform(1e-5, duration, count):
                with contextlib.suppress(KeyboardInterrupt):
                    try:
                        signal.setitimer(signal.ITIMER_REAL, delay)
                        call()
                        signal.setitimer(signal.ITIMER_REAL, 0)
                    except KeyboardInterrupt:
                        stopped += 1
                signal.setitimer(signal.ITIMER_REAL, 0)
                assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for signal_number, handler in handlers.items():
            signal.signal(signal_number, handler)
    assert stopped > 50
    agent.learn(64)
    assert np.isfinite(type(agent).load(path).evaluate(5)).all()


def test_handlers_are_given_back_where_no_block_ends() -> None:
    """A signal may come in the first step of `__exit__`, which then does nothing."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        rounds = WholeRounds().__enter__()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        done: list[int] = []

        def work() -> None:  # of a loop whose callback has caught it
            signal.raise_signal(signal.SIGINT)
            done.append(1)

        with pytest.raises(KeyboardInterrupt):
            rounds.run(work)
        assert done == [1]
        rounds.__exit__()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


# ---------------------------------------------------------------- agents with a replay buffer

LEARNERS = pytest.mark.parametrize(("kind", "env"), [(SAC, "Pendulum-v1"), (DQN, "CartPole-v1")])
OFF_POLICY_STEPS = 10 * 32


def make_off_policy(kind: Any, env: str, **settings: Any) -> Any:
    return kind(env, seed=3, **{**off_policy.SMALL, "num_threads": 2, **settings})


def without_copies(agent: Any) -> dict[str, bytes]:
    """`learn` begins with transposed copies of all weights, also of targets, which need none."""
    return {k: v for k, v in off_policy.everything(agent).items() if k != "learner_copies"}


def assert_goes_on_as_loaded(agent: Any, path: Path) -> None:
    """What a file holds of an agent is what it goes on with."""
    agent.save(path)
    loaded = type(agent).load(path)
    assert without_copies(loaded) == without_copies(agent)
    agent.learn(64), loaded.learn(64)
    assert without_copies(loaded) == without_copies(agent)
    assert all(np.isfinite(network.parameters).all() for network in agent.learner.networks)


# Outside of a round it may come in a finalizer: Python then says so, and goes on.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@LEARNERS
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="Windows has no timers of this kind")
def test_ctrl_c_leaves_whole_rounds(kind: Any, env: str, tmp_path: Path) -> None:
    expected, times = make_off_policy(kind, env), []
    expected.learn(OFF_POLICY_STEPS)
    for _ in range(3):
        agent, start = make_off_policy(kind, env), time.perf_counter()
        agent.learn(OFF_POLICY_STEPS)
        times.append(time.perf_counter() - start)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGALRM, signal.SIGINT)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    stopped = 0
    try:
        for number, delay in enumerate(np.random.default_rng(7).uniform(1e-5, min(times), 60)):
            agent = make_off_policy(kind, env)
            try:
                signal.setitimer(signal.ITIMER_REAL, delay)
                agent.learn(OFF_POLICY_STEPS)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                stopped += 1
                assert agent.history.stopped in ("", "interrupted", "steps")
            assert agent.steps == len(agent.buffer) == agent.history.steps
            if number % 10 == 0:
                assert_goes_on_as_loaded(agent, tmp_path / "agent.npz")
            if agent.steps < OFF_POLICY_STEPS:
                agent.learn(OFF_POLICY_STEPS - agent.steps)
                assert without_copies(agent) == without_copies(expected)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for signal_number, handler in handlers.items():
            signal.signal(signal_number, handler)
    assert stopped > 10


@LEARNERS
def test_a_second_ctrl_c_does_not_wait(kind: Any, env: str, tmp_path: Path) -> None:
    agent = make_off_policy(kind, env)
    agent.learn(64)
    sample, calls = agent.buffer.sample, []

    def interrupted(*args: Any, **options: Any) -> Any:
        calls.append(args)
        signal.raise_signal(signal.SIGINT)
        return sample(*args, **options)

    agent.buffer.sample = interrupted
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for _ in range(2):  # once at the round's end, then at once
            with pytest.raises(KeyboardInterrupt):
                agent.learn(64)
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
            agent.config = agent.config.replace({"num_updates": 16})
    finally:
        signal.signal(signal.SIGINT, before)
        del agent.buffer.sample
    assert len(calls) == 3
    assert_goes_on_as_loaded(agent, tmp_path / "agent.npz")


@LEARNERS
def test_an_agent_acts_by_updates_that_were_made_before_an_exception(kind: Any, env: str) -> None:
    agent = make_off_policy(kind, env)
    agent.learn(64)
    before = agent.policy.network.parameters.copy()

    def interrupted(write: Any) -> Any:
        raise KeyboardInterrupt

    agent.learner.finish = interrupted  # behind the steps, before networks have them
    with pytest.raises(KeyboardInterrupt):
        agent.learn(64)
    del agent.learner.finish
    present = agent.policy.network.parameters.copy()
    assert not np.array_equal(present, before)
    agent.learner.write_networks(agent.learner.names[:1])
    np.testing.assert_array_equal(agent.policy.network.parameters, present)
    assert agent.history.total_steps == agent.steps


@LEARNERS
def test_an_exception_at_any_line_leaves_an_agent_that_goes_on(
    kind: Any, env: str, tmp_path: Path
) -> None:
    folders = FOLDER, str(Path(rlcpu.nn.__file__).parent)
    agent = make_off_policy(kind, env)
    assert not interrupt_at(10**9, lambda: agent.learn(OFF_POLICY_STEPS), folders)
    lines = interrupt_at.lines  # type: ignore[attr-defined]
    for number in np.linspace(0, lines - 1, 40).astype(int):
        agent = make_off_policy(kind, env)
        interrupt_at(int(number), functools.partial(agent.learn, OFF_POLICY_STEPS), folders)
        assert_goes_on_as_loaded(agent, tmp_path / "agent.npz")
