"""SAC whose actions cost something that has a limit, by a Lagrange multiplier (Ha et al. 2020).

    loss of the actor      = SAC's, of Q(s, a) - multiplier * C(s, a)
    loss of the multiplier = -log(multiplier) * mean((1 - gamma) * C(s, a) - limit)

C is the discounted sum of costs, which a critic of its own learns; (1 - gamma) * C is a step's cost
on average. The multiplier rises while that is above the limit, as the temperature rises while the
entropy is below its target.
"""

import dataclasses
import math

import numpy as np

import rlcpu
from rlcpu import nn
from rlcpu.train import SAC, SACConfig, critics, sac
from rlcpu.train.dqn import bootstrap


@dataclasses.dataclass(frozen=True)
class LagrangianConfig(SACConfig):
    """Settings of SAC and one more."""

    cost_limit: float = 0.05  # of a step, on average


def cost_critic(batch, nets, settings):
    action, _ = sac.sample(nets.actor(batch.next_observation), settings)
    after = nets.cost_target(batch.next_observation, action)
    target = nn.each(bootstrap, batch.cost, batch.discount, batch.terminated, after)
    cost = nets.cost(batch.observation, critics.scaled_action(batch, settings))
    error = cost - nn.hold(target)
    return nn.mean(0.5 * error * error), {"cost": cost}


def actor_and_multiplier(batch, nets, settings):
    action, log_prob = sac.sample(nets.actor(batch.observation), settings)
    value = critics.least_value((nets.critic1, nets.critic2), batch.observation, action)
    cost = nets.cost(batch.observation, action)
    multiplier = nn.each(math.exp, nets.log_multiplier)
    worth = value - nn.hold(multiplier) * cost
    loss, statistics = sac.policy_loss(worth, log_prob, batch, nets, settings)
    excess = (1.0 - settings.gamma) * nn.hold(cost) - settings.cost_limit
    loss = loss - nn.mean(nets.log_multiplier * excess)
    return loss, {**statistics, "multiplier": multiplier}


class LagrangianSAC(SAC):
    """SAC that heeds the cost of fast turns, of a pendulum."""

    algorithm, Config = "LagrangianSAC", LagrangianConfig
    reported = ("critic", "q_value", "cost", "actor", "multiplier")

    def column_sizes(self):
        return {"cost": 1}

    def columns(self, rollout):
        return {"cost": abs(rollout.observations[..., 2]) > 4.0}

    def networks(self, seed):
        dynamics = self.env.dynamics
        sizes = dynamics.observation_size + dynamics.action_size, *self.config.hidden, 1
        cost = nn.Network(sizes, "relu", seed=seed + 2)
        return {**super().networks(seed), "cost": cost, "log_multiplier": np.zeros(1, np.float32)}

    def targets(self):
        return {**super().targets(), "cost_target": "cost"}

    def updates(self):
        learnt = "actor", "log_temperature", "log_multiplier"
        critic, _ = super().updates()
        return [critic, nn.Update(cost_critic, ("cost",)), nn.Update(actor_and_multiplier, learnt)]


if __name__ == "__main__":
    for limit in (1.0, 0.03):
        agent = LagrangianSAC("Pendulum-v1", seed=0, cost_limit=limit)
        print(agent.learn(15_000).losses)
        rollout = rlcpu.collect(agent.env, agent.policy, 1000)
        print(f"limit {limit}: {agent.columns(rollout)['cost'].mean():.3f} a step", end=", ")
        print(f"greedy: {agent.evaluate(100, seed=1).mean():.1f}")
