"""The table `collect`: simulation, inference and rollout buffers of CartPole-v1 under an MLP."""

from __future__ import annotations

from asv_benches.peers.cpp import FmaPeak
from asv_benches.peers.duel import Duel, PeakDuel
from asv_benches.peers.jax_collect import JaxCollect
from asv_benches.peers.ours import Collect
from asv_benches.peers.report import Row
from asv_benches.peers.torch_collect import torch_collect

NUM_ENVS, NUM_STEPS = 1024, 128
OPERATIONS = 2 * (4 * 64 + 64 * 64 + 64 * 3)  # multiply-adds of the MLP's three layers, as two each


def rows() -> list[Row]:
    """All rows, in the order of the table."""
    return [row for activation in ("relu", "tanh") for row in activation_rows(activation)]


def activation_rows(activation: str) -> list[Row]:
    """The rows of one activation function."""
    what = f"collect, {NUM_ENVS:,} x {NUM_STEPS}, MLP 4-64-64 {activation}"
    mine = Collect(NUM_ENVS, NUM_STEPS, activation)
    torch = torch_collect(NUM_ENVS, NUM_STEPS, activation)
    tuned = torch_collect(NUM_ENVS, NUM_STEPS, activation, tuned=True)
    jax = JaxCollect(NUM_ENVS, NUM_STEPS, activation)
    counted = Collect(NUM_ENVS, NUM_STEPS, activation, OPERATIONS)
    return [
        Row(f"{activation}-torch", what, "torch + CartPoleVectorEnv", Duel(mine, torch), 15),
        Row(f"{activation}-torch-tuned", what, "the same, tuned", Duel(mine, tuned)),
        Row(f"{activation}-jax", what, "jax scan", Duel(mine, jax), 2.5),
        Row(
            f"{activation}-peak",
            what,
            "FMA peak of all cores",
            PeakDuel(counted, FmaPeak()),
            0.65 if activation == "relu" else None,
            kind="share",
            unit="FLOP/s",
        ),
    ]
