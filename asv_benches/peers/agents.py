"""The table `agents`: agents that learn off-policy, beside stable-baselines3's and a torch program.

Settings are rl-baselines3-zoo's. SAC, TD3 and TQC make one update a step, so that their rate is
that of updates; DQN and QR-DQN make 128 updates after every 256 steps. PQN has CleanRL's settings,
PPO on a game of MinAtar ours, and stable-baselines3 steps the package of the game there. The
networks are never compared while they start: both sides have learnt for a while before the first
call.
"""

from __future__ import annotations

import importlib
from functools import partial
from typing import Any

from asv_benches.peers import rltools, weighted
from asv_benches.peers.cpp import fma_peak
from asv_benches.peers.harness import Job
from asv_benches.peers.libraries import torch
from asv_benches.peers.rows import Row, duels

PEER, STABLE = "stable-baselines3", "stable_baselines3"
#: Algorithms that are in the peer's other package.
CONTRIB, IN_CONTRIB = "sb3_contrib", ("QRDQN", "TQC")
#: Of a row with the peer, which takes seconds a call.
LIMIT_S = 900.0
#: Steps of one call.
ACTOR_STEPS, DQN_STEPS, PQN_STEPS = 100, 1024, 2048
#: Steps of our agents before, from which a kernel makes their rounds.
BEFORE = dict.fromkeys(("DQN", "QRDQN"), 20 * DQN_STEPS)
HIDDEN, BATCH = 256, 256
#: Environment of our agents, and their settings that the peer has too.
SETTINGS = {
    "SAC": ("Pendulum-v1", "ZOO_PENDULUM"),
    "TD3": ("Pendulum-v1", "ZOO_PENDULUM"),
    "TQC": ("Pendulum-v1", "ZOO_PENDULUM"),
    "DQN": ("CartPole-v1", "ZOO_CARTPOLE"),
    "QRDQN": ("CartPole-v1", "ZOO_CARTPOLE"),
    "PQN": ("CartPole-v1", "CLEANRL_CARTPOLE"),
}
#: Observed as planes of cells; a rollout of our settings.
GAME, GAME_STEPS = "MinAtar/Breakout-v1", 8192
#: Multiply-adds of a sample's pass through the actor and a critic of Pendulum.
ACTOR = 3 * HIDDEN + HIDDEN * HIDDEN + HIDDEN * 2
CRITIC = 4 * HIDDEN + HIDDEN * HIDDEN + HIDDEN
#: Operations of an update of SAC. Actor: next actions, actions, and twice as much backward. Two
#: critics: targets, values, twice as much backward, and values and their slopes by the actions.
SAC_OPERATIONS = 2 * BATCH * (4 * ACTOR + 2 * 6 * CRITIC)


def rows() -> list[Row]:
    row, table = partial(duels, limit_s=LIMIT_S), []
    what = "PPO, MinAtar's Breakout, 64 environments, 128-128, four epochs"
    table += row("ppo", what, our_game_ppo, {"": (f"{PEER}, minatar", stable_game_ppo, 10)})
    what, ours = "PQN, CartPole, 4 environments, 120-84 normalised", partial(our_agent, "PQN")
    table += row("pqn", what, partial(ours, PQN_STEPS), {"": ("torch", torch_pqn, 25)})
    for name, goal in (("SAC", 6), ("TD3", 6), ("TQC", 3)):
        what = f"{name}, Pendulum, 2 x {HIDDEN}, batch {BATCH}, an update a step"
        ours = partial(our_agent, name, ACTOR_STEPS)
        peer = {"": (package_of(name), partial(stable_actor_critic, name), goal)}
        table += row(name.lower(), what, ours, peer)
        if name == "SAC":
            peak = {"peak": ("FMA peak of all cores", fma_peak, 0.55)}
            counted = partial(ours, operations=SAC_OPERATIONS)
            table += duels("sac", what, counted, peak, "peak")
    what = "SAC, Pendulum, 64-64, batch 100, an update a step, one thread"
    table += row(
        "sac-small", what, rltools.our_sac, {"rltools": ("RLtools", rltools.rltools_sac, 1)}
    )
    what, ours = "DQN, CartPole, rl-zoo's settings", partial(our_agent, "DQN", DQN_STEPS)
    uniform, prioritized = (partial(ours, replay=each) for each in ("uniform", "prioritized"))
    cost, mixed = {"priorities": ("uniform", uniform, 1.1)}, f"our priorities in {PEER}'s DQN"
    table += row("dqn", what, uniform, {"": (PEER, stable_dqn, 20)})
    table += duels("dqn", f"{what}, prioritised", prioritized, cost, "cost")
    what, ours = "QR-DQN, CartPole, rl-zoo's settings", partial(our_agent, "QRDQN", DQN_STEPS)
    stable = partial(stable_dqn, name="QRDQN", policy={"n_quantiles": 10})
    table += row("qrdqn", what, ours, {"": (package_of("QRDQN"), stable, 5)})
    table += weighted.rows()
    adapted = partial(stable_dqn, "rlcpu.adapters.sb3")
    return table + row("sb3-dqn-priorities", mixed, adapted, {"": (PEER, stable_dqn, 1.1)}, "cost")


# ---------------------------------------------------------------- ours


def learning(agent: Any, before: int, steps: int, work: float = 1.0, **options: Any) -> Job:
    """`learn` of some steps, after so many others; work is that of a step."""
    agent.learn(before)
    return Job(lambda: agent.learn(steps, **options), work=steps * work)


def our_ppo(env_id: str, steps: int) -> Job:
    from asv_benches.peers.mujoco_zoo import ppo_config
    from rlcpu.train import PPO

    return learning(PPO(env_id, seed=0, config=ppo_config(env_id)), steps, steps)


def our_game_ppo() -> Job:
    from rlcpu.train import PPO

    return learning(PPO(GAME, seed=0), 2 * GAME_STEPS, 4 * GAME_STEPS)


def make_agent(name: str, **options: Any) -> Any:
    """An agent of ours with the peer's settings, but for the options."""
    from rlcpu import train

    env_id, settings = SETTINGS[name]
    config = getattr(importlib.import_module(f"rlcpu.train.{name.lower()}"), settings)
    return getattr(train, name)(env_id, seed=0, config=config.replace(options))


def our_agent(name: str, steps: int, operations: int = 1, **options: Any) -> Job:
    """`operations` of a step, where those are the figure."""
    before = BEFORE.get(name, 2 * DQN_STEPS)
    return learning(make_agent(name, **options), before, steps, operations)


# ---------------------------------------------------------------- torch, stable-baselines3


def torch_pqn() -> Job:
    from asv_benches.peers.torch_pqn import TorchPQN

    torch.set_num_threads(1)  # more make its small minibatches slower
    return learning(TorchPQN(), 2 * DQN_STEPS, PQN_STEPS)


def stable_learning(agent: Any, before: int, steps: int) -> Job:
    return learning(agent, before, steps, reset_num_timesteps=False)


def stable_ppo_agent(env: Any, config: Any, seed: int = 0) -> Any:
    """PPO of stable-baselines3 with the settings of ours."""
    from stable_baselines3 import PPO

    torch.set_num_threads(1)  # more make its small minibatches slower

    def schedule(value: float, kind: str) -> Any:
        return (lambda remaining: value * remaining) if kind == "linear" else value

    relu = config.activation == "relu"  # of the zoo's settings, those that are not orthogonal
    return PPO(
        "MlpPolicy",
        env,
        n_steps=config.num_steps,
        batch_size=config.minibatch_size,
        n_epochs=config.num_epochs,
        learning_rate=schedule(config.learning_rate, config.learning_rate_schedule),
        clip_range=schedule(config.clip_range, config.clip_schedule),
        gamma=config.gamma,
        gae_lambda=config.lambda_,
        ent_coef=config.entropy_coefficient,
        vf_coef=config.value_coefficient,
        max_grad_norm=config.max_gradient_norm,
        policy_kwargs={
            "net_arch": list(config.hidden),
            "activation_fn": torch.nn.ReLU if relu else torch.nn.Tanh,
            "log_std_init": config.log_std_init,
            "ortho_init": not relu,
        },
        seed=seed,
        device="cpu",
    )


def stable_ppo(env_id: str, steps: int, kind: str) -> Job:
    """Its PPO in vector environments of one kind, with normalised rewards too."""
    from stable_baselines3.common import env_util, vec_env

    from asv_benches.peers.mujoco_zoo import ppo_config

    config = ppo_config(env_id)
    options = {"start_method": "fork"} if kind == "SubprocVecEnv" else {}
    classes = {"vec_env_cls": getattr(vec_env, kind), "vec_env_kwargs": options}
    made = env_util.make_vec_env(env_id, config.num_envs, **classes)
    return stable_learning(stable_ppo_agent(vec_env.VecNormalize(made), config), steps, steps)


def stable_game_ppo() -> Job:
    """The same settings in the package that first had the game."""
    from minatar.gym import register_envs
    from stable_baselines3.common import env_util

    from rlcpu.envs.contract.names import find
    from rlcpu.train import PPO

    register_envs()
    config = PPO.default_config(find(GAME))
    envs = env_util.make_vec_env(GAME, config.num_envs)
    return stable_learning(stable_ppo_agent(envs, config), GAME_STEPS, GAME_STEPS)


def package_of(name: str) -> str:
    """The name of the peer's package that has an algorithm."""
    return "sb3-contrib" if name in IN_CONTRIB else PEER


def stable_agent(name: str, module: str = "", policy: Any = None, **settings: Any) -> Any:
    """An agent of stable-baselines3, or a subclass in a module of ours; `policy` are arguments."""
    module = module or (CONTRIB if name in IN_CONTRIB else STABLE)
    return getattr(importlib.import_module(module), name)(
        "MlpPolicy",
        SETTINGS[name][0],
        policy_kwargs={"net_arch": [HIDDEN, HIDDEN], **(policy or {})},
        seed=0,
        device="cpu",
        **settings,
    )


def stable_actor_critic(name: str) -> Job:
    """Networks and batches as in SAC's defaults."""
    often = {"train_freq": 1, "gradient_steps": 1, "learning_starts": 100}
    agent = stable_agent(name, learning_rate=1e-3, batch_size=BATCH, **often)
    return stable_learning(agent, 2 * ACTOR_STEPS, ACTOR_STEPS)


def stable_dqn(module: str = "", name: str = "DQN", policy: Any = None) -> Job:
    agent = stable_agent(
        name,
        module,
        policy,
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
    )
    return stable_learning(agent, 2 * DQN_STEPS, DQN_STEPS)
