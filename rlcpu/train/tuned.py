"""Tables of tuned values by environment: the algorithm that fits it, steps, and PPO's settings.

PPO takes every space of actions, and is the one for all that the first table does not name. What
they reach is measured by `asv_benches/study.py`. Tables have an environment's id, or its family,
such as "MinAtar/*". Other algorithms have their settings beside their equations.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from gymnasium.spaces import Box, Dict

from rlcpu.envs.dynamics import Dynamics
from rlcpu.nn.heads import is_bounded
from rlcpu.train.config import PPOConfig, for_space
from rlcpu.train.presets import fitting_network

_Entry = TypeVar("_Entry")

#: The algorithm of an environment, where PPO is not the one that solves it best.
FITTING: dict[str, str] = {
    "FrozenLake-v1": "dqn",
    "CliffWalking-v1": "dqn",
    "MinAtar/*": "pqn",
}
#: Environment steps by environment and algorithm, where they are not the usual ones.
STEPS: dict[str, dict[str, int]] = {
    "CartPole-v1": {"dqn": 50_000, "pqn": 500_000},
    "Acrobot-v1": {"dqn": 60_000},
    "Pendulum-v1": {"ppo": 500_000, "sac": 15_000, "td3": 15_000, "ddpg": 15_000},
    "PendulumNoVel-v1": {"ppo": 100_000, "sac": 15_000},
    "CartPoleNoVel-v1": {"ppo": 100_000},
    "MountainCarContinuousNoVel-v0": {"ppo": 300_000},
    "FrozenLake-v1": {"ppo": 500_000, "dqn": 30_000},
    "CliffWalking-v1": {"dqn": 30_000},
    "Taxi-v4": {"ppo": 500_000},
    "Blackjack-v1": {"ppo": 300_000},
    "MiniGrid-Empty-8x8-v0": {"ppo": 300_000},
    "MiniGrid-DoorKey-8x8-v0": {"ppo": 2_000_000},
    "MiniGrid-FourRooms-v0": {"ppo": 3_000_000},
    "LunarLander-v3": {"ppo": 3_000_000},
    "LunarLanderContinuous-v3": {"ppo": 3_000_000},
    "Craftax-Classic-Symbolic-v1": {"ppo": 10_000_000},
    "MinAtar/*": {"ppo": 3_000_000, "pqn": 10_000_000},
}
#: All others: an update for every step takes longer, and fewer are needed.
USUAL_STEPS, REPLAY_STEPS = 1_000_000, 100_000


def entry_of(env_id: str, table: Mapping[str, _Entry]) -> _Entry | None:
    """Return what a table has under an id, or else under its family, such as "MinAtar/*"."""
    family = f"{env_id.partition('/')[0]}/*"
    return table.get(env_id, table.get(family))


def fitting(env_id: str) -> str:
    """Return the algorithm of an environment, as `rlcpu train --algo` takes it."""
    return entry_of(env_id, FITTING) or "ppo"


def default_steps(agent: Any) -> int:
    """Return how many environment steps an agent learns for by default."""
    usual = REPLAY_STEPS if getattr(agent, "buffer", None) is not None else USUAL_STEPS
    return steps_of(agent.env.dynamics.id, type(agent).__name__.lower(), usual)


def steps_of(env_id: str, algorithm: str, usual: int) -> int:
    """Return how many environment steps an algorithm learns an environment for."""
    return (entry_of(env_id, STEPS) or {}).get(algorithm, usual)


# ---------------------------------------------------------------- settings of PPO

#: Settings by an environment's id or its family, such as "MinAtar/*": tuned on this library, or of
#: the source that is named; `asv_benches/study.py` says what they reach, seed by seed.
# fmt: off
DEFAULTS: dict[str, PPOConfig] = {
    "CartPole-v1": PPOConfig(
        num_envs=64, num_steps=32, num_epochs=4, minibatch_size=256, learning_rate=1.5e-3,
        gamma=0.98, lambda_=0.8,
    ),
    "Acrobot-v1": PPOConfig(
        num_envs=64, num_steps=64, num_epochs=8, minibatch_size=512, learning_rate=1.5e-3,
        learning_rate_schedule="linear", gamma=0.995, lambda_=0.94, normalize_observations=True,
    ),
    "Pendulum-v1": PPOConfig(
        num_envs=16, num_steps=128, minibatch_size=512, learning_rate=1e-3,
        learning_rate_schedule="linear", gamma=0.97, reward_scale=0.1,
    ),
    "MountainCar-v0": PPOConfig(
        num_envs=32, num_steps=128, num_epochs=8, minibatch_size=1024, learning_rate=2e-3,
        lambda_=0.98, normalize_observations=True,
    ),
    # Wide noise at first, and hardly any discounting: the reward comes only at the end.
    "MountainCarContinuous-v0": PPOConfig(
        num_envs=64, num_steps=128, num_epochs=4, minibatch_size=1024, learning_rate=1e-3,
        gamma=0.9999, lambda_=0.99, log_std_init=1.0, reward_scale=0.1,
        normalize_observations=True,
    ),
}

LANDER = PPOConfig(
    num_envs=64, num_steps=512, num_epochs=8, minibatch_size=512, learning_rate=5e-4,
    learning_rate_schedule="linear", gamma=0.999, lambda_=0.98, entropy_coefficient=0.01,
    reward_scale=0.02, normalize_observations=True,
)
DEFAULTS["LunarLander-v3"] = DEFAULTS["LunarLanderContinuous-v3"] = LANDER

#: gamma and lambda of MuJoCo's tasks, as rl-baselines3-zoo found them; Pusher's are the usual ones.
MUJOCO_HORIZONS: dict[str, tuple[float, float]] = {
    "Ant-v5": (0.99, 0.95),
    "HalfCheetah-v5": (0.98, 0.92),
    "Hopper-v5": (0.999, 0.99),
    "Humanoid-v5": (0.95, 0.9),
    "HumanoidStandup-v5": (0.99, 0.9),
    "InvertedDoublePendulum-v5": (0.98, 0.8),
    "InvertedPendulum-v5": (0.999, 0.9),
    "Pusher-v5": (0.99, 0.95),
    "Reacher-v5": (0.9, 1.0),
    "Swimmer-v5": (0.9999, 0.95),
    "Walker2d-v5": (0.99, 0.95),
}
#: All else of MuJoCo's tasks, tuned on HalfCheetah-v5.
MUJOCO = PPOConfig(
    num_envs=16, num_steps=256, minibatch_size=256, learning_rate_schedule="linear",
    log_std_init=-1.0, reward_scale=0.1, normalize_observations=True,
)
#: rl-baselines3-zoo's settings of CartPole-v1, for comparisons; learn 100,000 steps.
ZOO_CARTPOLE = PPOConfig(
    num_envs=8, num_steps=32, num_epochs=20, minibatch_size=256, learning_rate=1e-3,
    learning_rate_schedule="linear", clip_range=0.2, clip_schedule="linear", gamma=0.98,
    lambda_=0.8,
)
# Angles differ by hundredths from step to step: speeds are learnt from observations that are
# normalised, over sequences of 128 steps. With the zoo's gamma of 0.98, lambda of 0.8 and sequences
# of 32, one seed of three stays below 200.
DEFAULTS["CartPoleNoVel-v1"] = PPOConfig(
    network="mingru", num_envs=8, num_steps=128, minibatch_size=256, num_epochs=10,
    learning_rate=1e-3, learning_rate_schedule="linear", clip_schedule="linear",
    normalize_observations=True,
)
# Without speeds in sight, noise has to find the goal for longer: it is so wide that nearly all
# forces are full ones. With the noise and the rate of the other task three seeds of ten fail.
DEFAULTS["MountainCarContinuousNoVel-v0"] = DEFAULTS["MountainCarContinuous-v0"].replace(
    {"network": "mingru", "log_std_init": 2.0, "learning_rate": 3e-3}
)
# gamma and lambda are the zoo's, and so are many small steps. A layer of "mingru" adds up what it
# sees without regard to what it remembers, and its outputs are sums of that: torques are products
# of angles and speeds, and it stays below -700 where "gru" and "lstm" reach -220.
DEFAULTS["PendulumNoVel-v1"] = PPOConfig(
    network="gru", num_envs=8, num_steps=256, sequence_length=32, minibatch_size=128,
    learning_rate=1e-3, learning_rate_schedule="linear", gamma=0.9, normalize_observations=True,
    normalize_rewards=True,
)
#: For environments that nobody has tuned.
GENERAL = PPOConfig(
    num_envs=16, num_steps=128, minibatch_size=128, learning_rate=1e-3, normalize_observations=True,
    normalize_rewards=True, activation="relu", scale_actions=True,
)
#: The same where an observation is a choice, planes of cells or an image. Divided by its deviation,
#: the input of a rarely seen cell would be so large that every update of others disturbs it.
#: Rewards are rare in such tasks: without the entropy a policy settles on one action before it has
#: seen any.
GENERAL_SYMBOLS = GENERAL.replace({"normalize_observations": False, "entropy_coefficient": 0.01})
#: What tuned settings of choices and cells have in common.
SYMBOLS = PPOConfig(num_envs=64, num_steps=128, minibatch_size=512, entropy_coefficient=0.01)
# Episodes have no limit: without the entropy a policy that has fallen a few times walks into walls
# for good. As its steps stay random, the safe way round is the better one (Sutton & Barto, 6.6).
# Small steps at the end: after a large one the best actions of two cells may point at each other.
DEFAULTS["CliffWalking-v1"] = SYMBOLS.replace(
    {
        "entropy_coefficient": 0.05, "reward_scale": 0.1, "learning_rate_schedule": "linear",
    }
)
#: Of tables with many states or much chance, and of an empty room.
TABLE = SYMBOLS.replace(
    {
        "num_epochs": 4, "learning_rate": 1e-3, "learning_rate_schedule": "linear",
    }
)
DEFAULTS["Taxi-v4"] = TABLE.replace({"reward_scale": 0.1})
# Until the goal is found for the first time, advantages are errors of values that nothing has been
# learnt from. Brought to a deviation of 1, they are larger than the bonus for entropy, and some
# seeds stop exploring before they have found it.
UNREWARDED = TABLE.replace({"normalize_advantages": False})
DEFAULTS["MiniGrid-Empty-8x8-v0"] = UNREWARDED
DEFAULTS["Blackjack-v1"] = TABLE.replace({"entropy_coefficient": 0.002})
# The best policy under gamma = 0.99 arrives less often than that under 0.995: it is in a hurry.
DEFAULTS["FrozenLake8x8-v1"] = UNREWARDED.replace({"gamma": 0.995, "entropy_coefficient": 0.002})
# Those of PQN's authors (purejaxql's `ppo_minatar.yaml`), but for their rate of 5e-3 and entropy of
# 1e-4, whose values they leave to a sweep.
DEFAULTS["MinAtar/*"] = SYMBOLS.replace(
    {
        "num_epochs": 4, "minibatch_size": 1024, "learning_rate": 1e-3,
        "learning_rate_schedule": "linear", "network": "conv", "hidden": (128,),
        "activation": "relu",
    }
)
# The horizon is that of Craftax's authors (Craftax_Baselines, `ppo.py`). One network for policy and
# value, and half of their epochs, learn less of a step and more of a second: after 17 seconds of a
# CPU the return is 5.3, with their separate networks and epochs 4.0.
DEFAULTS["Craftax-Classic-Symbolic-v1"] = SYMBOLS.replace(
    {
        "num_epochs": 2, "lambda_": 0.8, "learning_rate": 1e-3, "learning_rate_schedule": "linear",
        "hidden": (128, 128), "value": "shared",
    }
)
#: Of tasks that ask for what was seen many steps ago. A layer of "mingru" is three times as fast,
#: but keeps no order: on POPGym/RepeatPreviousEasy-v0 it stays below 0, where "gru" reaches 1.
MEMORY = PPOConfig(
    num_envs=64, num_steps=128, num_epochs=4, minibatch_size=1024, learning_rate=1e-3,
    learning_rate_schedule="linear", entropy_coefficient=0.01, network="gru",
)
DEFAULTS["POPGym/*"] = MEMORY
# An answer is rewarded at once, and changes nothing later: what follows it is noise. The return is
# -0.50 by chance; after a million steps it is -0.48 with gamma at 0.99, and -0.36 with 0.5.
for level in ("Easy", "Medium", "Hard"):
    DEFAULTS[f"POPGym/Autoencode{level}-v0"] = MEMORY.replace({"gamma": 0.5})
# Over a corridor of 50 cells derivatives fade in a "gru": one seed of two stayed at 1.7, after a
# million steps, where "mingru" reached 4 with five of five.
DEFAULTS["TMaze-v0"] = MEMORY.replace({"network": "mingru", "learning_rate_schedule": "constant"})
# Without memory the return is 0.63 and 0.58 with two seeds, after 80 seconds of a CPU, and 0.55
# with what tuned settings of choices and cells have in common; with a "gru" of 128 units it was
# 0.50 after a million steps.
DEFAULTS["MiniGrid-FourRooms-v0"] = TABLE.replace({"minibatch_size": 1024, "hidden": (128, 128)})
# The key, the door and the goal are far apart, and only the goal is rewarded.
DEFAULTS["MiniGrid-DoorKey-8x8-v0"] = SYMBOLS.replace(
    {
        "num_steps": 256, "num_epochs": 4, "minibatch_size": 1024, "learning_rate": 1e-3,
        "gamma": 0.995, "entropy_coefficient": 0.03,
    }
)
# fmt: on
DEFAULTS |= {
    name: MUJOCO.replace({"gamma": gamma, "lambda_": lambda_})
    for name, (gamma, lambda_) in MUJOCO_HORIZONS.items()
}


def settings_for(
    dynamics: Dynamics, tuned: Mapping[str, Any], general: Mapping[str, Any], config: type[Any]
) -> Any:
    """Return the settings that an algorithm takes in an environment unless it is told otherwise.

    They are those tuned for it, or else general ones that fit its spaces.

    Args:
        dynamics: the environment.
        tuned: settings by an environment's id or family.
        general: settings by the kind of observation: "numbers"; or "symbols": choices, cells,
            images. An algorithm without any has the defaults of its config.
        config: the class of settings.
    """
    if (entry := entry_of(dynamics.id, tuned)) is not None:
        return entry
    space, action_space = dynamics.observation_space, dynamics.action_space
    has_numbers = isinstance(space, Box | Dict) and fitting_network(space) == "mlp"
    chosen = general["numbers" if has_numbers else "symbols"] if general else config()
    is_bounded_box = isinstance(action_space, Box) and is_bounded(
        action_space.low, action_space.high
    )
    if getattr(chosen, "scale_actions", False) and not is_bounded_box:
        chosen = chosen.replace({"scale_actions": False})
    return for_space(chosen, space)
