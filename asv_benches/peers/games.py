"""The table `games`: MinAtar, tables, LunarLander, Craftax; one step a call, or many."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from asv_benches.peers.harness import Job, drawn
from asv_benches.peers.rows import Row, duels
from asv_benches.peers.stepping import (
    craftax_step,
    envpool_best,
    gymnasium_step,
    gymnax_step,
    our_simulate,
    our_step,
)

NUM_ENVS, NUM_STEPS = 4096, 100
#: MinAtar's games and targets: against gymnax, which lacks the last, with many steps and a step per
#: call, and against MinAtar's own package.
MINATAR = {
    "Breakout": (20, 40, 1000),
    "SpaceInvaders": (20, 40, 1000),
    "Freeway": (10, 40, None),
    "Asterix": (10, 40, None),
    "Seaquest": (None, None, None),
}
#: Tables of Gymnasium and what EnvPool calls them.
TABLES = {"FrozenLake-v1": "FrozenLake-v1", "Taxi-v4": "Taxi-v3"}
#: Environments of peers that need a Python call or a solver for each; worlds of craftax, and steps.
FEW, WORLDS, SHORT = 256, 64, 10
CRAFTAX = "Craftax-Classic-Symbolic-v1"


def rows() -> list[Row]:
    table = []
    for game, (fused, single, alone) in MINATAR.items():
        name, ours, theirs = game.lower(), f"MinAtar/{game}-v1", f"{game}-MinAtar"
        many = {"minatar": ("MinAtar, act and state", partial(minatar_step, game), alone)}
        if fused:
            scan = partial(gymnax_step, theirs, NUM_ENVS, NUM_STEPS)
            many["scan"] = ("gymnax, scan", scan, fused)
            one = {"step": ("gymnax, jitted step", partial(gymnax_step, theirs, NUM_ENVS), single)}
            what = f"env.step, {NUM_ENVS:,} envs, uint8 planes, {game}"
            table += duels(name, what, partial(our_step, ours, NUM_ENVS), one)
        what = f"simulate, {NUM_ENVS:,} x {NUM_STEPS}, {game}"
        table += duels(name, what, partial(our_simulate, ours, NUM_ENVS, NUM_STEPS), many)
    for ours, theirs in TABLES.items():
        sync = partial(gymnasium_step, ours, FEW, "sync")
        peers = {
            "sync": (f"SyncVectorEnv of {FEW}", sync, 100),
            "envpool": ("EnvPool", envpool_best(theirs, NUM_ENVS), 20),
        }
        table += stepped(ours.split("-")[0].lower(), ours, peers)
    # EnvPool leaves contacts to Box2D.
    peers = {"envpool": (f"EnvPool of {FEW}", envpool_best("LunarLander-v2", FEW), 20)}
    table += stepped("lander", "LunarLander-v3", peers)
    return table + craftax()


def craftax() -> list[Row]:
    """Rows of Craftax-Classic, of fewer environments: the package takes long."""
    scan = {"scan": ("craftax, scan", partial(craftax_step, CRAFTAX, WORLDS, SHORT), 20)}
    one = {"step": ("craftax, jitted step", partial(craftax_step, CRAFTAX, WORLDS), 20)}
    name, ours = "craftax", partial(our_simulate, CRAFTAX, WORLDS, SHORT)
    table = duels(name, f"simulate, {WORLDS} x {SHORT}, Craftax-Classic", ours, scan)
    return table + duels(
        name, f"env.step, {WORLDS} envs, Craftax-Classic", partial(our_step, CRAFTAX, WORLDS), one
    )


def stepped(name: str, env_id: str, peers: dict[str, tuple[Any, ...]]) -> list[Row]:
    what = f"env.step, {NUM_ENVS:,} envs, {env_id}"
    return duels(name, what, partial(our_step, env_id, NUM_ENVS), peers)


def minatar_step(game: str) -> Job:
    """One environment of the package: `act` and `state`, which makes the planes."""
    from minatar import Environment

    names = {"SpaceInvaders": "space_invaders"}
    env = Environment(names.get(game, game.lower()))

    def call(actions: Any) -> None:
        for action in actions:
            _, ended = env.act(action)
            env.state()
            if ended:
                env.reset()

    def draw(rng: np.random.Generator) -> Any:
        return (rng.integers(0, 6, 100).tolist(),)

    return Job(call, drawn(draw), work=100)
