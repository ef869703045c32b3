"""Compiles kernels to sm_90 machine code without a GPU, and reports what they need.

    .venv-cuda/bin/python tests/cuda/ptx.py envs [--only NAME] [--save FOLDER]

prints, as JSON, for each kernel of `tests/cuda/envs/kernels.py` its registers, its stack, its
spills and how often it computes in double precision; --save keeps the PTX. It runs in an
environment with NVIDIA's compiler: `make cuda` makes `.venv-cuda`.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
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


def compile_to_ptx(job: Job) -> str:
    """PTX of a kernel for sm_90."""
    from rlcpu.cuda.compile import arithmetic
    from rlcpu.cuda.device import cuda

    args = types_of(job.arguments)
    with arithmetic(job.kernel.exact):
        fast = not job.kernel.exact
        function = job.kernel.dispatcher.py_func
        ptx, _ = cuda.compile_ptx(function, args, cc=ARCHITECTURE, fastmath=fast)
    limit = job.kernel.dispatcher.targetoptions.get("max_registers")
    return re.sub(r"(?m)^\{", f".maxnreg {limit}\n{{", str(ptx), count=1) if limit else str(ptx)


def pretend_device() -> None:
    """Give device functions, which ask for the current device, the one that is compiled for."""
    from numba.cuda import dispatcher

    device = types.SimpleNamespace(compute_capability=ARCHITECTURE)
    dispatcher.get_current_device = lambda: device


def assemble(ptx: str) -> dict[str, Any]:
    """What ptxas reports of a kernel."""
    (ptxas,) = Path(sys.prefix).rglob("nvidia/*/bin/ptxas")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernel.ptx")
        source.write_text(ptx)
        command = [str(ptxas), "-arch=sm_90", "-v", str(source), "-o", os.devnull]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        return {"error": result.stderr}
    report = result.stderr

    def most(pattern: str) -> int:
        return max(map(int, re.findall(pattern, report)), default=0)

    return {
        "registers": most(r"Used (\d+) registers"),
        "stack": most(r"(\d+) bytes stack frame"),
        "spills": most(r"(\d+) bytes spill stores") + most(r"(\d+) bytes spill loads"),
        "shared": most(r"(\d+) bytes smem"),
        "doubles": len(re.findall(r"\.f64\b", ptx)),
    }


def table(package: str, only: str, folder: Path | None) -> dict[str, dict[str, Any]]:
    """What each kernel of a package needs, by name."""
    pretend_device()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        pending: dict[str, Any] = {}
        for job in load(package):
            if only not in job.name:
                continue
            try:
                ptx = compile_to_ptx(job)
            except Exception as error:
                pending[job.name] = pool.submit(dict, error=str(error))
                continue
            pending[job.name] = pool.submit(assemble, ptx)
            if folder:
                (folder / f"{job.name.replace(' ', '-')}.ptx").write_text(ptx)
        return {name: future.result() for name, future in pending.items()}


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
