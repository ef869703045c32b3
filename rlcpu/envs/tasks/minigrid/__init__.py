"""Three of MiniGrid's worlds, seen through a window of seven by seven cells."""

from rlcpu.envs.contract.registry import Limits, add_modules

FAMILY = add_modules(
    __name__,
    {
        "empty": {"MiniGrid-Empty-8x8-v0": Limits(256)},
        "door_key": {"MiniGrid-DoorKey-8x8-v0": Limits(640)},
        "four_rooms": {"MiniGrid-FourRooms-v0": Limits(100)},
    },
)
