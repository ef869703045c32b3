"""Interrupts, handlers of signals, and forks leave buffers whole."""

import contextlib
import ctypes
import itertools
import linecache
import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from rlcpu.replay import (
    ItemBuffer,
    PrioritizedReplayBuffer,
    PrioritizedTrajectoryBuffer,
    ReplayBuffer,
    ReturnWeightedBuffer,
    SumTree,
    TrajectoryBuffer,
    TrajectoryQueue,
)
from rlcpu.replay.lock import complete

CAPACITY = 12
EXAMPLE = {"observation": np.zeros(3), "next_observation": np.zeros(3), "number": 0}
SIDE_BY_SIDE = (TrajectoryBuffer, PrioritizedTrajectoryBuffer, TrajectoryQueue)


def following(numbers):
    """The next observation: that of the step after it, but for the end of each third episode."""
    return np.where(numbers % 3, numbers + 1, -numbers)


def batch(first, *lead):
    """Transitions numbered in the order of time, in all fields."""
    numbers = first + np.arange(np.prod(lead, dtype=int)).reshape(lead)
    rows = [np.repeat(n[..., None], 3, -1).astype(float) for n in (numbers, following(numbers))]
    return {"observation": rows[0], "next_observation": rows[1], "number": numbers}


def make(kind, options):
    if kind in SIDE_BY_SIDE:
        return kind(2, CAPACITY // 2, EXAMPLE, 2, seed=0)
    return kind(CAPACITY, EXAMPLE, seed=0, **options)


def add(buffer, first):
    """Add transitions numbered from `first` on; the number of the next ones."""
    if isinstance(buffer, SIDE_BY_SIDE):
        buffer.add(batch(first, 2, 2))
        return first + 4
    if isinstance(buffer, ItemBuffer):
        buffer.add(batch(first))
        return first + 1
    values = (first + np.arange(5.0),) if isinstance(buffer, ReturnWeightedBuffer) else ()
    buffer.add(batch(first, 5), *values)
    return first + 5


def fill(buffer):
    """Add twice what there is room for, or once to a queue, of which some steps are taken."""
    first, queue = 0, isinstance(buffer, TrajectoryQueue)
    while first < (CAPACITY if queue else 2 * CAPACITY):
        first = add(buffer, first)
    if queue:
        buffer.sample()
    if isinstance(buffer, PrioritizedReplayBuffer):
        buffer.update_priorities(np.arange(CAPACITY), 0.5)
    return first


def check(buffer, new):
    """Every item is whole, and its weight its own; those from number `new` on are new."""
    sample = buffer.sample() if isinstance(buffer, TrajectoryQueue) else buffer.sample(8)
    numbers = sample["number"]
    for field, wanted in (("observation", numbers), ("next_observation", following(numbers))):
        assert (sample[field] == wanted[..., None]).all()
    if isinstance(buffer, ReturnWeightedBuffer):
        assert (buffer._sampler.tree.leaves[sample.indices] == numbers).all()
    if isinstance(buffer, PrioritizedReplayBuffer):
        leaves = buffer._sampler.tree.leaves[sample.indices]
        assert ((leaves == 1.0) == (numbers >= new)).all()
    if isinstance(buffer, PrioritizedTrajectoryBuffer):
        assert np.count_nonzero(buffer._sampler.tree.leaves) == 2 * 5


def interrupt(call, line):
    """Raise KeyboardInterrupt before so many lines of the package; False if there are fewer."""
    lines, seen = 0, set()

    def trace(frame, event, _):
        nonlocal lines
        name = frame.f_code.co_filename
        if os.path.join("rlcpu", "replay") not in name:
            return None
        # What ends a `with` block is an event too, but Python looks at no signal there.
        place = (id(frame), frame.f_lineno)
        ends = place in seen and linecache.getline(*(name, frame.f_lineno)).lstrip()[:5] == "with "
        if event == "line" and not ends:
            seen.add(place)
            lines += 1
            if lines == line:
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (ItemBuffer, {}),
        (ReplayBuffer, {}),
        (ReplayBuffer, {"derive_next": True}),
        (PrioritizedReplayBuffer, {"derive_next": True, "alpha": 1.0, "epsilon": 0.0}),
        (ReturnWeightedBuffer, {"derive_next": True}),
        (TrajectoryBuffer, {}),
        (PrioritizedTrajectoryBuffer, {}),
        (TrajectoryQueue, {}),
    ],
)
def test_an_interrupted_add_leaves_whole_items(kind, options):
    line, interrupted = 0, True
    while interrupted:
        line += 1
        buffer = make(kind, options)
        first, before = fill(buffer), len(buffer)
        interrupted = interrupt(lambda buffer=buffer, first=first: add(buffer, first), line)
        assert len(buffer) in (before, CAPACITY)
        check(buffer, first)
        add(buffer, first + 5)
        check(buffer, first)
    assert line > 12


def test_an_interrupted_rebuild_is_done_or_not_begun():
    line, interrupted = 0, True
    while interrupted:
        line += 1
        tree = SumTree(20, seed=0)
        interrupted = interrupt(lambda tree=tree: tree.rebuild(np.ones(20)), line)
        assert tree.total == tree.leaves.sum()
        assert tree.total in (0.0, 20.0)
    assert line > 5


def test_a_signal_between_two_attempts_does_not_end_them():
    make = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int)
    send = make(("PyErr_SetInterruptEx", ctypes.pythonapi))
    calls, done = [], []

    def work():
        calls.append(1)
        if len(calls) == 1:  # a signal and an exception, with no step of Python in between
            list(map(send, itertools.chain([signal.SIGINT], 0)))
        done.append(1)

    with contextlib.suppress(TypeError, KeyboardInterrupt):
        complete(work)
    assert done == [1]


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no such timers here")
@pytest.mark.parametrize(("size", "rounds", "most"), [(2000, 60, 1), (10_000, 8, 3)])
def test_interrupts_at_any_time_of_a_big_add(size, rounds, most):
    """Once, or again and again as when the keys are held down."""
    names, left, stopped = "abcdefgh", 0, 0
    buffer = ReplayBuffer(size, {name: np.zeros(100) for name in names}, seed=0)
    buffer.add(dict.fromkeys(names, np.zeros((size, 100))))

    def stop(*_):
        nonlocal left
        left -= 1
        if left >= 0 and buffer._lock._is_owned():  # in the middle of a call
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, stop)
    try:
        for number in range(rounds):
            data, left = dict.fromkeys(names, np.full((size, 100), float(number))), most
            signal.setitimer(signal.ITIMER_REAL, 1e-4 * (1 + number % 40), 8e-3)
            try:
                buffer.add(data)
            except KeyboardInterrupt:
                stopped += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            sample = buffer.sample(200)
            assert all((sample[name] == sample["a"][:, :1]).all() for name in names)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert stopped


def run(script, *args):
    """What a script of its own process prints; a process that hangs is ended."""
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, args)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no such timers here")
def test_a_save_by_a_handler_in_the_middle_of_an_add_is_refused_at_once(tmp_path):
    script = """
        import signal, sys
        import numpy as np
        from rlcpu.replay import PrioritizedReplayBuffer

        buffer = PrioritizedReplayBuffer(20_000, {"x": np.zeros(50), "y": np.zeros(50)}, seed=0)
        data = {"x": np.ones((20_000, 50)), "y": np.ones((20_000, 50))}
        buffer.add(data)
        signal.signal(signal.SIGALRM, lambda *_: buffer.save(sys.argv[1]))
        refused = 0
        for number in range(40):
            signal.setitimer(signal.ITIMER_REAL, 1e-4 * (1 + number))
            try:
                for _ in range(3):
                    buffer.add(data)
            except RuntimeError as error:
                assert "in the middle of another call of the same thread" in str(error)
                refused += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            batch = buffer.sample(10)
            assert (batch["x"] == 1).all() and (batch["y"] == 1).all()
        print(refused)
    """
    assert int(run(script, tmp_path / "saved")) > 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes of this kind here")
def test_a_child_forked_while_a_thread_uses_a_buffer_goes_on():
    script = """
        import os, threading
        import numpy as np
        from rlcpu.replay import Mixer, PrioritizedReplayBuffer

        example = {name: np.zeros(30) for name in "abcd"}
        buffers = [PrioritizedReplayBuffer(2000, example, seed=0) for _ in range(2)]
        mixer = Mixer(buffers, [1, 1])

        def data(number):
            return dict.fromkeys("abcd", np.full((500, 30), float(number)))

        def work():
            number = 0
            while not stop.is_set():
                number += 1
                mixer.add(data(number), to=number % 2)
                mixer.sample(64)

        def check():
            mixer.add(data(1), to=0)
            batch = mixer.sample(512)
            return all((batch[name] == batch["a"][:, :1]).all() for name in "abcd")

        for buffer in buffers:
            buffer.add(data(0))
        check()
        stop, threads = threading.Event(), [threading.Thread(target=work) for _ in range(2)]
        stop.clear()
        for thread in threads:
            thread.start()
        for _ in range(20):
            child = os.fork()
            if not child:
                os._exit(0 if check() else 1)
            assert os.waitpid(child, 0)[1] == 0
        stop.set()
        for thread in threads:
            thread.join()
        print("done")
    """
    assert run(script) == "done\n"
