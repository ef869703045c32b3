"""What a benchmark ran on."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

DISTRIBUTIONS = (
    *("rlcpu", "numpy", "numba", "llvmlite", "tbb", "gymnasium"),
    *("envpool", "gymnax", "craftax", "minatar", "mujoco", "ray", "jax", "jaxlib", "torch"),
    "stable_baselines3",
    *("flashbax", "torchrl", "tianshou", "cpprb"),
    *("scipy", "statsmodels", "rlax"),
)


def describe() -> dict[str, Any]:
    """CPU, cores, versions and date, for the JSON file."""
    return {
        "name": name(),
        "cpu": cpu_name(),
        "cores": cores(),
        "system": f"{platform.system()} {platform.machine()}",
        "date": dt.date.today().isoformat(),
        "versions": versions(),
    }


def name() -> str:
    """A name for files, such as "amd-epyc-2-cores": host names change with every container."""
    slug = re.sub(r"\((r|tm)\)|\b(cpu|processor)\b|@.*", "", cpu_name().lower())
    return "-".join(re.findall(r"[a-z0-9.]+", f"{slug} {cores()} cores"))


def cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_name() -> str:
    """The CPU's name as the system gives it."""
    cpuinfo = Path("/proc/cpuinfo")
    found = cpuinfo.exists() and re.search(r"model name\s*:\s*(.+)", cpuinfo.read_text())
    return found[1].strip() if found else platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """Versions of Python, gcc and every installed distribution of `DISTRIBUTIONS`."""
    found = {"python": platform.python_version()}
    for distribution in DISTRIBUTIONS:
        try:
            found[distribution] = importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    if shutil.which("gcc"):
        gcc = subprocess.run(["gcc", "-dumpfullversion"], capture_output=True, text=True)
        found["gcc"] = gcc.stdout.strip()
    return found


if __name__ == "__main__":
    print(name())
