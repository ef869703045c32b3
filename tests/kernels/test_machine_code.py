"""All kernels of an environment of ours, compiled in a process that found an empty cache.

Those of float32 compute in vectors of single precision, without double arithmetic; and a second
process compiles nothing.
"""

import platform
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rlcpu.kernels.machine.threads import show_config
from tests.kernels.processes import files_in, run_python
from tests.kernels.programs import USE

reads_avx = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64")
    or show_config()["vector width"].startswith("128"),
    reason="reads x86 code with AVX",
)

#: Sums of a block are float64, because float32 loses episodes after 2**24 of them: every 256 steps
#: the numbers of 64 lanes are converted and added, which the loop over lanes does not see. At the
#: end of a call the sums are asked once whether they are finite.
SUMS = {"vcvtss2sd", "vaddsd", "vcvtps2pd", "vaddpd", "vmovsd", "vmovupd", "vmovapd"}
SUMS |= {"vfmadd213sd", "vfmadd231sd", "vmulsd", "vucomisd"}
SUMS |= {"vcvtsi2sd", "vsubsd", "vcmpneqsd"}  # of a block: the lengths of episodes, and faults
#: An embedding compares a choice with the number of choices, which float64 holds exactly.
CHOICES = {"vcvtsi2sd", "vcvtss2sd", "vucomisd"}
#: Moves and permutations of 64 bits at a time: no arithmetic.
MOVES = re.compile(r"v?(mov|shuf|unpck|perm|blend|broadcast|insert|extract|gather|and|xor|or)")
LIBM = ("sin", "cos", "tan", "exp", "log", "tanh", "pow", "floor", "fmod")
ARITHMETIC = re.compile(r"v(add|sub|mul|div|sqrt|min|max|fn?m(add|sub)\d+)ps [yz]mm")


NAMES = ["step", "simulate", "collect", "layers"]
BUILT_IN = "use(rlcpu.make_vec('MountainCar-v0', 70), assembly={assembly})"


class Compiled(NamedTuple):
    """What the process said, and the folder of the machine code that it left."""

    report: Any
    cache: Path


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """MountainCar-v0 in a process that found an empty cache."""
    cache = tmp_path_factory.mktemp("cache")
    program = USE + BUILT_IN.format(assembly=True)
    return Compiled(run_python("-c", program, NUMBA_CACHE_DIR=cache, PYTHONHASHSEED=1), cache)


def test_a_second_process_compiles_nothing(compiled):
    files = files_in(compiled.cache)
    assert compiled.report["compiled"] > 0
    assert len(files) >= 6  # those of `NAMES`
    program = USE + BUILT_IN.format(assembly=False)
    second = run_python("-c", program, NUMBA_CACHE_DIR=compiled.cache, PYTHONHASHSEED=2)
    assert second == {"compiled": 0, "digest": compiled.report["digest"]}
    assert files_in(compiled.cache) == files


@reads_avx
@pytest.mark.parametrize("name", NAMES)
def test_float32_kernels_do_no_double_arithmetic(compiled, name):
    mnemonics = {mnemonic.split()[0] for mnemonic in compiled.report["assembly"][name][0]}
    double = {m for m in mnemonics if re.search(r"(p|s)d(2\w+)?$|2(p|s)d", m)}
    double = {m for m in double if not MOVES.match(m)}
    assert double - {"simulate": SUMS, "layers": CHOICES}.get(name, set()) == set()


@reads_avx
@pytest.mark.parametrize("name", NAMES)
def test_float32_kernels_compute_in_vectors(compiled, name):
    found = sum(
        count for m, count in compiled.report["assembly"][name][0].items() if ARITHMETIC.match(m)
    )
    assert found >= 1  # how often the loop is unrolled is the processor's matter


@reads_avx
@pytest.mark.parametrize("name", NAMES)
def test_float32_kernels_call_no_mathematics_of_libm(compiled, name):
    # A call saves and restores all vector registers: one in the loop over lanes undoes its vectors.
    _, symbols = compiled.report["assembly"][name]
    assert symbols or name == "layers"
    assert not {f"{function}{kind}" for function in LIBM for kind in ("", "f")} & set(symbols)
