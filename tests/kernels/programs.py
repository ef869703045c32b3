"""A program that says what it compiled of an environment's kernels, and what they computed."""

#: `use(env)` steps, collects and simulates, and prints the number of functions compiled, a digest
#: of all results and the instructions of each kernel: the cache keeps no assembly.
USE = """
import collections, hashlib, json, re
import numpy as np
import rlcpu
from numba.core import event

def use(env, rollouts=True, assembly=False):
    kernels = {}
    with event.install_recorder("numba:compile") as recorder:
        results = [env.reset(seed=0)[0]]
        for _ in range(3):
            results += env.step(np.ones(env.num_envs, np.int64))[:4]
        if rollouts:
            spaces = env.single_observation_space, env.single_action_space
            policies = rlcpu.policies.MLP(*spaces, hidden=(8,)), rlcpu.policies.Uniform()
            rollout = rlcpu.collect(env, policies[0], 4)
            results += [rollout.observations, rollout.log_probs, rollout.last_values]
            results += [np.array(rlcpu.simulate(env, policies[1], 8).num_steps), env.state]
    compiled = sum(event.is_start for _, event in recorder.buffer)
    digest = hashlib.sha256(b"".join(np.ascontiguousarray(r).tobytes() for r in results))
    report = {"compiled": compiled, "digest": digest.hexdigest()}
    if assembly:
        report["assembly"] = {k: count(v) for k, v in find_kernels(env, *policies).items()}
    print(json.dumps(report))

def find_kernels(env, collector, simulator):
    from rlcpu.envs.engine import steps
    from rlcpu.envs.rollout import compiled as rollout
    from rlcpu.kernels.compiler import compile
    real = env.dtype.type
    # Layers are called by address, and only the list that keeps them alive has them.
    dense = "rlcpu.nn.layers.dense"
    (layers,) = [f for f in compile._c_functions if f.py_func.__module__ == dense]
    codes = collector.code(env.dynamics), simulator.code(env.dynamics)
    return {
        "step": steps.step_kernels(env.engine.code, real).function,
        "collect": rollout.collect_kernels(env.engine.code, real, codes[0]).function,
        "simulate": rollout.simulate_kernels(env.engine.code, real, codes[1]).function,
        "layers": layers,
    }

def count(kernel):
    # How often each instruction occurs, with the width of its registers; symbols it refers to.
    (code,) = kernel.inspect_asm().values()
    found = re.findall(r"^\\t([a-z]\\w+)[ \\t]*(.*)$", code, re.MULTILINE)
    symbols = re.findall(r"movabsq[ \\t]+[$](\\w+)|callq[ \\t]+(\\w+)", code)
    counts = collections.Counter(
        mnemonic + " " + max(re.findall("[xyz]mm", operands), default="")
        for mnemonic, operands in found
    )
    return counts, sorted({first or second for first, second in symbols})
"""
