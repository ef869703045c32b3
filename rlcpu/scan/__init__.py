"""Recurrences over an axis, batched over the others."""

from rlcpu.scan.returns import Advantages, discounted_returns, gae

__all__ = ["Advantages", "discounted_returns", "gae"]
