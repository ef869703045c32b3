"""Compiles kernels to sm_90 machine code without a GPU, and reports what they need.

    .venv-cuda/bin/python tests/cuda/ptx.py envs [--only NAME] [--save FOLDER]

prints, as JSON, for each kernel of `tests/cuda/envs/kernels.py` its registers, its stack, its
spills and how often it computes in double precision; --save keeps the PTX. It runs in an
environment with NVIDIA's compiler: `make cuda` makes `.venv-cuda`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import struct
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
ARCHITECTURE = (9, 0)


class Job(NamedTuple):
    """A kernel to compile.

    Attributes:
        name: in the report.
        kernel: `rlcpu.cuda.compile.Kernel`.
        arguments: Numba's types of its arguments: texts such as "float32[::1], int64", and for a
            NamedTuple its class and the types of its fields.
    """

    name: str
    kernel: Any
    arguments: tuple[Any, ...]


def load(package: str) -> Iterator[Job]:
    """The jobs of one package: what `jobs()` of its kernels.py yields, arguments last."""
    path = HERE / package / "kernels.py"
    spec = importlib.util.spec_from_file_location(f"kernels_{package}", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield from (Job(name, kernel, arguments) for name, kernel, *arguments in module.jobs())


def types_of(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Numba's types of a job's arguments."""
    from numba.cuda import types as numba_types
    from numba.cuda.core import sigutils

    found: list[Any] = []
    for argument in arguments:
        if isinstance(argument, str):
            found += sigutils.normalize_signature(f"({argument},)")[0]
        else:
            made, *fields = argument
            found.append(numba_types.NamedTuple(types_of(fields), made))
    return tuple(found)


def pretend_device() -> None:
    """Give device functions, which ask for the current device, the one that is compiled for."""
    from numba.cuda import dispatcher

    device = types.SimpleNamespace(compute_capability=ARCHITECTURE)
    dispatcher.get_current_device = lambda: device


class Linked(NamedTuple):
    """What the linker makes of a kernel."""

    ptx: str
    log: str  # says what the machine code needs


def link(job: Job) -> Linked:
    """Compile a kernel for sm_90, as a launch does."""
    code = job.kernel.compile(types_of(job.arguments), ARCHITECTURE)
    ptx, _ = job.kernel.link(code, ARCHITECTURE, "-ptx")
    _, log = job.kernel.link(code, ARCHITECTURE, "-verbose")
    return Linked(ptx.rstrip(b"\0").decode(), log)


def needs(linked: Linked) -> dict[str, Any]:
    """What a kernel needs."""

    def most(pattern: str) -> int:
        return max(map(int, re.findall(pattern, linked.log)), default=0)

    return {
        "registers": most(r"Used (\d+) registers"),
        "stack": most(r"(\d+) bytes stack frame"),
        "spills": most(r"(\d+) bytes spill stores") + most(r"(\d+) bytes spill loads"),
        "shared": most(r"(\d+) bytes smem"),
        "doubles": len(re.findall(r"\.f64\b", linked.ptx)),
    }


def misplaced(job: Job, linked: Linked) -> str:
    """What of the buffer of a launch lies elsewhere than the kernel reads it; "" if nothing."""
    from rlcpu.cuda.device import layout_of

    (entry,) = re.findall(r"\.entry [^(]*\(([^)]*)\)", linked.ptx)
    declared = re.findall(r"\.param \.[a-z](\d+) ", entry)
    sizes = [int(bits) // 8 for bits in declared]
    end, places = 0, []
    for size in sizes:
        places.append(-(-end // size) * size)
        end = places[-1] + size
    layout = layout_of(types_of(job.arguments)).replace("16x5q", "7q")
    codes = "".join(code * int(count or 1) for count, code in re.findall(r"(\d*)(\D)", layout))
    # Where a value ends in the buffer, less its size, is where it begins.
    ends = [struct.calcsize("@" + codes[: k + 1]) for k in range(len(codes))]
    packed = [stop - struct.calcsize(code) for stop, code in zip(ends, codes, strict=True)]
    same = packed == places and [struct.calcsize(code) for code in codes] == sizes
    return "" if same else f"packed {packed}, read {places}"


def table(package: str, only: str, folder: Path | None) -> dict[str, dict[str, Any]]:
    """What each kernel of a package needs, by name."""
    pretend_device()
    report: dict[str, dict[str, Any]] = {}
    for job in load(package):
        if only in job.name:
            try:
                linked = link(job)
            except Exception as error:
                report[job.name] = {"error": str(error)}
                continue
            report[job.name] = needs(linked) | {"misplaced": misplaced(job, linked)}
            if folder:
                (folder / f"{job.name.replace(' ', '-')}.ptx").write_text(linked.ptx)
    return report


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package", choices=sorted(p.parent.name for p in HERE.glob("*/kernels.py")))
    parser.add_argument("--only", metavar="NAME", default="", help="kernels whose name has NAME")
    parser.add_argument("--save", metavar="FOLDER", type=Path, help="where to keep the PTX")
    options = parser.parse_args()
    sys.path.insert(0, str(HERE.parents[1]))
    rows = table(options.package, options.only, options.save)
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
