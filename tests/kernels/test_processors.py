"""NUMA nodes, limits, and the division of a machine's CPUs, on trees of files like Linux's."""

import itertools
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcpu.kernels.machine.processors import numa_nodes, share_of_cpus, show_cpus
from tests.kernels.processes import run_python


@pytest.fixture
def many_cpus(monkeypatch):
    for name in ("SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE", "SLURM_JOB_CPUS_PER_NODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "process_cpu_count", lambda: 64, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)


def make_nodes(root, *cpulists):
    """A `/sys` with NUMA nodes."""
    for number, cpulist in enumerate(cpulists):
        folder = root / f"sys/devices/system/node/node{number}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(cpulist + "\n")


def test_numa_nodes_are_those_of_linux(tmp_path, many_cpus, monkeypatch):
    assert numa_nodes(tmp_path) == [list(range(64))]
    cpulists = ["0-3,32-35", "4-7,36-39", "", *[str(cpu) for cpu in range(8, 17)]]
    make_nodes(tmp_path, *cpulists)
    nodes = numa_nodes(tmp_path)
    assert nodes[:2] == [[0, 1, 2, 3, 32, 33, 34, 35], [4, 5, 6, 7, 36, 37, 38, 39]]
    assert nodes[2:] == [[cpu] for cpu in range(8, 17)]  # memory without CPUs is left out
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 4, 36}, raising=False)
    assert numa_nodes(tmp_path) == [[3], [4, 36]]


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="CPUs cannot be chosen")
def test_numa_nodes_have_the_cpus_that_the_process_may_use(tmp_path):
    cpu = max(os.sched_getaffinity(0))
    make_nodes(tmp_path, "0-4095")
    script = f"""if True:
        import os, json
        from pathlib import Path
        os.sched_setaffinity(0, [{cpu}])
        from rlcpu.kernels.machine.processors import numa_nodes
        print(json.dumps(numa_nodes(Path({str(tmp_path)!r}))))
    """
    assert run_python("-c", script) == [[cpu]]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(1, 20))
def test_processes_get_cpus_of_one_node_that_are_theirs_alone(sizes, count):
    ends = np.cumsum([0, *sizes]).tolist()
    nodes = [list(range(begin, end)) for begin, end in itertools.pairwise(ends)]
    shares = [share_of_cpus(index, count, nodes) for index in range(count)]
    for node in nodes:
        own = [share for share in shares if set(share) <= set(node)]
        taken = [cpu for share in own for cpu in share]
        assert all(own)
        assert not own or set(taken) == set(node)
        assert len(own) > len(node) or len(taken) == len(set(taken))
    assert all(any(set(share) <= set(node) for node in nodes) for share in shares)


def test_what_was_found_is_told(tmp_path, many_cpus, monkeypatch):
    expected = {"limits of CPUs": "none", "numa nodes": "1 (64 CPUs)"}
    assert show_cpus(tmp_path) == expected
    make_nodes(tmp_path, "0-39", "40-63")
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "48")
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/\n")
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cpu.max").write_text("150000 100000\n")
    assert show_cpus(tmp_path) == {
        "limits of CPUs": "2 (cgroup limit), SLURM_CPUS_ON_NODE=48",
        "numa nodes": "2 (40 + 24 CPUs)",
    }
