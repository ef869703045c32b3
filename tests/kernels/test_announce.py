"""That compiling is said: on a terminal, by logging, and not elsewhere; and what it counts."""

import ctypes
import gc
import sys
import threading
import time

import pytest

from rlcpu.kernels.compiler import announce
from tests.kernels.processes import output_of

PROGRAM = """
import logging, sys, time
import numpy as np
from rlcpu.kernels.compiler import announce
from rlcpu.kernels.compiler.compile import kernel

announce.QUIET = 0.0
if "log" in sys.argv:
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
if "expected" in sys.argv:
    announce.expect("Balance-v0", 3)
if "off" in sys.argv:
    logging.getLogger("rlcpu").setLevel(logging.WARNING)

@kernel(subject="Numbers-v0")
def smallest(numbers):
    return numbers.min()

start = time.perf_counter()
smallest(np.arange(3.0))
took, counted = time.perf_counter() - start, announce.seconds()
assert 0.0 < counted <= took, (took, counted)
assert smallest(np.arange(3.0)) == 0.0
assert announce.seconds() == counted
assert announce.ready() == 1
"""


def test_a_terminal_shows_a_line_and_clears_it(tmp_path):
    output = output_of(PROGRAM, cache=tmp_path, terminal=True)
    assert "preparing Numbers-v0, first time only, 0 s" in output
    assert output.rstrip("\r").rpartition("\r")[2].strip() == ""
    assert output_of(PROGRAM, cache=tmp_path, terminal=True) == ""


def test_the_line_says_which_kernel_of_how_many_is_prepared(tmp_path):
    output = output_of(PROGRAM, "expected", cache=tmp_path, terminal=True)
    assert "preparing Balance-v0, first time only, 1 of 3, 0 s" in output


def test_a_pipe_shows_nothing(tmp_path):
    assert output_of(PROGRAM, cache=tmp_path, terminal=False) == ""


def test_logging_tells_in_place_of_the_line(tmp_path):
    lines = output_of(PROGRAM, "log", cache=tmp_path, terminal=True).splitlines()
    assert lines[0] == "rlcpu: compiling Numbers-v0 (once): smallest"
    assert lines[1].startswith("rlcpu: compiled Numbers-v0: smallest in ")
    assert len(lines) == 2


def test_the_level_of_the_logger_switches_the_line_off(tmp_path):
    assert output_of(PROGRAM, "off", cache=tmp_path, terminal=True) == ""


def test_an_interrupt_in_a_callback_of_llvm_is_raised_later():
    @ctypes.CFUNCTYPE(None)
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), announce.announced("Numbers-v0", "smallest"):
        interrupted()


def test_what_two_threads_wait_for_counts_once():
    def wait() -> None:
        with announce.time_counted(), announce.time_counted():
            time.sleep(0.2)

    threads = [threading.Thread(target=wait) for _ in range(2)]
    start, before = time.perf_counter(), announce.seconds()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counted, took = announce.seconds() - before, time.perf_counter() - start
    assert 0.2 <= counted <= took


def test_only_the_main_thread_looks_for_lost_interrupts() -> None:
    hooks, before = [], sys.unraisablehook

    def compile_something() -> None:
        with announce.announced("nothing", "kernel"):
            hooks.append(sys.unraisablehook)

    thread = threading.Thread(target=compile_something)
    thread.start()
    thread.join()
    compile_something()
    assert hooks[0] is before
    assert hooks[1] is not before
    assert sys.unraisablehook is before


def test_what_was_compiled_is_not_looked_at_once_more():
    rounds = []

    def count(phase, info):
        rounds.append(phase)

    with announce.announced("a test", "of the garbage collector"):
        made = [[] for _ in range(10 * gc.get_threshold()[0])]
        gc.callbacks.append(count)
    made += [[] for _ in range(gc.get_threshold()[0] // 10)]
    gc.callbacks.remove(count)
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
    assert not rounds


def test_frozen_objects_stay_so():
    gc.freeze()
    try:
        with announce.announced("a test", "of the garbage collector"):
            pass
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
