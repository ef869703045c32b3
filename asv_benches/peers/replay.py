"""The table `replay`: storing and sampling, time per call."""

from __future__ import annotations

import functools

from asv_benches.peers.duel import Best, CostDuel, TimeDuel
from asv_benches.peers.replay_buffers import (
    BufferCalls,
    CpprbBuffer,
    StableBaselinesBuffer,
    TianshouBuffer,
    TorchrlBuffer,
)
from asv_benches.peers.replay_flashbax import FlashbaxTrajectory, FlashbaxTree
from asv_benches.peers.replay_held import Held
from asv_benches.peers.replay_ours import CopyBlocks, OurBuffer, OurPost, OurTrajectory, OurTree
from asv_benches.peers.replay_post import NumpyPost, TorchPost
from asv_benches.peers.replay_trees import CpprbTree, TianshouTree, torchrl_tree
from asv_benches.peers.report import Row
from asv_benches.peers.timing import Contender

TRAJECTORY = "16 envs, 2 million"  # of 100 float32, in sequences of 11
MANY_STEPS, SEQUENCES = 100, 256

# Sizes of a call: target against the best of the peers.
TREE_TARGETS = {
    "update": {32: None, 256: 1.5, 1600: 3, 65536: 12},
    "sample": {32: None, 256: 3, 1024: 3, 65536: 1.3},
}
POST_TARGETS = {10**4: {}, 10**5: {}, 10**6: {"NumPy": 400, "torch": 800}, 10**7: {}}

Timed = functools.partial(Row, unit="s")


def rows() -> list[Row]:
    """All rows, in the order of the table."""
    return [*trajectory_rows(), *post_rows(), *tree_rows(), *buffer_rows(), *held_rows()]


def trajectory_rows() -> list[Row]:
    """The report on flashbax: adding to a prioritised trajectory buffer on a CPU is slow."""
    targets = {1: None, 2: None, MANY_STEPS: 8}
    table = [
        Timed(
            f"trajectory-add-{steps}",
            f"add {steps} time steps, {TRAJECTORY}",
            "flashbax, donated",
            TimeDuel(our_add(steps), FlashbaxTrajectory("flashbax", "add", steps)),
            target,
        )
        for steps, target in targets.items()
    ]
    draw = "sample", SEQUENCES
    ours, peer = OurTrajectory("rlcpu", *draw), FlashbaxTrajectory("flashbax", *draw)
    fresh = OurTrajectory("rlcpu", *draw, reuse=False)
    what = f"sample {SEQUENCES} sequences of 11, out="
    copy = CopyBlocks("copy", "copy", MANY_STEPS)
    return [
        *table,
        *(growth_row(steps, target) for steps, target in ((2, 2), (MANY_STEPS, 60))),
        Timed(
            "trajectory-copy",
            f"add {MANY_STEPS} time steps, 640 KB",
            "copying them to a random place",
            TimeDuel(our_add(MANY_STEPS), copy),
            0.5,
        ),
        Timed("trajectory-sample", what, "flashbax", TimeDuel(ours, peer), 8),
        Timed(
            "trajectory-sample-fresh",
            f"sample {SEQUENCES} sequences of 11, new arrays",
            "flashbax",
            TimeDuel(fresh, peer),
        ),
        Timed(
            "trajectory-sample-wait",
            what,
            "flashbax, waiting for each",
            TimeDuel(ours, FlashbaxTrajectory("flashbax", *draw, wait=True)),
        ),
    ]


def our_add(steps: int) -> OurTrajectory:
    """Our contender that adds."""
    return OurTrajectory("rlcpu", "add", steps)


def growth_row(steps: int, target: float) -> Row:
    """What more time steps per call cost us."""
    duel = CostDuel(our_add(steps), our_add(1))
    name, what = f"trajectory-growth-{steps}", f"add {steps} time steps, cost of"
    return Timed(name, what, "ours, 1 time step", duel, target, kind="time")


def post_rows() -> list[Row]:
    """The post "8h to gain 26h": an item added, 256 drawn by return without repetition."""
    table = []
    for size, targets in POST_TARGETS.items():
        peers = {
            "NumPy": NumpyPost("numpy", "draw", size),
            "torch": TorchPost("torch", "draw", size),
        }
        table += [
            Timed(
                f"post-{size}-{against.lower()}",
                f"add 1, draw 256 of {size:,} by return",
                f"the post's {against}",
                TimeDuel(our_post(size), peer),
                targets.get(against),
            )
            for against, peer in peers.items()
        ]
    growth = CostDuel(our_post(10**7), our_post(10**6))
    what = "add 1, draw 256 of 10,000,000, cost of"
    return [*table, Timed("post-growth", what, "ours, 1,000,000", growth, 3, kind="time")]


def our_post(size: int) -> OurPost:
    """Our contender that draws by return."""
    return OurPost("rlcpu", "draw", size)


def tree_rows() -> list[Row]:
    """Trees alone, of 2^20 leaves."""
    return [
        Timed(
            f"tree-{operation}-{size}-{against}",
            f"SumTree.{operation} of {size:,}, 2^20 leaves",
            against,
            TimeDuel(OurTree("rlcpu", operation, size), peer),
            target,
            ranked=True,
        )
        for operation, targets in TREE_TARGETS.items()
        for size, target in targets.items()
        for against, peer in tree_peers(operation, size).items()
    ]


def tree_peers(operation: str, size: int) -> dict[str, Contender]:
    """Everyone's tree."""
    return {
        "flashbax": FlashbaxTree("flashbax", operation, size),
        "torchrl": torchrl_tree(operation, size),
        "tianshou": TianshouTree("tianshou", operation, size),
        "cpprb": CpprbTree("cpprb", operation, size),
    }


def buffer_rows() -> list[Row]:
    """Whole buffers of a million transitions of 813 bytes."""
    jobs = (
        ("add", 1600, "ReplayBuffer.add of 1,600", 1),
        ("sample", 256, "ReplayBuffer.sample of 256, out=", 2),
        ("prioritized", 256, "Prioritized sample 256, out=, and update", 5),
    )
    table = [
        Timed(
            f"buffer-{operation}-{against}",
            what,
            against,
            TimeDuel(OurBuffer("rlcpu", operation, size), peer),
            target,
            ranked=True,
        )
        for operation, size, what, target in jobs
        for against, peer in buffer_peers(operation, size).items()
    ]
    fresh = OurBuffer("rlcpu", "sample", 256, reuse=False)
    duel = TimeDuel(fresh, CpprbBuffer("cpprb", "sample", 256))
    new = Timed("buffer-sample-fresh", "ReplayBuffer.sample of 256, new arrays", "cpprb", duel)
    return [*table, new]


def buffer_peers(operation: str, size: int) -> dict[str, Contender]:
    """Everyone's buffer; where a call takes one step, of 16 environments and of 1,600."""
    peers: dict[str, Contender] = {
        "cpprb": CpprbBuffer("cpprb", operation, size),
        "torchrl": TorchrlBuffer("torchrl", operation, size),
        "tianshou": by_step(TianshouBuffer, "tianshou", operation, size),
    }
    if operation != "prioritized":
        peers["stable-baselines3"] = by_step(
            StableBaselinesBuffer, "stable-baselines3", operation, size
        )
    return peers


def by_step(kind: type, name: str, operation: str, size: int) -> Contender:
    """The faster of few and many environments, where that makes a difference."""
    if operation != "add":
        return kind(name, operation, size)
    return Best(name, [kind(f"{n} envs", operation, size, num_envs=n) for n in (1600, 16)])


def held_rows() -> list[Row]:
    """Memory of a million transitions, next observations included."""
    what = "bytes held, 1 million transitions"
    uniform = OurBuffer("rlcpu", "sample", 256)
    prioritized = OurBuffer("rlcpu", "prioritized", 256)
    alone = "the data alone"
    peers: dict[str, BufferCalls] = {
        "cpprb": CpprbBuffer("cpprb", "sample", 256),
        "torchrl": TorchrlBuffer("torchrl", "sample", 256),
        "tianshou": TianshouBuffer("tianshou", "add", 1600, num_envs=1600),
        "stable-baselines3": StableBaselinesBuffer("stable-baselines3", "sample", 256),
    }
    cost = functools.partial(Row, kind="time", unit="B")
    return [
        cost("held", what, alone, Held(uniform), 1.05),
        cost("held-prioritized", f"{what}, prioritized", alone, Held(prioritized), 1.05),
        *(cost(f"held-{name}", what, name, Held(uniform, peer)) for name, peer in peers.items()),
    ]
