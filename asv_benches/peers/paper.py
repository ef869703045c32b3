"""The table `paper`: what its figures show, measured on a CPU; and the ratios that it printed.

J. Gleeson, D. Snider, Y. Yang, M. Gabel, E. de Lara, G. Pekhimenko, "Optimizing Data Collection in
Deep Reinforcement Learning", 2022. N environments, K steps a call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from asv_benches.peers.collect import TORCH, cartpole_collect, jax_collect, torch_collect
from asv_benches.peers.cpp import VARIANTS, cpp_cartpole
from asv_benches.peers.harness import Contender, Panel
from asv_benches.peers.rows import Row
from asv_benches.peers.simulate import CARTPOLE, jax_simulate, torch_simulate
from asv_benches.peers.stepping import gymnasium_step, gymnax_step, our_simulate, our_step

IDS = (CARTPOLE, "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1", "Acrobot-v1")
SIZES = (1, 16, 256, 4096, 2**16, 2**18)  # environments
STEPS = (1, 10, 100)  # of one call, in Figure 5
BREAKDOWN_ENVS = 2**16  # Figure 5's number of environments
FUSED = 1000
PYTHON_ENVS = 4096  # above, one step of Python's environments takes longer than 0.1 s
PAIRS = {"2": ("rlcpu CartPole-v1", "jax CartPole"), "5": ("rlcpu", "jax")}  # of the same job
GYM = "torch + SyncVectorEnv"

Makers = dict[str, Contender]


def rows() -> list[Row]:
    return [
        *(panel("2", "simulate, 100 steps a call", n, environments(n)) for n in SIZES),
        *(panel("4", "simulation and inference", n, collection(n)) for n in SIZES[:-1]),
        *(panel("5", f"{k:,} steps a call", k, breakdown(k)) for k in STEPS),
        *(panel("8", "simulation", n, fusion(n)) for n in SIZES),
    ]


def panel(figure: str, job: str, size: int, contenders: Makers) -> Row:
    """One point of every curve."""
    what = f"Figure {figure}: {job}"
    if figure != "5":
        what += f", {size:,} env{'s' if size > 1 else ''}"
    measure = Panel(size, contenders, pair=PAIRS.get(figure, ()))
    return Row(f"figure-{figure}-{size}", what, "the best of the peers", measure, limit_s=120.0)


def environments(num_envs: int) -> Makers:
    """Figure 2: our environments; CartPole in JAX, and gymnax's, as the paper's simulators were."""
    return {
        **{f"rlcpu {env_id}": partial(our_simulate, env_id, num_envs, 100) for env_id in IDS},
        "jax CartPole": partial(jax_simulate, num_envs, 100),
        "gymnax CartPole": partial(gymnax_step, CARTPOLE, num_envs, 100),
    }


def collection(num_envs: int) -> Makers:
    """Figure 4: N environments, MLP 4-64-64, everything recorded; 1 step a call and 100."""
    contenders: Makers = {
        **{f"rlcpu, K={k}": partial(cartpole_collect, num_envs, k, "relu") for k in (1, 100)},
        **{f"jax scan, K={k}": partial(jax_collect, num_envs, k, "relu") for k in (1, 100)},
        TORCH: partial(torch_collect, num_envs, 1, "relu"),
    }
    if num_envs <= PYTHON_ENVS:
        contenders[GYM] = partial(torch_collect, num_envs, 1, "relu", mode="sync")
    return contenders


def breakdown(num_steps: int) -> Makers:
    """Figure 5: the whole, its simulation alone, and a call that does next to nothing."""
    return {
        "rlcpu": partial(cartpole_collect, BREAKDOWN_ENVS, num_steps, "relu"),
        "rlcpu simulation": partial(our_simulate, CARTPOLE, BREAKDOWN_ENVS, num_steps),
        "rlcpu call": partial(cartpole_collect, 1, 1, "relu"),
        "jax": partial(jax_collect, BREAKDOWN_ENVS, num_steps, "relu"),
        "jax simulation": partial(jax_simulate, BREAKDOWN_ENVS, num_steps),
        "jax call": partial(jax_collect, 1, 1, "relu"),
    }


def fusion(num_envs: int) -> Makers:
    """Figure 8: simulation alone; `K=1` is `env.step`, with actions from outside."""
    cpp = partial(cpp_cartpole, VARIANTS["-ffast-math, 512 bits"], num_envs)
    contenders: Makers = {
        "rlcpu, K=1": partial(our_step, CARTPOLE, num_envs),
        **{f"rlcpu, K={k}": partial(our_simulate, CARTPOLE, num_envs, k) for k in (10, FUSED)},
        **{f"C++, K={k}": partial(cpp, k) for k in (1, FUSED)},
        "jax scan, K=1": partial(jax_simulate, num_envs, 1),
        "torch eager, any K": partial(torch_simulate, num_envs),
    }
    if num_envs <= BREAKDOWN_ENVS:  # above, one call takes 2 s
        contenders["jax scan, K=1000"] = partial(jax_simulate, num_envs, FUSED)
    if num_envs <= PYTHON_ENVS:
        contenders["SyncVectorEnv"] = partial(gymnasium_step, CARTPOLE, num_envs, "sync")
    return contenders


# ---------------------------------------------------------------- what the paper printed

Curves = Mapping[str, Mapping[float, float]]  # label, size, units of work per second
Ratio = Callable[[Curves], float | str]


def plateau(one: str, other: str) -> Ratio:
    """Ratio of two curves' best points."""
    return lambda curves: max(curves[one].values()) / max(curves[other].values())


def gain(many: str, one: str, limit: float = 2**20) -> Ratio:
    """Mean ratio of two curves over the sizes up to `limit`."""

    def ratio(curves: Curves) -> float:
        sizes = [n for n in curves[many] if n in curves[one] and n <= limit]
        return sum(curves[many][n] / curves[one][n] for n in sizes) / len(sizes)

    return ratio


def parts(label: str, steps: int, curves: Curves) -> str:
    """Where the time of a call goes; the call itself is one environment and one step."""
    rate = curves[label][steps]
    call = min(1.0, rate / curves[f"{label} call"][steps] / (steps * BREAKDOWN_ENVS))
    simulation = min(1.0 - call, rate / curves[f"{label} simulation"][steps])
    return " + ".join(f"{100 * part:.0f} %" for part in (call, simulation, 1 - call - simulation))


JAX, OURS = "jax scan, K=100", "rlcpu, K=100"
JAX_LONG, OURS_LONG = "jax scan, K=1000", "rlcpu, K=1000"
UP_TO, HERE = "up to 2^13 envs", "(CUDA in the paper, rlcpu here)"
MANY = f"many steps a call over one, {UP_TO} (1000 in the paper, 100 here)"
# Figure, the ratio of what, the paper's on a GPU, the same from our curves of that figure.
CLAIMS: tuple[tuple[str, str, str, Ratio], ...] = (
    *(
        ("5", f"{who}, K={k}: the call + simulation + inference", printed, partial(parts, who, k))
        for k in STEPS
        for who, printed in (("rlcpu", "-"), ("jax", "Python 57 %, C++ 30 %" if k == 1 else "-"))
    ),
    ("4", "plateau of XLA over Gym's", "up to 1024x", plateau(JAX, GYM)),
    ("4", "plateau of rlcpu over Gym's", "-", plateau(OURS, GYM)),
    ("4", f"XLA, {MANY}", "53.8x", gain(JAX, "jax scan, K=1", 2**13)),
    ("4", f"rlcpu, 100 steps a call over one, {UP_TO}", "-", gain(OURS, "rlcpu, K=1", 2**13)),
    ("4", f"XLA over PyTorch, {UP_TO}", "13.4x", gain(JAX, TORCH, 2**13)),
    ("4", f"rlcpu over PyTorch, {UP_TO}", "-", gain(OURS, TORCH, 2**13)),
    ("8", "XLA, 1000 steps a call over one", "83.3x", gain(JAX_LONG, "jax scan, K=1")),
    ("8", f"by hand, 1000 fused steps over one {HERE}", "11.3x", gain(OURS_LONG, "rlcpu, K=1")),
    ("8", f"by hand over XLA, 1000 steps {HERE}", "112.8x", gain(OURS_LONG, JAX_LONG)),
)


def claims(curves: Callable[[str], Curves]) -> list[tuple[str, str, str, str]]:
    """The paper's ratios beside ours; `curves` gives those of a figure."""

    def here(figure: str, ratio: Ratio) -> str:
        try:
            found = ratio(curves(figure))
            return found if isinstance(found, str) else f"{found:,.3g}x"
        except (KeyError, ZeroDivisionError):
            return "not measured"

    return [(figure, text, printed, here(figure, ratio)) for figure, text, printed, ratio in CLAIMS]
