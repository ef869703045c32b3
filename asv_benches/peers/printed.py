"""What the sources printed, for the rows that run their jobs again.

The sources: flashbax's issue on replay buffers on a CPU; the post "Code Optimization: 8h to gain
26h", whose three machines are in its order Home, Deeplar, Larcc; JAX's issue 2491; the paper
"Optimizing Data Collection in Deep Reinforcement Learning" (GPU: 2080Ti).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

Curves = Mapping[str, Mapping[float, float]]  # label, size, units of work per second

ROWS = {
    "trajectory-add-1": "72 us on a CPU",
    "trajectory-add-2": "204 ms on a CPU",
    "trajectory-add-100": "209 ms on a CPU, 2.5 ms on a GPU",
    "flashbax-copied": "444 ms on a CPU, 2.5 ms on a GPU",
    "flashbax-steps": "77 us on a CPU",
    "post-weigh-numpy": "Table 1: 6.9, 24.4, 6.5 ms",
    "post-weigh-torch": "Table 1: 1.14, 6.48, 0.93 ms",
    "post-choose-numpy": "Table 2: 17.4, 16.8, 13.5 ms",
    "post-choose-torch": "Table 2: 7.3, 9.1, 6.8 ms",
    "post-1000000-numpy": "Table 3: 24.3, 41.2, 20.0 ms",
    "post-1000000-torch": "Table 3: 8.4, 15.5, 7.7 ms",
    "solve-100000x100-float64-rows-numba": "2.5 times as fast as jax lax.scan on a CPU",
    "solve-100000x100-float64-rows-jax-lax-scan": "about 0.3 s on a CPU",
    "logcumsumexp-scan": "8 to 9 ms on a CPU, 1.5 to 2 s on a GPU",
}


class Claim(NamedTuple):
    """A ratio that the paper states, and the same ratio here.

    Attributes:
        figure: its number in the paper.
        text: the ratio of what.
        printed: the paper's figure, on a GPU.
        here: the same, from our curves of that figure; KeyError where one was not measured.
    """

    figure: str
    text: str
    printed: str
    here: Callable[[Curves], float]


def peak(curve: Mapping[float, float]) -> float:
    """The plateau."""
    return max(curve.values())


def gain(many: Mapping[float, float], one: Mapping[float, float], limit: float) -> float:
    """Mean ratio of two curves over the sizes up to `limit`."""
    sizes = [size for size in many if size in one and size <= limit]
    return sum(many[size] / one[size] for size in sizes) / len(sizes)


GYM, TORCH = "torch + SyncVectorEnv", "torch + CartPoleVectorEnv"
MANY, ONE = "jax scan, K=100", "jax scan, K=1"
CLAIMS = (
    Claim("4", "plateau of XLA over Gym's", "up to 1024", lambda c: peak(c[MANY]) / peak(c[GYM])),
    Claim(
        "4", "plateau of rlcpu over Gym's", "-", lambda c: peak(c["rlcpu, K=100"]) / peak(c[GYM])
    ),
    Claim(
        "4",
        "XLA, many steps a call over one, up to 2^13 envs (1000 in the paper, 100 here)",
        "53.8",
        lambda c: gain(c[MANY], c[ONE], 2**13),
    ),
    Claim(
        "4",
        "rlcpu, 100 steps a call over one, up to 2^13 envs",
        "-",
        lambda c: gain(c["rlcpu, K=100"], c["rlcpu, K=1"], 2**13),
    ),
    Claim(
        "4", "XLA over PyTorch, up to 2^13 envs", "13.4", lambda c: gain(c[MANY], c[TORCH], 2**13)
    ),
    Claim(
        "4",
        "rlcpu over PyTorch, up to 2^13 envs",
        "-",
        lambda c: gain(c["rlcpu, K=100"], c[TORCH], 2**13),
    ),
    Claim(
        "8",
        "XLA, 1000 steps a call over one",
        "83.3",
        lambda c: gain(c["jax scan, K=1000"], c["jax scan, K=1"], 2**20),
    ),
    Claim(
        "8",
        "written by hand, 1000 fused steps over one (CUDA in the paper, rlcpu here)",
        "11.3",
        lambda c: gain(c["rlcpu, K=1000"], c["rlcpu, K=1"], 2**20),
    ),
    Claim(
        "8",
        "written by hand over XLA, 1000 steps (CUDA in the paper, rlcpu here)",
        "112.8",
        lambda c: gain(c["rlcpu, K=1000"], c["jax scan, K=1000"], 2**20),
    ),
)
