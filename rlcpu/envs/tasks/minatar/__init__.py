"""The five games of MinAtar, with as few actions as each needs: "MinAtar/Breakout-v1"."""

from rlcpu.envs.contract.registry import Limits, add_modules

FAMILY = add_modules(
    __name__,
    {
        "asterix": {"MinAtar/Asterix-v1": Limits()},
        "breakout": {"MinAtar/Breakout-v1": Limits()},
        "freeway": {"MinAtar/Freeway-v1": Limits()},
        "seaquest": {"MinAtar/Seaquest-v1": Limits()},
        "space_invaders": {"MinAtar/SpaceInvaders-v1": Limits()},
    },
)
