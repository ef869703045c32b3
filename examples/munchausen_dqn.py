"""Munchausen DQN: an algorithm of one's own, as a subclass of DQN (Vieillard et al. 2020).

With log pi = log softmax(Q'(s', .) / t) and log pi_0 = log softmax(Q'(s, .) / t),
    y = r + alpha * t * clip(log pi_0(a), l_0, 0) + discount * sum(pi * (Q'(s', .) - t * log pi))
"""

import dataclasses
import math

from rlcpu import nn
from rlcpu.train import DQN, DQNConfig
from rlcpu.train.dqn import bootstrap, huber


@dataclasses.dataclass(frozen=True)
class MunchausenConfig(DQNConfig):
    """Settings of DQN and three more, with the paper's values."""

    entropy_temperature: float = 0.03  # t
    bonus: float = 0.9  # alpha
    lowest_log: float = -1.0  # l_0


def soft_value(value, log_prob, temperature):
    return math.exp(log_prob) * (value - temperature * log_prob)


def with_bonus(reward, log_prob, scale, lowest):
    return reward + scale * min(max(log_prob, lowest), 0.0)


def munchausen(batch, nets, settings):
    t = settings.entropy_temperature
    before, after = nets.target(batch.observation), nets.target(batch.next_observation)
    allowed = batch.next_action_mask if settings.is_masked else None
    next_value = nn.sum(nn.each(soft_value, after, nn.log_softmax(after / t, allowed=allowed), t))
    taken = nn.take(nn.log_softmax(before / t), batch.action)
    reward = nn.each(with_bonus, batch.reward, taken, settings.bonus * t, settings.lowest_log)
    target = nn.each(bootstrap, reward, batch.discount, batch.terminated, next_value)
    value = nn.take(nets.online(batch.observation), batch.action)
    loss = nn.mean(batch.weight * nn.each(huber, value, target))
    return loss, {"loss": loss, "q_value": value, "error": value - target}


class MunchausenDQN(DQN):
    """DQN with another target."""

    algorithm, Config = "MunchausenDQN", MunchausenConfig

    def updates(self):
        return [nn.Update(munchausen, ("online",))]


if __name__ == "__main__":
    agent = MunchausenDQN("CartPole-v1", seed=0, n_step=1)  # the bonus is of one step
    agent.learn(60_000, target_return=475.0, progress=True)
    print(f"greedy: {agent.evaluate(100, seed=1).mean():.1f}")
