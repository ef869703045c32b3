"""One colour of `rlcpu.palette` for each library and for each algorithm, in every picture.

Readers who see few colours tell lines apart by their style and bars by their names.
"""

from __future__ import annotations

from rlcpu.palette import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION

#: Colour and line style by algorithm.
ALGORITHMS = {
    "ppo": (BLUE, "-"),
    "pqn": (GREEN, "--"),
    "dqn": (ORANGE, "-."),
    "sac": (VERMILION, "-"),
    "td3": (PURPLE, "--"),
    "ddpg": (SKY, ":"),
    "qrdqn": (PURPLE, "-."),
    "tqc": (BLUE, ":"),
}
#: Colour, and words by which a contender of the library is known.
LIBRARIES = {
    "rlcpu": (BLUE, ("rlcpu", "ours")),
    "EnvPool": (GREEN, ("envpool",)),
    "JAX": (PURPLE, ("jax", "gymnax", "flashbax", "brax", "rlax", "xla")),
    "stable-baselines3": (SKY, ("stable-baselines3", "sb3")),
    "PyTorch": (VERMILION, ("torch",)),
    "Gymnasium": (ORANGE, ("gym", "vectorenv", "cartpole")),
}


def library(contender: str) -> str:
    """The library that a contender belongs to; "" for others, such as NumPy and C++ by hand."""
    words = contender.lower()
    found = (name for name, (_, known) in LIBRARIES.items() if any(w in words for w in known))
    return next(found, "")


def colour(contender: str) -> str:
    """The colour of a contender's library."""
    name = library(contender)
    return LIBRARIES[name][0] if name else GREY
