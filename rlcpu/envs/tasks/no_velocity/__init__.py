"""Classic control without velocities, under rl-baselines3-zoo's names."""

from rlcpu.envs.contract.registry import Limits, add_modules

FAMILY = add_modules(
    __name__,
    {
        "hidden": {
            "CartPoleNoVel-v1": Limits(500, 475.0),
            "MountainCarContinuousNoVel-v0": Limits(999, 90.0),
            "PendulumNoVel-v1": Limits(200),
        }
    },
)
