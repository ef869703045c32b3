"""Counts of transitions: where all are that collectors were asked for."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass
class Ledger:
    """Counts of transitions, from which none can be missing.

    Attributes:
        requested: that collectors were asked to make.
        stored: that shards said they have stored.
        received: that the learner got itself, of agents without replay.
        sampled: that were drawn, with repetition.
        being_made: requested from collectors that have not answered.
        carried: made, but kept by collectors until the steps that follow are there (`n_step`).
        on_the_way: made, and sent to shards that have not answered.
        lost_with_collectors: requested from, or carried by, collectors that died.
        lost_on_the_way: in blocks that a machine took with it.
        lost_with_shards: stored after the last save of a shard that died, those too that were
            overwritten by then.
        overwritten: stored, until newer ones took their place.
        held: stored, and there.
        priorities_applied: priorities that reached the item that they were computed for.
        priorities_dropped: those whose item was overwritten, or lost.
        collector_restarts, shard_restarts: actors that died and came back.
        waits: how often making was put off because too much was on the way.
    """

    requested: int = 0
    stored: int = 0
    received: int = 0
    sampled: int = 0
    being_made: int = 0
    carried: int = 0
    on_the_way: int = 0
    lost_with_collectors: int = 0
    lost_on_the_way: int = 0
    lost_with_shards: int = 0
    overwritten: int = 0
    held: int = 0
    priorities_applied: int = 0
    priorities_dropped: int = 0
    collector_restarts: int = 0
    shard_restarts: int = 0
    waits: int = 0

    @property
    def lost(self) -> int:
        """Return everything that was lost."""
        return self.lost_with_collectors + self.lost_on_the_way + self.lost_with_shards

    def check(self) -> None:
        """Raise AssertionError unless all requested and all stored transitions are counted."""
        finished = self.stored + self.received + self.on_the_way + self.carried
        lost = self.lost_with_collectors + self.lost_on_the_way
        if self.requested != finished + self.being_made + lost:
            raise AssertionError(f"requested={self.requested} is not where it should be: {self}")
        if self.stored != self.held + self.overwritten + self.lost_with_shards:
            raise AssertionError(f"stored={self.stored} is not where it should be: {self}")
