"""The machine code of float32 kernels: vectors of single precision, and no double arithmetic."""

import platform
import re

import pytest

from rlcpu.kernels.threads import show_config
from tests.kernels.processes import run_python

pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64") or show_config()["vector width"] == "128 bits",
    reason="reads x86 code with AVX",
)

#: Prints how often each instruction occurs in each kernel, beside the width of its registers. The
#: kernels are compiled here: the cache keeps no assembly.
PROGRAM = """
import collections, json, re
import numpy as np
import rlcpu
from rlcpu.envs import batch, rollout

env = rlcpu.make_vec("MountainCar-v0", 70)
env.reset(seed=0)
env.step(np.zeros(70, np.int64))
spaces = env.single_observation_space, env.single_action_space
policies = {"uniform": rlcpu.policies.Uniform(), "mlp": rlcpu.policies.MLP(*spaces, hidden=(8,))}
kernels = {
    "reset": batch.reset_kernel(env.code, np.float32),
    "observe": batch.observe_kernel(env.code, np.float32),
    "step": batch.step_kernels(env.code, np.float32, False).serial,
}
for name, policy in policies.items():
    code = policy.code(env.dynamics)
    rlcpu.collect(env, policy, 2)
    kernels["collect " + name] = rollout.collect_kernels(env.code, np.float32, code).serial
rlcpu.simulate(env, policies["uniform"], 2)
code = policies["uniform"].code(env.dynamics)
kernels["simulate"] = rollout.simulate_kernels(env.code, np.float32, code).serial

def count(kernel):
    (code,) = kernel.inspect_asm().values()
    found = re.findall(r"^\\t([a-z]\\w+)[ \\t]*(.*)$", code, re.MULTILINE)
    symbols = re.findall(r"movabsq[ \\t]+[$](\\w+)|callq[ \\t]+(\\w+)", code)
    counts = collections.Counter(
        mnemonic + " " + max(re.findall("[xyz]mm", operands), default="")
        for mnemonic, operands in found
    )
    return counts, sorted({first or second for first, second in symbols})

print(json.dumps({name: count(kernel) for name, kernel in kernels.items()}))
"""
#: Sums of a block are float64, because float32 loses episodes after 2**24 of them: every 256 steps
#: the numbers of 64 lanes are converted and added, which the loop over lanes does not see.
SUMS = {"vcvtss2sd", "vaddsd", "vcvtps2pd", "vaddpd", "vmovsd", "vmovupd", "vmovapd"}
#: Moves and permutations of 64 bits at a time: no arithmetic.
MOVES = re.compile(r"v?(mov|shuf|unpck|perm|blend|broadcast|insert|extract|gather|and|xor|or)")
LIBM = ("sin", "cos", "tan", "exp", "log", "tanh", "pow", "floor", "fmod")
ARITHMETIC = re.compile(r"v(add|sub|mul|div|sqrt|min|max|fn?m(add|sub)\d+)ps [yz]mm")


@pytest.fixture(scope="module")
def machine_code(tmp_path_factory):
    return run_python("-c", PROGRAM, NUMBA_CACHE_DIR=tmp_path_factory.mktemp("cache"))


NAMES = ["reset", "observe", "step", "simulate", "collect uniform", "collect mlp"]


@pytest.mark.parametrize("name", NAMES)
def test_float32_kernels_do_no_double_arithmetic(machine_code, name):
    mnemonics = {mnemonic.split()[0] for mnemonic in machine_code[name][0]}
    double = {m for m in mnemonics if re.search(r"(p|s)d(2\w+)?$|2(p|s)d", m)}
    double = {m for m in double if not MOVES.match(m)}
    assert double - (SUMS if name == "simulate" else set()) == set()


@pytest.mark.parametrize("name", [name for name in NAMES if name != "observe"])
def test_float32_kernels_compute_in_vectors(machine_code, name):
    found = sum(count for m, count in machine_code[name][0].items() if ARITHMETIC.match(m))
    assert found >= 3


@pytest.mark.parametrize("name", NAMES)
def test_float32_kernels_call_no_mathematics_of_libm(machine_code, name):
    # A call saves and restores all vector registers: one in the loop over lanes undoes its vectors.
    _, symbols = machine_code[name]
    assert symbols
    assert not {f"{function}{kind}" for function in LIBM for kind in ("", "f")} & set(symbols)
