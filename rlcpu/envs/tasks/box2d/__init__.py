"""Gymnasium's LunarLander, without Box2D."""

from rlcpu.envs.contract.registry import Limits, add_modules

FAMILY = add_modules(
    __name__,
    {
        "lunar_lander": {
            "LunarLander-v3": Limits(1000, 200.0),
            "LunarLanderContinuous-v3": Limits(1000, 200.0),
        }
    },
)
