"""What a process and its actors find of a machine's limits: real ones, made for the test."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("ray")

from rlcpu.kernels.threads import usable_cpus

pytestmark = pytest.mark.parallel  # others are told of one CPU alone
ROOT = Path(__file__).parents[2]
#: Arguments of `sh` that join a group, the first argument, and become the program of the others.
JOIN = "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"'
#: Prints what an actor finds, and what it is kept to.
SCRIPT = """if True:
    import json, os
    from rlcpu.distributed import Cluster, Collector
    from rlcpu.kernels.processors import numa_nodes
    from rlcpu.kernels.threads import usable_cpus

    class Probe(Collector):
        def __init__(self):
            self._nodes = [[cpu] for node in numa_nodes() for cpu in node]  # as if each were one

        def look(self):
            return [*usable_cpus(), sorted(os.sched_getaffinity(0))]

    with Cluster(1) as cluster:
        probe = cluster.start(Probe)
        found = probe.result(probe.call("look"))
        probe.call("pin", 0, 1)
        pinned = probe.result(probe.call("look"))[-1]
    print(json.dumps({"actor": found, "pinned": pinned}))
"""


def run(*launcher):
    """What `rlcpu info` and the script print where they are started by a launcher."""
    told = []
    for program in (["-m", "rlcpu", "info"], ["-W", "error", "-c", SCRIPT]):
        command = [*map(str, launcher), sys.executable, *program]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        told.append(done.stdout.splitlines())
    info = {name: value.strip() for name, value in (line.split("  ", 1) for line in told[0])}
    return {**info, **json.loads(told[1][-1])}


@pytest.fixture
def cpus():
    """Those of this process, two at least, without a limit of their time."""
    count, why = usable_cpus()
    if sys.platform != "linux" or count < 2 or why not in ("", "affinity"):
        pytest.skip(f"nothing to limit: {count} CPUs on {sys.platform}, limited by {why or 'none'}")
    return sorted(os.sched_getaffinity(0))


@pytest.fixture
def group():
    """A control group of this machine whose processes may use the time of one CPU."""
    limits = {"cpu": ("cpu.cfs_quota_us", "100000"), "": ("cpu.max", "100000 100000")}
    why = "none has a controller of CPUs"
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in set(controllers.split(",")) & set(limits):
            folder = Path("/sys/fs/cgroup", controller, path.strip("/"), f"rlcpu-{os.getpid()}")
            name, limit = limits[controller]
            try:
                folder.mkdir()
            except OSError as error:
                why = str(error)
                continue
            try:
                (folder / name).write_text(limit)
                yield folder
                return
            except OSError as error:
                why = str(error)
            finally:
                remove(folder)
    pytest.skip(f"no control group can be made: {why}")


def remove(group):
    """Remove a group as soon as its last process has ended."""
    end = time.monotonic() + 30.0
    while (group / "cgroup.procs").read_text() and time.monotonic() < end:
        time.sleep(0.1)
    group.rmdir()


@pytest.mark.skipif(shutil.which("taskset") is None, reason="there is no taskset")
def test_a_process_and_its_actors_keep_to_the_cpus_of_taskset(cpus):
    found = run("taskset", "-c", cpus[-1])
    assert found["threads"] == f"1 of {os.cpu_count()} (affinity)"
    assert found["limits of CPUs"] == "1 (affinity)"
    assert found["numa nodes"] == "1 (1 CPUs)"
    assert found["actor"] == [1, "affinity", cpus[-1:]]
    assert found["pinned"] == cpus[-1:]


def test_a_process_and_its_actors_keep_to_the_limit_of_a_control_group(cpus, group):
    found = run("sh", *JOIN, group)
    assert found["threads"] == f"1 of {os.cpu_count()} (cgroup limit)"
    assert found["limits of CPUs"] == "1 (cgroup limit)"
    assert found["numa nodes"] == f"1 ({len(cpus)} CPUs)"
    assert found["actor"] == [1, "cgroup limit", cpus]
    assert found["pinned"] == cpus[:1]


def test_a_process_and_its_actors_keep_to_the_limit_of_slurm(cpus):
    found = run("env", "SLURM_CPUS_PER_TASK=1")
    assert found["threads"] == f"1 of {os.cpu_count()} (SLURM_CPUS_PER_TASK)"
    assert found["limits of CPUs"] == "1 (SLURM_CPUS_PER_TASK), SLURM_CPUS_PER_TASK=1"
    assert found["actor"] == [1, "SLURM_CPUS_PER_TASK", cpus]
