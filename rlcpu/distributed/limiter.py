"""A limit on how often stored transitions are drawn, by which collectors and learner wait."""

from __future__ import annotations

from rlcpu.kernels.checks import check_count
from rlcpu.replay.checks import check_number


class SamplesPerInsert:
    """Keeps the number of items drawn near `ratio` times the number stored.

    Collectors and learner run at their own speeds; without a limit, the faster of the two decides
    how often each item is learnt from, and so what is learnt. Cassirer et al. 2021, "Reverb: a
    framework for experience replay", section 3.3.

    With i items stored and s drawn, the surplus is (i - min_size) * ratio - s. Storing may not
    raise it above `slack`, drawing may not lower it below -`slack`, and nothing is drawn before
    `min_size` items are stored.

    Args:
        ratio: items drawn for each item stored, above 0.
        min_size: items to be stored before the first is drawn.
        slack: how far the surplus may be from zero, in items drawn. If it is at least half of what
            one block and one batch change, `ratio * block + batch`, one of both can always go on.

    Attributes:
        inserted, sampled: items so far.

    Raises:
        TypeError, ValueError: an argument is no number, or out of range.

    Example:
        >>> limiter = SamplesPerInsert(ratio=4.0, min_size=100, slack=64.0)
        >>> limiter.can_sample(32), limiter.can_insert(100)
        (False, True)
        >>> limiter.insert(110)
        >>> limiter.can_sample(32), limiter.can_insert(10)
        (True, False)
    """

    def __init__(self, ratio: float, min_size: int, slack: float) -> None:
        self.ratio = check_number("ratio", ratio, 1e-9, 1e9)
        self.min_size = check_count("min_size", min_size)
        self.slack = check_number("slack", slack, 0.0, 1e18)
        self.inserted = self.sampled = 0

    def _surplus(self, inserted: int, sampled: int) -> float:
        return (inserted - self.min_size) * self.ratio - sampled

    def can_insert(self, count: int) -> bool:
        """Tell whether so many items may be stored now."""
        return self._surplus(self.inserted + count, self.sampled) <= self.slack

    def can_sample(self, count: int) -> bool:
        """Tell whether so many items may be drawn now."""
        enough = self.inserted >= self.min_size
        return enough and self._surplus(self.inserted, self.sampled + count) >= -self.slack

    def insert(self, count: int) -> None:
        """Count items that were stored, or will be."""
        self.inserted += count

    def sample(self, count: int) -> None:
        """Count items that were drawn."""
        self.sampled += count
