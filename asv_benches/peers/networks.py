"""The table `networks`: memory, convolution, and policies that run without this library.

PPO with memory has rl-baselines3-zoo's settings of CartPole without velocities, and its networks:
64 units that remember, then 64 with relu, for the policy and for its value. PQN of MinAtar's games
has its authors' settings and network, in `purejaxql.py`.
"""

from __future__ import annotations

import ctypes
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from asv_benches.peers import purejaxql
from asv_benches.peers.agents import learning, stable_learning
from asv_benches.peers.cpp import fma_peak, load, pointer
from asv_benches.peers.harness import Job, drawn
from asv_benches.peers.libraries import torch
from asv_benches.peers.rows import Row, duels

PEER = "sb3-contrib"
NO_VELOCITY = "CartPoleNoVel-v1"
UNITS, ROLLOUT = 64, 256
#: Rows and columns of images, their windows, and images in a pass.
SIDE, WINDOW, IMAGES = 12, 3, 64
#: Observations in a call of the exported policy.
OBSERVATIONS = 1000


def rows() -> list[Row]:
    """All rows of the table."""
    table: list[Row] = []
    for network, target in (("mingru", 60), ("lstm", 30)):
        what = f"PPO, CartPole without velocities, {network}, rl-zoo's settings"
        peer = {"": (PEER, recurrent_ppo, target)}
        table += duels(f"memory-{network}", what, partial(our_memory, network), peer, limit_s=900.0)
    for game in ("Breakout", "Asterix"):
        what = f"PQN, MinAtar's {game}, convolution, 128 environments, its authors' settings"
        peer = {"": ("purejaxql", partial(purejaxql.purejaxql_pqn, game), 5)}
        ours = partial(purejaxql.our_pqn, game)
        table += duels(f"pqn-{game.lower()}", what, ours, peer, limit_s=900.0)
    what = "one observation, 64-64: exported C beside `predict`"
    table += duels("export-c", what, exported, {"": ("predict", predicted)}, "time")
    for channels in (32, 64):
        peak = {"": ("FMA peak of a core", partial(fma_peak, cores=1), 0.35)}
        what = f"convolution, {WINDOW} x {WINDOW}, {channels} channels"
        for end, is_learnt in (("", False), ("-learnt", True)):
            name = f"convolution-{channels}{end}"
            job = partial(convolution, channels, is_learnt)
            table += duels(name, what + ", learnt" * is_learnt, job, peak, "peak")
    return table


# ---------------------------------------------------------------- memory


def our_memory(network: str) -> Job:
    from rlcpu import nn
    from rlcpu.train import PPO
    from rlcpu.train.ppo import ZOO_CARTPOLE

    memory = {"mingru": nn.MinGru, "lstm": nn.Lstm}[network]
    settings: dict[str, Any] = {
        "network": lambda space: memory(UNITS) >> nn.Dense(UNITS) >> nn.Relu(),
        "normalize_observations": True,
    }
    agent = PPO(NO_VELOCITY, seed=0, config=ZOO_CARTPOLE.replace(settings))
    return learning(agent, 8 * ROLLOUT, 8 * ROLLOUT)


def recurrent_ppo() -> Job:
    import gymnasium
    from sb3_contrib import RecurrentPPO
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    from rlcpu.train.ppo import ZOO_CARTPOLE as ZOO

    class Positions(gymnasium.ObservationWrapper[Any, Any, Any]):
        def observation(self, observation: Any) -> Any:
            return observation * np.array([1, 0, 1, 0], np.float32)

    env = DummyVecEnv([lambda: Positions(gymnasium.make("CartPole-v1"))] * ZOO.num_envs)
    agent = RecurrentPPO(
        "MlpLstmPolicy",
        VecNormalize(env, norm_reward=False),
        n_steps=ZOO.num_steps,
        batch_size=ZOO.minibatch_size,
        n_epochs=ZOO.num_epochs,
        gamma=ZOO.gamma,
        gae_lambda=ZOO.lambda_,
        learning_rate=ZOO.learning_rate,
        clip_range=ZOO.clip_range,
        policy_kwargs={
            "ortho_init": False,
            "activation_fn": torch.nn.ReLU,
            "lstm_hidden_size": UNITS,
            "net_arch": {"pi": [UNITS], "vf": [UNITS]},
        },
        seed=0,
        device="cpu",
    )
    return stable_learning(agent, ROLLOUT, ROLLOUT)


# ---------------------------------------------------------------- exported policies


def agent_of_two_layers() -> Any:
    from rlcpu.train import PPO

    agent = PPO("CartPole-v1", seed=0, num_threads=1)
    agent.learn(4096)
    return agent


def predicted() -> Job:
    agent = agent_of_two_layers()
    return Job(agent.predict, drawn(lambda rng: (np.float32(rng.normal(size=4)),)))


#: Calls of the policy from C: a call through ctypes takes a large part of a microsecond.
LOOP = """
#include "policy.c"
int run(const float *observations, int count)
{
    int k, sum = 0;
    for (k = 0; k < count; k++) sum += policy_act(observations + 4 * k);
    return sum;
}
"""


def exported() -> Job:
    """The policy's C file, whose outputs are those of the agent to 1e-6.

    Raises:
        RuntimeError: they are not.
    """
    agent = agent_of_two_layers()
    with tempfile.TemporaryDirectory() as folder:
        agent.export(Path(folder, "policy.c"))
        source = Path(folder, "loop.c")
        source.write_text(LOOP)
        library = load(str(source), ("-x", "c", "-std=c99"))
    rng = np.random.default_rng(0)
    found, worst = np.zeros(2, np.float32), 0.0
    for seen in rng.normal(size=(100, 4)).astype(np.float32):
        library.policy_outputs(pointer(seen), pointer(found))
        outputs = agent.policy.outputs(seen[None])[0]
        worst = max(worst, float(np.abs(found - outputs[:2]).max()))
    if worst > 1e-6:
        raise RuntimeError(f"outputs of the exported policy differ by {worst:.1g}")
    count = ctypes.c_int(OBSERVATIONS)

    def act(observations: Any) -> int:
        return int(library.run(pointer(observations), count))

    inputs = drawn(lambda rng: (rng.normal(size=(OBSERVATIONS, 4)).astype(np.float32),), 8)
    return Job(act, inputs, OBSERVATIONS, note=f"outputs differ by {worst:.1g}; goal: 3 us")


# ---------------------------------------------------------------- convolution


def convolution(channels: int, is_learnt: bool) -> Job:
    """A layer on a core, in operations; with gradients by inputs and weights three products."""
    from rlcpu import nn
    from rlcpu.kernels.compiler.compile import kernel
    from rlcpu.kernels.machine.memory import aligned_zeros
    from rlcpu.nn.network import passes
    from rlcpu.nn.network.packed import packed_at

    layers = nn.Image(SIDE, SIDE, channels) >> nn.Convolution(channels, WINDOW)
    network = nn.Network(SIDE * SIDE * channels, layers)
    plan, packed = network.plan, network.packed()
    units = aligned_zeros((IMAGES * plan.units,), np.float32)
    units[:] = np.random.default_rng(0).normal(size=units.size)
    slopes = aligned_zeros(((IMAGES + 1) * plan.slopes,), np.float32)
    arrays = (
        units,
        slopes,
        np.zeros_like(packed.parameters),
        np.zeros(1, np.float32),
    )

    @kernel
    def run(network, units, slopes, gradients, starts, is_learnt):
        network = packed_at(network, units)
        time, mode = passes.Time(1, starts), passes.OVERWRITTEN | passes.BY_INPUTS
        passes.forward(network, units, IMAGES, False, time)
        if is_learnt:
            passes.backward(network, units, slopes, gradients, IMAGES, False, time, mode)

    products = IMAGES * (SIDE - WINDOW + 1) ** 2 * (WINDOW * channels) ** 2
    # The job keeps the packed network alive.
    return Job(
        lambda: run(packed.address, *arrays, is_learnt),
        work=2.0 * products * (3 if is_learnt else 1),
    )
