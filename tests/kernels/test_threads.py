"""Serial or parallel, thread counts, forks, and calls from several Python threads at once."""

import importlib.util
import os
import re
import threading
from pathlib import Path

import numba
import numpy as np
import pytest

import rlcpu
from rlcpu.kernels.machine import threads, vectors
from rlcpu.kernels.machine.threads import Kernels, check_num_threads, launch, show_config
from tests.kernels.processes import run_python

HAS_TBB = importlib.util.find_spec("tbb") is not None or threads.threading_layer() == "tbb"
LAYERS = ["tbb", "omp", "workqueue"] if HAS_TBB else ["omp", "workqueue"]

#: `run(seed, num_threads)` steps, simulates and collects above every grain; returns a digest.
WORK = """
import hashlib, json, os, sys, threading
import numba, numpy as np, rlcpu
from rlcpu.envs.engine.steps import step_kernels
from rlcpu.envs.rollout.compiled import collect_kernels, simulate_kernels
from rlcpu.kernels.machine.threads import threading_layer

def run(seed, num_threads=None, dtype="float32", rollouts=True):
    # The last block is not full, and no block is a multiple of a vector long for 3 threads.
    env = rlcpu.make_vec("CartPole-v1", 20_001, dtype=dtype, num_threads=num_threads)
    env.reset(seed=seed)
    results = []
    for step in range(2):
        actions = np.arange(env.num_envs) % 2
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
def ran_in_parallel():
    env = rlcpu.make_vec("CartPole-v1", 1)
    spaces = env.single_observation_space, env.single_action_space
    code, real = rlcpu.policies.MLP(*spaces).code(env.dynamics), np.float32
    made = [make(env.engine.code, real, code) for make in (simulate_kernels, collect_kernels)]
    kernels = [each.drivers for each in made]
    kernels += [step_kernels(env.engine.code, kind).drivers for kind in (real, np.float64)]
    return [bool(kernel.parallel.signatures) for kernel in kernels]

found = {}
for dtype, rollouts in (("float32", True), ("float64", False)):
    digests = {str(n): run(0, n, dtype, rollouts) for n in (1, 2, 3, 4, None)}
    numba.set_num_threads(1)  # the parallel kernel on one thread
    digests["parallel on 1"] = run(0, None, dtype, rollouts)
    numba.set_num_threads(4)
    found[dtype] = digests
print(json.dumps([threading_layer(), numba.config.NUMBA_NUM_THREADS, found, ran_in_parallel()]))
"""


def test_results_do_not_depend_on_the_number_of_threads():
    environment = {"NUMBA_NUM_THREADS": 4, "NUMBA_THREADING_LAYER": None}
    layer, limit, found, ran = run_python("-c", WORK + COUNTS, **environment)
    assert limit == 4
    assert layer == "tbb" or not HAS_TBB  # found and chosen where it is installed
    assert ran == [True] * 4
    for digests in found.values():
        assert len(digests) == 6
        assert len(set(digests.values())) == 1


#: One process of a layer, from least to most at once: forks after a parallel call of one thread,
#: four threads in one kernel, forks while threads are in the middle of different ones.
LAYER = """
import time, warnings
from rlcpu.replay import PrioritizedReplayBuffer, ReplayBuffer
from rlcpu.scan import linear_scan, logcumsumexp, solve_tridiagonal

warnings.simplefilter("ignore")  # Python warns of forks in a process with threads

def exit_of_child(agrees):
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if agrees() else 3)
        finally:
            os._exit(4)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def run_all(workers, meanwhile=lambda: None):
    for worker in workers:
        worker.start()
    meanwhile()
    for worker in workers:
        worker.join()

report = {"expected": run(1, rollouts=False)}
if hasattr(os, "fork"):
    agrees = lambda: run(1, rollouts=False) == report["expected"]
    report["forks"] = [exit_of_child(agrees) for _ in range(2)]
report["layer"] = threading_layer()
report["again"] = run(1, rollouts=False)

seeds, found, start = range(4), {}, threading.Barrier(4)

def work(seed):
    start.wait()
    found[seed] = [run(seed, rollouts=False) for _ in range(5)]

run_all([threading.Thread(target=work, args=(seed,)) for seed in seeds])
report["at once"] = [set(found[seed]) == {run(seed, 1, rollouts=False)} for seed in seeds]

rng = np.random.default_rng(0)
a, b = rng.random((2, 300, 400))
example = {"observation": np.zeros(60), "reward": 0.0}
buffers = [kind(4000, example, seed=0) for kind in (ReplayBuffer, PrioritizedReplayBuffer)]
for buffer in buffers:
    buffer.add({"observation": rng.random((2000, 60)), "reward": rng.random(2000)})
env = rlcpu.make_vec("CartPole-v1", 8192)
policy = rlcpu.policies.MLP(env.single_observation_space, env.single_action_space, hidden=(8,))
env.reset(seed=0)
tasks = [
    lambda: run(0, None, rollouts=False),
    lambda: rlcpu.simulate(env, policy, 20) and None,
    lambda: buffers[0].sample(2000) and None,
    lambda: buffers[1].sample(2000) and None,
    lambda: linear_scan(a, b, axis=0).tobytes(),
    lambda: logcumsumexp(a, axis=1).tobytes(),
    lambda: solve_tridiagonal(-a, 2.5, -b, a, check="residual").tobytes(),
]
expected = [task() for task in tasks]
found, stop, forked = [[] for _ in tasks], time.monotonic() + 1, threading.Event()

def repeat(task, results):
    # A thread of Python's that ends holds a lock of libgcc's unwinder, for which a child that is
    # forked at that moment waits for ever as it loads a kernel: none ends before the last fork.
    while not (results and forked.is_set()):
        results.append(task())

def fork():
    agrees = lambda: [tasks[4](), tasks[6]()] == [expected[4], expected[6]]
    report["mixed forks"] = []
    try:
        while time.monotonic() < stop:
            if hasattr(os, "fork"):
                report["mixed forks"].append(exit_of_child(agrees))
            time.sleep(0.1)
    finally:
        forked.set()

run_all([threading.Thread(target=repeat, args=pair) for pair in zip(tasks, found)], fork)
report["mixed"] = [set(results) == {value} for results, value in zip(found, expected)]
print(json.dumps(report))
"""


@pytest.mark.parametrize("layer", LAYERS)
def test_threads_and_forks_do_no_harm(layer):
    report = run_python("-c", WORK + LAYER, NUMBA_THREADING_LAYER=layer, NUMBA_NUM_THREADS=2)
    assert report["layer"] == layer
    assert report["again"] == report["expected"]
    assert report["at once"] == [True] * 4
    assert report["mixed"] == [True] * 7
    if hasattr(os, "fork"):
        assert report["forks"] == [0, 0]
        assert set(report["mixed forks"]) == {0}


#: A fork while another thread compiles, from a cache that is empty.
COMPILING = """
import json, os, signal, threading, time, warnings
import numpy as np
from rlcpu.scan import logcumsumexp

warnings.simplefilter("ignore")  # Python warns of forks in a process with threads
x = np.ones(3)
compiling = threading.Thread(target=logcumsumexp, args=(x,))
compiling.start()
time.sleep(0.3)  # it takes seconds
child = os.fork()
if child == 0:
    signal.alarm(60)
    os._exit(0 if np.isfinite(logcumsumexp(x)).all() else 3)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
compiling.join()
print(json.dumps(code))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_while_another_thread_compiles_leaves_the_child_no_lock(tmp_path):
    assert run_python("-c", COMPILING, NUMBA_CACHE_DIR=tmp_path) == 0


#: With one CPU: what starts threads elsewhere, then a fork.
ONE_CPU = """
import os, subprocess, sys
os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])
"""
ENDS = """
from rlcpu.kernels.machine.threads import default_num_threads
run(0, rollouts=False)
subprocess.run([sys.executable, "-c", ""], preexec_fn=lambda: None)
print(json.dumps([numba.config.NUMBA_NUM_THREADS, default_num_threads()]))
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="CPUs cannot be chosen")
def test_a_process_with_one_cpu_that_has_forked_comes_to_its_end():
    """TBB, had it been started, would wait for ever for a worker that one CPU does not have."""
    assert run_python("-c", ONE_CPU + WORK + ENDS, NUMBA_NUM_THREADS=None) == [1, 1]


def test_parallel_kernels_are_started_in_one_place():
    package = Path(rlcpu.__file__).parent
    users = [p for p in package.rglob("*.py") if re.search(r"\.parallel\b", p.read_text("utf-8"))]
    assert [path.name for path in users if path.parent.name != "cuda"] == ["threads.py"]


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


@pytest.mark.parametrize(
    ("callers", "lost"), [("this thread", {"omp"}), ("two threads", {"omp", "tbb"})]
)
def test_forked_children_are_serial_where_the_layer_is_lost(kernels, callers, lost, monkeypatch):
    idents = {threading.get_ident()} | ({-1} if callers == "two threads" else set())
    monkeypatch.setattr(threads, "_callers", idents)
    for name in ("_lost_in_fork", "_one_at_a_time"):
        monkeypatch.setattr(threads, name, getattr(threads, name))
    threads._mark_forked()
    assert threads.is_forked()
    for layer in ("omp", "tbb", "workqueue"):
        expected = "serial" if layer in lost else "parallel"
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


def test_a_fork_during_a_parallel_kernel_leaves_the_child_its_own_lock(kernels, monkeypatch):
    use_layer(monkeypatch, "workqueue")
    for name, value in (("_lost_in_fork", frozenset()), ("_one_at_a_time", threading.Lock())):
        monkeypatch.setattr(threads, name, value)
    with threads._one_at_a_time:
        assert launch(kernels, 100, None)[0] == "serial"
        threads._mark_forked()
        assert launch(kernels, 100, None)[0] == "parallel"


# ---------------------------------------------------------------- how many threads


def make_group(root, lines, **files):
    """A root folder with control groups: /proc/self/cgroup, and files by their paths."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text("\n".join(lines) + "\n")
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def quota_files(folder, quota, period=100_000):
    return {f"{folder}cpu.cfs_quota_us": f"{quota}\n", f"{folder}cpu.cfs_period_us": f"{period}\n"}


V1 = ["7:cpu,cpuacct:/docker/abc", "3:memory:/docker/abc", "1:cpuset:/docker/abc"]
GROUPS = [
    (["0::/"], {"cpu.max": "200000 100000\n"}, 2),
    (["0::/"], {"cpu.max": "150000 100000\n"}, 2),
    (["0::/"], {"cpu.max": "5000 100000\n"}, 1),
    (["0::/"], {"cpu.max": "max 100000\n"}, None),
    (["0::/"], {"cpu.max": "broken\n"}, None),
    (["0::/"], {}, None),
    (["0::/a/b"], {"a__b__cpu.max": "max 100000", "a__cpu.max": "300000 100000"}, 3),
    (["0::/a/b"], {"a__b__cpu.max": "100000 50000", "a__cpu.max": "300000 100000"}, 2),
    (["0::/host/only"], {"cpu.max": "400000 100000"}, 4),
    (["0::/../.."], {"cpu.max": "400000 100000"}, 4),
    (V1, quota_files("cpu__", 250_000), 3),
    (V1, quota_files("cpu__docker__abc__", 200_000), 2),
    (V1, quota_files("cpu__", -1), None),
    (["0::/", *V1], quota_files("cpu__", 100_000, 50_000), 2),
]


@pytest.fixture
def many_cpus(monkeypatch):
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "process_cpu_count", lambda: 64, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)


@pytest.mark.parametrize(("lines", "files", "expected"), GROUPS)
def test_limits_of_control_groups(tmp_path, many_cpus, lines, files, expected):
    make_group(tmp_path, lines, **files)
    limit = (64, "") if expected is None else (expected, "cgroup limit")
    assert threads.usable_cpus(tmp_path) == limit


def test_the_least_of_all_limits_holds(tmp_path, many_cpus, monkeypatch):
    assert threads.usable_cpus(tmp_path / "nothing") == (64, "")
    make_group(tmp_path, ["0::/"], **{"cpu.max": "1600000 100000"})
    assert threads.usable_cpus(tmp_path) == (16, "cgroup limit")
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "8")
    assert threads.usable_cpus(tmp_path) == (8, "SLURM_CPUS_PER_TASK")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {5, 6, 7}, raising=False)
    assert threads.usable_cpus(tmp_path) == (3, "affinity")
    for odd in ("", "0", "many"):
        monkeypatch.setenv("SLURM_CPUS_PER_TASK", odd)
        assert threads.usable_cpus(tmp_path) == (3, "affinity")


LIMITED = """
import json, os, threading
from pathlib import Path
import numba
from rlcpu.kernels.machine import threads, vectors

real, group = threads.usable_cpus, Path(os.environ["GROUP"])
threads.usable_cpus = lambda: real(group)
kernels = threads.Kernels(lambda: 1, numba.get_num_threads, grain=0)
counts = []
ask = lambda: counts.append(threads.launch(kernels, 1, None))
ask()
worker = threading.Thread(target=ask)
worker.start()
worker.join()
counts.append(threads.launch(kernels, 1, min(3, numba.config.NUMBA_NUM_THREADS)))
numba.set_num_threads(max(1, numba.config.NUMBA_NUM_THREADS - 1))
ask()
print(json.dumps([counts, threads.show_config()["threads"]]))
"""


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="nothing to limit")
def test_a_share_of_one_cpu_is_one_thread(tmp_path):
    make_group(tmp_path, ["0::/"], **{"cpu.max": "100000 100000"})
    count = numba.config.NUMBA_DEFAULT_NUM_THREADS
    environment = {"GROUP": str(tmp_path), "SLURM_CPUS_PER_TASK": None}
    counts, shown = run_python("-c", LIMITED, NUMBA_NUM_THREADS=None, **environment)
    assert counts == [1, 1, min(3, count), max(1, count - 1)]
    counts, shown = run_python("-c", LIMITED, NUMBA_NUM_THREADS=4, **environment)
    assert counts == [4, 4, 3, 3]  # what the user says counts more
    assert shown.endswith("(numba.set_num_threads)")


def test_configuration_names_what_limits_the_threads(many_cpus, monkeypatch):
    monkeypatch.setattr(threads, "_usable_cpus", lambda: threads.UsableCpus(2, "cgroup limit"))
    monkeypatch.setattr(threads, "_limit", lambda: 64)
    monkeypatch.setattr(numba, "get_num_threads", lambda: 64)
    assert show_config()["threads"] == "2 of 64 (cgroup limit)"


def test_configuration_says_what_a_layer_lacks(monkeypatch):
    for layer, lack in (("omp", "fork"), ("workqueue", "one parallel kernel at a time")):
        use_layer(monkeypatch, layer)
        assert re.fullmatch(
            rf"{layer} \(.*{lack}.* install tbb.*\)", show_config()["threading layer"]
        )
    use_layer(monkeypatch, "tbb")
    assert show_config()["threading layer"] == "tbb"


@pytest.mark.parametrize(
    ("machine", "features", "expected"),
    [
        ("x86_64", "+64bit,+sse2,+avx,+avx2,+avx512f", "512 bits (AVX-512)"),
        ("AMD64", "+sse2,+avx2,-avx512f", "256 bits (AVX2)"),
        ("x86_64", "", "128 bits (SSE)"),
        ("aarch64", "+neon,+fp-armv8", "128 bits (NEON)"),
        ("arm64", "+neon", "128 bits (NEON)"),
        ("aarch64", "+neon,+sve,+sve2", "128 bits (NEON, SVE)"),
    ],
)
def test_configuration_names_the_vectors(monkeypatch, machine, features, expected):
    """NUMBA_CPU_FEATURES is what numba compiles for, whatever the machine has."""
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr(numba.config, "CPU_FEATURES", features)
    monkeypatch.setattr(numba.config, "CPU_NAME", "some-cpu")
    monkeypatch.setattr(vectors, "VECTOR_BYTES", vectors._vector_bytes())
    assert show_config()["vector width"] == expected
    assert show_config()["cpu"] == "some-cpu"


@pytest.mark.parametrize("place", ["/numba/__init__.py", "/a/numba/__init__.py", "numba.py"])
def test_numba_may_be_installed_at_a_shallow_path(monkeypatch, place):
    monkeypatch.setattr(numba, "__file__", place)
    threads._load_tbb()


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
    assert config["threading layer"].split()[0] in ("tbb", "omp", "workqueue")
    assert re.fullmatch(r"(128|256|512) bits \(.*\)", config["vector width"])
    assert os.path.isdir(config["cache folder"])
    assert all(isinstance(value, str) and value for value in config.values())
