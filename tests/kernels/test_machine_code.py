"""The machine code of float32 kernels: vectors of single precision, and no double arithmetic."""

import platform
import re

import pytest

from rlcpu.kernels.threads import show_config

pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64")
    or show_config()["vector width"].startswith("128"),
    reason="reads x86 code with AVX",
)

#: Sums of a block are float64, because float32 loses episodes after 2**24 of them: every 256 steps
#: the numbers of 64 lanes are converted and added, which the loop over lanes does not see. At the
#: end of a call the sums are asked once whether they are finite.
SUMS = {"vcvtss2sd", "vaddsd", "vcvtps2pd", "vaddpd", "vmovsd", "vmovupd", "vmovapd"}
SUMS |= {"vfmadd213sd", "vfmadd231sd", "vmulsd", "vucomisd"}
#: Moves and permutations of 64 bits at a time: no arithmetic.
MOVES = re.compile(r"v?(mov|shuf|unpck|perm|blend|broadcast|insert|extract|gather|and|xor|or)")
LIBM = ("sin", "cos", "tan", "exp", "log", "tanh", "pow", "floor", "fmod")
ARITHMETIC = re.compile(r"v(add|sub|mul|div|sqrt|min|max|fn?m(add|sub)\d+)ps [yz]mm")


NAMES = ["reset", "observe", "step", "simulate", "collect"]


@pytest.mark.parametrize("name", NAMES)
def test_float32_kernels_do_no_double_arithmetic(compiled, name):
    mnemonics = {mnemonic.split()[0] for mnemonic in compiled.report["assembly"][name][0]}
    double = {m for m in mnemonics if re.search(r"(p|s)d(2\w+)?$|2(p|s)d", m)}
    double = {m for m in double if not MOVES.match(m)}
    assert double - (SUMS if name == "simulate" else set()) == set()


@pytest.mark.parametrize("name", [name for name in NAMES if name != "observe"])
def test_float32_kernels_compute_in_vectors(compiled, name):
    found = sum(
        count for m, count in compiled.report["assembly"][name][0].items() if ARITHMETIC.match(m)
    )
    assert found >= 1  # how often the loop is unrolled is the processor's matter


@pytest.mark.parametrize("name", NAMES)
def test_float32_kernels_call_no_mathematics_of_libm(compiled, name):
    # A call saves and restores all vector registers: one in the loop over lanes undoes its vectors.
    _, symbols = compiled.report["assembly"][name]
    assert symbols
    assert not {f"{function}{kind}" for function in LIBM for kind in ("", "f")} & set(symbols)
