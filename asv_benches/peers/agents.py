"""The table `agents`: agents that learn off-policy, beside stable-baselines3's and a torch program.

Settings are rl-baselines3-zoo's. SAC and TD3 make one update a step, so that their rate is that of
updates; DQN makes 128 updates after every 256 steps. PQN has CleanRL's settings. The networks are
never compared while they start: both sides have learnt for a while before the first call.
"""

from __future__ import annotations

from typing import Any

from asv_benches.peers import weighted as weighted_replay
from asv_benches.peers.cpp import fma_peak
from asv_benches.peers.harness import Job, named
from asv_benches.peers.rows import Row, duel

PEER = "stable-baselines3"
#: Of a row with the peer, which takes seconds a call.
LIMIT_S = 900.0
#: Steps of one call.
ACTOR_STEPS, DQN_STEPS, PQN_STEPS = 100, 1024, 2048
HIDDEN, BATCH = 256, 256
#: Multiply-adds of a sample's pass through the actor and a critic of Pendulum.
ACTOR = 3 * HIDDEN + HIDDEN * HIDDEN + HIDDEN * 2
CRITIC = 4 * HIDDEN + HIDDEN * HIDDEN + HIDDEN
#: Operations of an update of SAC. Actor: next actions, actions, and twice as much backward. Two
#: critics: targets, values, twice as much backward, and values and their slopes by the actions.
SAC_OPERATIONS = 2 * BATCH * (4 * ACTOR + 2 * 6 * CRITIC)


def rows() -> list[Row]:
    what = f"{{}}, Pendulum, 2 x {HIDDEN}, batch {BATCH}, an update a step"
    sac, td3 = what.format("SAC"), what.format("TD3")
    dqn = "DQN, CartPole, rl-zoo's settings"
    peer_sac, peer_td3 = named(stable_actor_critic, "SAC"), named(stable_actor_critic, "TD3")
    ours_sac, counted = named(our_sac), named(our_sac, SAC_OPERATIONS)
    uniform, weighted = named(our_dqn, "uniform"), named(our_dqn, "prioritized")
    pqn = "PQN, CartPole, 4 environments, 120-84 normalised"
    mixed, our_learner = f"our priorities in {PEER}'s DQN", named(our_priorities)
    return [
        duel("pqn", pqn, "torch", named(our_pqn), named(torch_pqn), 25, limit_s=LIMIT_S),
        duel("sac", sac, PEER, ours_sac, peer_sac, 6, limit_s=LIMIT_S),
        duel("sac-peak", sac, "FMA peak of all cores", counted, named(fma_peak), 0.55, "peak"),
        duel("td3", td3, PEER, named(our_td3), peer_td3, 6, limit_s=LIMIT_S),
        duel("dqn", dqn, PEER, uniform, named(stable_dqn), 20, limit_s=LIMIT_S),
        duel("dqn-priorities", f"{dqn}, prioritised", "uniform", weighted, uniform, 1.1, "cost"),
        *weighted_replay.rows(),
        duel(
            "sb3-dqn-priorities",
            mixed,
            PEER,
            our_learner,
            named(stable_dqn),
            1.1,
            "cost",
            limit_s=LIMIT_S,
        ),
    ]


def our_sac(operations: int = 1) -> Job:
    """SAC; `operations` of an update, where those are the figure."""
    from rlcpu.train import SAC
    from rlcpu.train.sac import ZOO_PENDULUM

    return _learning(SAC("Pendulum-v1", seed=0, config=ZOO_PENDULUM), ACTOR_STEPS, operations)


def our_td3() -> Job:
    from rlcpu.train import TD3
    from rlcpu.train.td3 import ZOO_PENDULUM

    return _learning(TD3("Pendulum-v1", seed=0, config=ZOO_PENDULUM), ACTOR_STEPS)


def our_pqn() -> Job:
    from rlcpu.train import PQN
    from rlcpu.train.pqn import CLEANRL_CARTPOLE

    return _learning(PQN("CartPole-v1", seed=0, config=CLEANRL_CARTPOLE), PQN_STEPS)


def torch_pqn() -> Job:
    from asv_benches.peers.torch_pqn import TorchPQN

    return _learning(TorchPQN(), PQN_STEPS)


def our_dqn(replay: str) -> Job:
    from rlcpu.train import DQN
    from rlcpu.train.dqn import ZOO_CARTPOLE

    agent = DQN("CartPole-v1", seed=0, config=ZOO_CARTPOLE, replay=replay)
    return _learning(agent, DQN_STEPS)


def _learning(agent: Any, steps: int, operations: int = 1) -> Job:
    agent.learn(2 * DQN_STEPS)
    return Job(lambda: agent.learn(steps), work=steps * operations)


def stable_actor_critic(algorithm: str) -> Job:
    """SAC or TD3 of stable-baselines3, its networks and batches as in SAC's defaults."""
    import stable_baselines3

    agent = getattr(stable_baselines3, algorithm)(
        "MlpPolicy",
        "Pendulum-v1",
        learning_rate=1e-3,
        learning_starts=100,
        batch_size=BATCH,
        train_freq=1,
        gradient_steps=1,
        policy_kwargs={"net_arch": [HIDDEN, HIDDEN]},
        seed=0,
        device="cpu",
    )
    return _stable_learning(agent, ACTOR_STEPS, 2 * ACTOR_STEPS)


def stable_dqn() -> Job:
    """DQN of stable-baselines3."""
    from stable_baselines3 import DQN

    return _zoo_dqn(DQN)


def our_priorities() -> Job:
    """Our subclass of it, with prioritised replay."""
    from rlcpu.adapters.sb3 import DQN

    return _zoo_dqn(DQN)


def _zoo_dqn(kind: Any) -> Job:
    agent = kind(
        "MlpPolicy",
        "CartPole-v1",
        learning_rate=2.3e-3,
        batch_size=64,
        buffer_size=100_000,
        learning_starts=1000,
        gamma=0.99,
        target_update_interval=10,
        train_freq=256,
        gradient_steps=128,
        exploration_fraction=0.16,
        exploration_final_eps=0.04,
        policy_kwargs={"net_arch": [HIDDEN, HIDDEN]},
        seed=0,
        device="cpu",
    )
    return _stable_learning(agent, DQN_STEPS, 2 * DQN_STEPS)


def _stable_learning(agent: Any, steps: int, before: int) -> Job:
    agent.learn(before)
    return Job(lambda: agent.learn(steps, reset_num_timesteps=False), work=steps)
