"""PPO with random network distillation: rewards for what is new (Burda et al. 2018).

    bonus = |f(s') - g(s')|**2 / root of the mean square of all bonuses so far

g is a random network that nobody learns, and f learns to guess its outputs. The bonus is added to
the environment's reward in `prepare`; there is one value of both, where the paper has two.
"""

import dataclasses

import numpy as np

from rlcpu import nn
from rlcpu.train import PPO, PPOConfig


@dataclasses.dataclass(frozen=True)
class RNDConfig(PPOConfig):
    """Settings of PPO and two more."""

    bonus_scale: float = 0.1
    bonus_learning_rate: float = 1e-3


def distillation(batch, nets, settings):
    error = nets.guess(batch.seen) - batch.feature
    bonus = nn.sum(error * error)
    return nn.mean(bonus), {"bonus": bonus}


class RNDPPO(PPO):
    """PPO that is rewarded for observations that a network cannot guess yet."""

    algorithm, Config = "RNDPPO", RNDConfig
    saved_numbers = ("guess", "num_bonuses", "squares")

    def __init__(self, env, **settings):
        super().__init__(env, **settings)
        size = self.env.dynamics.observation_size
        self.features = nn.Network((size, 64, 32), seed=self.seed + 1)
        guess = nn.Network((size, 64, 64, 32), seed=self.seed + 2)
        columns = {"seen": size, "feature": 32}
        self.guess = nn.Learner(
            {"guess": guess}, distillation, columns=columns, per_sample=("bonus",), seed=self.seed
        )
        self.num_bonuses, self.squares = 0, 0.0

    def prepare(self, rollout):
        seen = rollout.transitions(("next_observation",), as_inputs=True)["next_observation"]
        seen = self.policy.scaling.apply(seen)
        batch = {"seen": seen, "feature": self.features.outputs(seen)}
        config, sizes = self.config, {"minibatch_size": self.config.minibatch_size}
        self.guess.update(batch, learning_rate=config.bonus_learning_rate, **sizes)
        bonus = self.guess.per_sample["bonus"].astype(float)
        self.num_bonuses += len(bonus)
        self.squares += float(bonus @ bonus)
        bonus *= config.bonus_scale / np.sqrt(self.squares / self.num_bonuses)
        rollout.rewards += bonus.reshape(rollout.rewards.shape)


if __name__ == "__main__":
    agent = RNDPPO("MountainCar-v0", seed=0)
    print(agent.learn(300_000, progress=True).losses)
    print(f"greedy: {agent.evaluate(100, seed=1).mean():.1f}")
