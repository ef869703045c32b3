"""Serial or parallel, thread counts, forks, and calls from several Python threads at once."""

import importlib.util
import os
import re
import threading

import numba
import numpy as np
import pytest

import rlcpu
from rlcpu.kernels import threads
from rlcpu.kernels.threads import Kernels, check_num_threads, launch, show_config
from tests.kernels.processes import run_python

HAS_TBB = importlib.util.find_spec("tbb") is not None or threads.threading_layer() == "tbb"
LAYERS = ["tbb", "omp", "workqueue"] if HAS_TBB else ["omp", "workqueue"]

#: `run(seed, num_threads)` steps, simulates and collects above every grain; returns a digest.
WORK = """
import hashlib, json, os, sys, threading
import numba, numpy as np, rlcpu
from rlcpu.envs.batch import step_kernels
from rlcpu.envs.rollout import collect_kernels, simulate_kernels
from rlcpu.kernels.threads import threading_layer

def run(seed, num_threads=None, dtype="float32", rollouts=True):
    # The last block is not full, and no block is a multiple of a vector long for 3 threads.
    env = rlcpu.make_vec("MountainCar-v0", 20_001, dtype=dtype, num_threads=num_threads)
    env.reset(seed=seed)
    results = []
    for step in range(2):
        actions = np.arange(env.num_envs) % 3
        results += env.step(actions)[:4]
    if rollouts:
        spaces = env.single_observation_space, env.single_action_space
        policy = rlcpu.policies.MLP(*spaces, hidden=(8,), seed=seed)
        stats = rlcpu.simulate(env, policy, 210)
        results += [np.array([stats.num_episodes, stats.mean_return, stats.std_return])]
        rollout = rlcpu.collect(env, policy, 3)
        results += [rollout.observations, rollout.actions, rollout.log_probs, rollout.values]
        results += [rollout.rewards, rollout.terminated, rollout.truncated, rollout.last_values]
    results += [env.state]
    return hashlib.sha256(b"".join(np.ascontiguousarray(r).tobytes() for r in results)).hexdigest()
"""

COUNTS = """
def ran_in_parallel(real):
    env = rlcpu.make_vec("MountainCar-v0", 1, dtype=real)
    spaces = env.single_observation_space, env.single_action_space
    code = rlcpu.policies.MLP(*spaces).code(env.dynamics)
    kernels = [make(env.code, real, code) for make in (simulate_kernels, collect_kernels)]
    kernels.append(step_kernels(env.code, real, False))
    return [bool(kernel.parallel.signatures) for kernel in kernels]

found = {}
for dtype, rollouts in (("float32", True), ("float64", False)):
    digests = {str(n): run(0, n, dtype, rollouts) for n in (1, 2, 3, 4, None)}
    numba.set_num_threads(1)  # the parallel kernel on one thread
    digests["parallel on 1"] = run(0, None, dtype, rollouts)
    numba.set_num_threads(4)
    found[dtype] = digests
ran = ran_in_parallel(np.float32), ran_in_parallel(np.float64)
print(json.dumps([numba.config.NUMBA_NUM_THREADS, found, ran]))
"""


def test_results_do_not_depend_on_the_number_of_threads():
    limit, found, ran = run_python("-c", WORK + COUNTS, NUMBA_NUM_THREADS=4)
    assert limit == 4
    assert ran == [[True, True, True], [False, False, True]]
    for digests in found.values():
        assert len(digests) == 6
        assert len(set(digests.values())) == 1


FORK = """
def child_agrees(expected):
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if run(1, rollouts=False) == expected else 3)
        finally:
            os._exit(4)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)

import warnings
warnings.simplefilter("ignore")  # Python warns of forks in a process with threads
expected = run(1, rollouts=False)
codes = [child_agrees(expected) for _ in range(2)]
print(json.dumps([threading_layer(), codes, run(1, rollouts=False) == expected]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.parametrize("layer", LAYERS)
def test_a_fork_after_a_parallel_call_works(layer):
    used, codes, parent = run_python(
        "-c", WORK + FORK, NUMBA_THREADING_LAYER=layer, NUMBA_NUM_THREADS=2
    )
    assert used == layer
    assert codes == [0, 0]
    assert parent


AT_ONCE = """
seeds, found, start = range(4), {}, threading.Barrier(4)

def work(seed):
    start.wait()
    found[seed] = [run(seed, rollouts=False) for _ in range(5)]

workers = [threading.Thread(target=work, args=(seed,)) for seed in seeds]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
agree = [set(found[seed]) == {run(seed, 1, rollouts=False)} for seed in seeds]
print(json.dumps([threading_layer(), agree]))
"""


@pytest.mark.parametrize("layer", LAYERS)
def test_four_python_threads_at_once_work(layer):
    used, agree = run_python("-c", WORK + AT_ONCE, NUMBA_THREADING_LAYER=layer, NUMBA_NUM_THREADS=2)
    assert used == layer
    assert agree == [True] * 4


def test_tbb_is_found_and_chosen_where_it_is_installed():
    if not HAS_TBB:
        pytest.skip("TBB is not installed")
    program = WORK + "run(0, rollouts=False); print(json.dumps(numba.threading_layer()))"
    assert run_python("-c", program, NUMBA_THREADING_LAYER=None) == "tbb"


def test_importing_starts_no_threads():
    program = "import json, os, threading, rlcpu; "
    program += "print(json.dumps([threading.active_count(), len(os.listdir('/proc/self/task'))]))"
    if not os.path.isdir("/proc/self/task"):
        pytest.skip("needs /proc")
    # NumPy's OpenBLAS starts its own threads at import unless it is told not to.
    assert run_python("-c", program, OPENBLAS_NUM_THREADS=1) == [1, 1]


# ---------------------------------------------------------------- which kernel is called


@pytest.fixture
def kernels():
    """Kernels that say which of them ran, with how many threads and which arguments."""

    def parallel(*args):
        return "parallel", numba.get_num_threads(), args

    return Kernels(lambda *args: ("serial", None, args), parallel, grain=100)


def use_layer(monkeypatch, layer):
    monkeypatch.setattr(threads, "threading_layer", lambda: layer)


def test_little_work_and_one_thread_are_serial(kernels, monkeypatch):
    use_layer(monkeypatch, "tbb")
    assert launch(kernels, 99, None, 1, 2) == ("serial", None, (1, 2))
    assert launch(kernels, 100, 1, 1, 2) == ("serial", None, (1, 2))
    assert launch(kernels, 100, None, 1, 2) == ("parallel", numba.get_num_threads(), (1, 2))


@pytest.mark.parametrize("layer", ["tbb", "omp", "workqueue"])
def test_thread_counts_hold_for_the_call_alone(kernels, layer, monkeypatch):
    use_layer(monkeypatch, layer)
    limit = numba.config.NUMBA_NUM_THREADS
    before = numba.get_num_threads()
    if limit > 1:
        assert launch(kernels, 100, limit)[:2] == ("parallel", limit)

    def fail():
        raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        launch(kernels._replace(parallel=fail), 100, limit + 0 if limit > 1 else None)
    assert numba.get_num_threads() == before
    assert launch(kernels, 100, None)[0] == "parallel"


def test_forked_children_are_serial_under_omp_alone(kernels, monkeypatch):
    monkeypatch.setattr(threads, "_forked", True)
    for layer, expected in [("omp", "serial"), ("tbb", "parallel"), ("workqueue", "parallel")]:
        use_layer(monkeypatch, layer)
        assert launch(kernels, 100, None)[0] == expected


def test_workqueue_runs_one_parallel_kernel_at_a_time(kernels, monkeypatch):
    use_layer(monkeypatch, "workqueue")
    inside, leave, results = threading.Event(), threading.Event(), []

    def parallel():
        inside.set()
        leave.wait()
        return "parallel"

    slow = kernels._replace(parallel=parallel)
    worker = threading.Thread(target=lambda: results.append(launch(slow, 100, None)))
    worker.start()
    inside.wait()
    assert launch(kernels, 100, None)[0] == "serial"
    leave.set()
    worker.join()
    assert results == ["parallel"]
    assert launch(kernels, 100, None)[0] == "parallel"


# ---------------------------------------------------------------- arguments, configuration


def test_thread_counts_are_checked():
    limit = numba.config.NUMBA_NUM_THREADS
    assert check_num_threads(None) is None
    assert check_num_threads(limit) == limit
    assert type(check_num_threads(np.int64(1))) is int
    for bad in (True, 1.0, "2", [1]):
        with pytest.raises(TypeError, match=rf"^num_threads={re.escape(repr(bad))}: expected an"):
            check_num_threads(bad)
    for bad in (0, -1, limit + 1):
        with pytest.raises(ValueError, match=rf"^num_threads={bad}: expected 1 to {limit} "):
            check_num_threads(bad)
        with pytest.raises(ValueError, match=rf"^num_threads={bad}: expected 1 to {limit} "):
            rlcpu.make_vec("MountainCar-v0", 2, num_threads=bad)


def test_configuration_names_what_matters():
    config = show_config()
    assert config["rlcpu"] == rlcpu.__version__
    assert config["numba"] == numba.__version__
    assert config["threading layer"] in ("tbb", "omp", "workqueue")
    assert re.fullmatch(r"(128|256|512) bits", config["vector width"])
    assert os.path.isdir(config["cache folder"])
    assert all(isinstance(value, str) and value for value in config.values())
