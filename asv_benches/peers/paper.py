"""The table `paper`: the figures of "Optimizing Data Collection in Deep RL", on this CPU.

A row is one number of environments (Figure 6: of steps), all contenders interleaved in one process.
"""

from __future__ import annotations

from asv_benches.peers import paper_factors
from asv_benches.peers.cpp import VARIANTS, CppSimulate
from asv_benches.peers.gymnax_simulate import GymnaxSimulate
from asv_benches.peers.jax_collect import JaxCollect
from asv_benches.peers.jax_simulate import JaxSimulate
from asv_benches.peers.ours import Collect, Simulate
from asv_benches.peers.panel import Panel
from asv_benches.peers.paper_calls import CallCounts
from asv_benches.peers.report import Row
from asv_benches.peers.stepping import gymnasium_sync, rlcpu_step
from asv_benches.peers.timing import Contender
from asv_benches.peers.torch_collect import TorchCollect
from asv_benches.peers.torch_simulate import GymCollect, TorchSimulate

IDS = ("CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1", "Acrobot-v1")
SIZES = (1, 16, 256, 4096, 2**16, 2**18)  # environments
STEPS = (1, 10, 100, 1000)  # of one call
BREAKDOWN_ENVS = 2**16  # Figure 5's number of environments
FUSED = 1000
PYTHON_ENVS = 4096  # above, one step of Python's environments takes longer than 0.1 s
PAIRS = {"2": ("rlcpu CartPole-v1", "jax CartPole"), "5": ("rlcpu", "jax")}  # of the same job
FLAGS = VARIANTS["-ffast-math, 512 bits"]


def rows() -> list[Row]:
    """All rows, in the order of the figures."""
    return [
        *(panel("2", "simulate, 100 steps a call", n, environments(n)) for n in SIZES),
        *(panel("4", "simulation and inference", n, collection(n)) for n in SIZES[:-1]),
        *(panel("5", f"{k:,} steps a call", k, breakdown(k)) for k in STEPS[:-1]),
        *(calls(k) for k in STEPS),
        *(panel("8", "simulation", n, fusion(n)) for n in SIZES),
        *paper_factors.rows(),
    ]


def panel(figure: str, job: str, size: int, contenders: dict[str, Contender]) -> Row:
    """One point of every curve."""
    what = f"Figure {figure}: {job}"
    if figure != "5":
        what += f", {size:,} env{'s' if size > 1 else ''}"
    duel = Panel(size, contenders, pair=PAIRS.get(figure, ()))
    return Row(f"figure-{figure}-{size}", what, "the best of the peers", duel, limit_s=120.0)


def calls(num_steps: int) -> Row:
    """Counts, not times."""
    what = f"Figure 6: kernels started, {num_steps:,} step{'s' if num_steps > 1 else ''} a call"
    return Row(f"figure-6-{num_steps}", what, "jax scan", CallCounts(num_steps), unit="calls")


def environments(num_envs: int) -> dict[str, Contender]:
    """Figure 2: our environments; CartPole in JAX, and gymnax's, as the paper's simulators were."""
    return {
        **{f"rlcpu {env_id}": Simulate(num_envs, 100, env_id) for env_id in IDS},
        "jax CartPole": JaxSimulate(num_envs, 100),
        "gymnax CartPole": GymnaxSimulate(num_envs, 100),
    }


def collection(num_envs: int) -> dict[str, Contender]:
    """Figure 4: N environments, MLP 4-64-64, everything recorded; 1 step a call and 100."""
    contenders: dict[str, Contender] = {
        "rlcpu, K=1": Collect(num_envs, 1, "relu"),
        "rlcpu, K=100": Collect(num_envs, 100, "relu"),
        "jax scan, K=1": JaxCollect(num_envs, 1, "relu"),
        "jax scan, K=100": JaxCollect(num_envs, 100, "relu"),
        "torch + CartPoleVectorEnv": TorchCollect("torch", num_envs, 1, "relu", 2, tuned=True),
    }
    if num_envs <= PYTHON_ENVS:
        contenders["torch + SyncVectorEnv"] = GymCollect("gym", num_envs, 1, "relu", 2, tuned=True)
    return contenders


def breakdown(num_steps: int) -> dict[str, Contender]:
    """Figure 5: the whole, its simulation alone, and a call that does next to nothing."""
    return {
        "rlcpu": Collect(BREAKDOWN_ENVS, num_steps, "relu"),
        "rlcpu simulation": Simulate(BREAKDOWN_ENVS, num_steps),
        "rlcpu call": Collect(1, 1, "relu"),
        "jax": JaxCollect(BREAKDOWN_ENVS, num_steps, "relu"),
        "jax simulation": JaxSimulate(BREAKDOWN_ENVS, num_steps),
        "jax call": JaxCollect(1, 1, "relu"),
    }


def fusion(num_envs: int) -> dict[str, Contender]:
    """Figure 8: simulation alone; `K=1` is `env.step`, with actions from outside."""
    contenders: dict[str, Contender] = {
        "rlcpu, K=1": rlcpu_step(num_envs),
        "rlcpu, K=10": Simulate(num_envs, 10),
        "rlcpu, K=1000": Simulate(num_envs, FUSED),
        "C++, K=1": CppSimulate("C++", num_envs, 1, FLAGS),
        "C++, K=1000": CppSimulate("C++", num_envs, FUSED, FLAGS),
        "jax scan, K=1": JaxSimulate(num_envs, 1),
        "torch eager, any K": TorchSimulate(num_envs),
    }
    if num_envs <= BREAKDOWN_ENVS:  # above, one call takes 2 s
        contenders["jax scan, K=1000"] = JaxSimulate(num_envs, FUSED)
    if num_envs <= PYTHON_ENVS:
        contenders["SyncVectorEnv"] = gymnasium_sync(num_envs)
    return contenders
