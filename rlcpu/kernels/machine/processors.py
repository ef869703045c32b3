"""The CPUs of this machine: what limits them, their NUMA nodes, and how processes divide them."""

from __future__ import annotations

import os
from pathlib import Path

from rlcpu.kernels.machine.threads import usable_cpus

#: What Slurm tells of CPUs; the first of them limits threads.
_OF_SLURM = ("SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE", "SLURM_JOB_CPUS_PER_NODE")


def numa_nodes(root: Path = Path("/")) -> list[list[int]]:
    """Return the CPUs of each NUMA node that this process may use; one list without such nodes.

    Args:
        root: folder in the place of `/`, for tests.
    """
    allowed = set(range(os.cpu_count() or 1))
    if hasattr(os, "sched_getaffinity"):
        allowed = os.sched_getaffinity(0)
    folders = (root / "sys/devices/system/node").glob("node[0-9]*")
    nodes = []
    for folder in sorted(folders, key=lambda path: int(path.name[4:])):
        ranges = (folder / "cpulist").read_text().strip().split(",")  # such as 0-3,8; or nothing
        ends = [[int(end) for end in text.split("-")] for text in ranges if text]
        cpus = [cpu for pair in ends for cpu in range(pair[0], pair[-1] + 1)]
        nodes.append([cpu for cpu in cpus if cpu in allowed])
    return [node for node in nodes if node] or [sorted(allowed)]


def share_of_cpus(index: int, count: int, nodes: list[list[int]]) -> list[int]:
    """Return the CPUs for process `index` of `count` on a machine: some of one NUMA node.

    `nodes` has the CPUs of each node. Processes take turns among nodes, so that all nodes' memory
    is read. Those of a node divide its CPUs evenly; if there are fewer CPUs than processes, each
    gets all CPUs of the node.
    """
    node_number, rank = index % len(nodes), index // len(nodes)  # the rank is that in its node
    cpus, num_processes = nodes[node_number], len(range(node_number, count, len(nodes)))
    if num_processes > len(cpus):
        return cpus
    return cpus[rank * len(cpus) // num_processes : (rank + 1) * len(cpus) // num_processes]


def show_cpus(root: Path = Path("/")) -> dict[str, str]:
    """Return lines of `rlcpu info`: the limit of threads, those that Slurm sets, and NUMA nodes."""
    usable = usable_cpus(root)
    slurm = {name: value for name, value in os.environ.items() if name in _OF_SLURM}
    limits = [f"{usable.number} ({usable.limit})"] if usable.limit else []
    limits += [f"{name}={value}" for name, value in slurm.items()]
    sizes = [len(node) for node in numa_nodes(root)]
    return {
        "limits of CPUs": ", ".join(limits) or "none",
        "numa nodes": f"{len(sizes)} ({' + '.join(map(str, sizes))} CPUs)",
    }
