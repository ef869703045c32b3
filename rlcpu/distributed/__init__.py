"""Collectors and sharded replay in processes of their own, on one machine or many.

Ray (the extra `ray`) starts the processes, moves the data, and starts again what dies.
Agents with a replay buffer use all of this by `agent.learn(steps, num_collectors=2, num_shards=1)`;
the classes here are what that is made of. Nothing here is imported with rlcpu itself.

Read `shard`, `collector` and `limiter`, plain classes without a network; then `client` and
`replay`, many shards as one buffer, `actors`, which alone knows Ray, and `learning` and `rollouts`,
the two sides of agents.
"""

from rlcpu.distributed.actors import Cluster, ClusterError, RayActor
from rlcpu.distributed.collector import Collector, Made
from rlcpu.distributed.ledger import Ledger
from rlcpu.distributed.limiter import SamplesPerInsert
from rlcpu.distributed.remote import LostArgumentError, LostError, Remote, StoreFullError
from rlcpu.distributed.replay import EmptyError, ShardedReplay
from rlcpu.distributed.rollouts import RolloutCollector
from rlcpu.distributed.shard import Drawn, ReplayShard, ShardStatus, Updated

__all__ = [
    "Cluster",
    "ClusterError",
    "Collector",
    "Drawn",
    "EmptyError",
    "Ledger",
    "LostArgumentError",
    "LostError",
    "Made",
    "RayActor",
    "Remote",
    "ReplayShard",
    "RolloutCollector",
    "SamplesPerInsert",
    "ShardStatus",
    "ShardedReplay",
    "StoreFullError",
    "Updated",
]
