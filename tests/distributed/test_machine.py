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

from rlcpu.kernels.machine.threads import usable_cpus

pytestmark = pytest.mark.parallel  # others are told of one CPU alone
ROOT = Path(__file__).parents[2]
#: Arguments of `sh` that join a group, the first argument, and become the program of the others.
JOIN = "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"'
#: Prints what an actor finds, then without its mask of CPUs, and what it is kept to in the end.
SCRIPT = """if True:
    import json, os, sys
    from rlcpu.distributed import Cluster, Collector
    from rlcpu.kernels.machine.threads import usable_cpus

    class Probe(Collector):
        def __init__(self, cpus):
            self._nodes = [[cpu] for cpu in cpus]  # as if each were a NUMA node

        def look(self):
            cpus = sorted(os.sched_getaffinity(0))
            return [*usable_cpus(), cpus, os.environ.get("SLURM_CPUS_PER_TASK")]

        def free(self):
            os.sched_setaffinity(0, [cpu for node in self._nodes for cpu in node])

    with Cluster(1) as cluster:
        probe = cluster.start(Probe, json.loads(sys.argv[1]))
        looks = [probe.call("look")]
        for change in ("free",), ("pin", 0, 1):
            probe.call(*change)
            looks.append(probe.call("look"))
        print(json.dumps([probe.result(look) for look in looks]))
"""


def run(launcher, *program):
    """What a program of Python prints where it is started by a launcher."""
    command = [*map(str, launcher), sys.executable, "-W", "error", *program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


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
def test_a_process_and_its_actors_keep_to_the_limits_of_the_machine(cpus, group):
    """Of taskset, of a control group, of Slurm: a process to each, its actors to all at once."""
    launchers = {
        "affinity": ("taskset", "-c", cpus[-1]),
        "cgroup limit": ("sh", *JOIN, group),
        "SLURM_CPUS_PER_TASK": ("env", "SLURM_CPUS_PER_TASK=1"),
    }
    for limit, launcher in launchers.items():
        lines = run(launcher, "-m", "rlcpu", "info")
        info = {name: value.strip() for name, value in (line.split("  ", 1) for line in lines)}
        assert info["threads"] == f"1 of {os.cpu_count()} ({limit})"
        assert info["limits of CPUs"].startswith(f"1 ({limit})")
        count = 1 if limit == "affinity" else len(cpus)
        assert info["numa nodes"] == f"1 ({count} CPUs)"
    every = [word for launcher in launchers.values() for word in launcher]
    found, freed, pinned = json.loads(run(every, "-c", SCRIPT, json.dumps(cpus))[-1])
    assert found == [1, "affinity", cpus[-1:], "1"]
    assert freed == [1, "cgroup limit", cpus, "1"]
    assert pinned[2] == cpus[:1]
