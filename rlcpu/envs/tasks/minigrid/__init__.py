"""Three of MiniGrid's worlds, seen through a window of seven by seven cells."""

from typing import Any

from rlcpu.envs.registry import Family, Limits, add_family


def _make(id: str) -> Any:
    from rlcpu.envs.tasks.minigrid import door_key, empty, four_rooms

    return {module.DYNAMICS.id: module.DYNAMICS for module in (door_key, empty, four_rooms)}[id]


FAMILY = add_family(
    Family(
        {
            "MiniGrid-Empty-8x8-v0": Limits(256),
            "MiniGrid-DoorKey-8x8-v0": Limits(640),
            "MiniGrid-FourRooms-v0": Limits(100),
        },
        _make,
    )
)
