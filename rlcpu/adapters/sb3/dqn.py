"""`stable_baselines3.DQN` with prioritised replay."""

from __future__ import annotations

from typing import Any

import numpy as np
import stable_baselines3
import torch

from rlcpu.adapters.sb3.replay import PrioritizedReplayBuffer, PrioritizedSamples, ReplayBuffer

Tensor = Any  # torch.Tensor


class DQN(stable_baselines3.DQN):
    """`stable_baselines3.DQN` with prioritised replay (Schaul et al. 2016).

    The loss of a transition is weighted by its importance weight, and its priority becomes the size
    of its temporal difference. Arguments are the same; `replay_buffer_class` is
    `PrioritizedReplayBuffer` where it is None, and `n_steps` and `gamma` reach it: in
    `replay_buffer_kwargs` others are a ValueError. With another class it learns as
    `stable_baselines3.DQN` does.
    """

    replay_buffer_class: Any
    replay_buffer_kwargs: dict[str, Any]
    n_steps: int

    def _setup_model(self) -> None:
        """Make buffer and network; n-step returns are the buffer's where it has them."""
        kind = self.replay_buffer_class = self.replay_buffer_class or PrioritizedReplayBuffer
        n_steps = self.n_steps
        if issubclass(kind, ReplayBuffer):
            options = {**self.replay_buffer_kwargs}
            if n_steps == 1:  # its default: those of the buffer count
                n_steps = options.get("n_steps", 1)
            for name, value in (("n_steps", n_steps), ("gamma", self.gamma)):
                if n_steps > 1 and options.setdefault(name, value) != value:
                    raise ValueError(
                        f"replay_buffer_kwargs has {name}={options[name]!r}: expected that of the "
                        f"model, {value!r}"
                    )
            self.replay_buffer_kwargs = options
            self.n_steps = 1  # stable-baselines3 warns that other classes do without it
        super()._setup_model()
        self.n_steps = n_steps

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """Sample the replay buffer, make updates, and update priorities."""
        buffer = self.replay_buffer
        if not isinstance(buffer, PrioritizedReplayBuffer):
            super().train(gradient_steps, batch_size)
            return
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        progress = 1.0 - self._current_progress_remaining
        losses: list[Any] = []
        # Without an epsilon all priorities may become 0: then nothing is learnt until a new step.
        while len(losses) < gradient_steps and buffer.buffer.can_sample(batch_size):
            batch = buffer.sample(batch_size, self._vec_normalize_env, progress)
            values, targets = self._values(batch)
            with torch.no_grad():
                errors = values - targets
                # Derivatives of mean(weights * Huber loss) with respect to the values, as autograd
                # would compute them, for half of what priorities cost beside a uniform update.
                slopes = errors.clamp(-1.0, 1.0).mul_(batch.weights).div_(len(errors))
            sizes = np.abs(errors.cpu().numpy()[:, 0])
            buffer.update_priorities(batch.indices, sizes)  # which refuses NaN: before the step
            self.policy.optimizer.zero_grad()
            values.backward(slopes)
            torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
            self.policy.optimizer.step()
            huber = np.where(sizes < 1.0, 0.5 * sizes * sizes, sizes - 0.5)
            losses.append(np.mean(batch.weights.cpu().numpy()[:, 0] * huber))
        self._n_updates += len(losses)
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        if losses:
            self.logger.record("train/loss", np.mean(losses))

    def _values(self, batch: PrioritizedSamples) -> tuple[Tensor, Tensor]:
        """Return Q(s, a) and r + gamma^n max_a' Q'(s', a'), each (batch_size, 1)."""
        discounts = self.gamma if batch.discounts is None else batch.discounts
        with torch.no_grad():
            next_values = self.q_net_target(batch.next_observations).max(dim=1, keepdim=True).values
            targets = batch.rewards + (1 - batch.dones) * discounts * next_values
        return self.q_net(batch.observations).gather(1, batch.actions.long()), targets
