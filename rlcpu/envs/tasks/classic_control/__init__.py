"""Gymnasium's classic control, ported."""

from rlcpu.envs.contract.registry import Limits, add_modules

FAMILY = add_modules(
    __name__,
    {
        "cartpole": {"CartPole-v1": Limits(500, 475.0)},
        "mountain_car": {"MountainCar-v0": Limits(200, -110.0)},
        "mountain_car_continuous": {"MountainCarContinuous-v0": Limits(999, 90.0)},
        "pendulum": {"Pendulum-v1": Limits(200)},
        "acrobot": {"Acrobot-v1": Limits(500, -100.0)},
    },
)
