"""Training."""

from __future__ import annotations


class Ppo:
    """PPO on CartPole-v1 with its default settings."""

    version = "1"
    timeout = 300

    def setup(self) -> None:
        """Compiles by training for a moment, then trains."""
        from rlcpu.train import PPO  # here, so that a commit without it keeps the other histories

        PPO("CartPole-v1", seed=0).learn(1)
        self.history = PPO("CartPole-v1", seed=0).learn(100_000)

    def track_update(self) -> float:
        """Seconds in the network's update, 100,000 environment steps."""
        return float(self.history.time_update)

    def track_collect(self) -> float:
        """Seconds in simulation and inference, 100,000 environment steps."""
        return float(self.history.time_collect)


Ppo.track_update.unit = Ppo.track_collect.unit = "seconds"  # type: ignore[attr-defined]
