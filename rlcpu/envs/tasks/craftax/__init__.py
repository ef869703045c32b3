"""Craftax-Classic: survive, gather and craft in a world of 64 x 64 cells, with 22 achievements.

Source: Matthews, Beukman, Ellis, Samvelyan, Jackson, Coward & Foerster (2024), "Craftax: A
lightning-fast benchmark for open-ended reinforcement learning", ICML, after Hafner (2022),
"Benchmarking the spectrum of agent capabilities" (Crafter), ICLR. From the same state, the same
actions and random numbers give the same state in the package craftax, version 1.6.1.

In all modules `s` is the `World`, which functions change in place, and `rng` has the random numbers
of a step (or of a reset), asked for by their numbers: `rng.uniform(3)` is the same at every call of
one step, so that each use has a number of its own.
"""

from rlcpu.envs.contract.registry import Limits, add_modules

FAMILY = add_modules(__name__, {"classic": {"Craftax-Classic-Symbolic-v1": Limits(10_000)}})
