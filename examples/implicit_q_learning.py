"""Implicit Q-learning, from a fixed buffer, on TD3's networks (Kostrikov et al. 2021).

    loss of V       = mean |tau - 1(u < 0)| * u**2,  u = min Q'(s, a) - V(s)     (equation 5)
    loss of Q       = mean (r + discount * V(s') - Q(s, a))**2 / 2               (equation 6)
    loss of policy  = mean min(e**(beta * u), 100) * |tanh(f(s)) - a|**2         (equation 7)

No loss asks for the value of an action that is not in the buffer.
"""

import dataclasses
import math

import rlcpu
from rlcpu import nn
from rlcpu.train import TD3, TD3Config, critics
from rlcpu.train.bc import distance
from rlcpu.train.dqn import bootstrap


@dataclasses.dataclass(frozen=True)
class IQLConfig(TD3Config):
    """Settings of TD3 and two more, with the paper's values of locomotion."""

    policy_delay: int = 1
    expectile: float = 0.7  # tau
    inverse_temperature: float = 3.0  # beta


def expectile_loss(u, expectile):
    return (expectile if u > 0.0 else 1.0 - expectile) * u * u


def weight_of(u, inverse_temperature):
    return math.exp(min(inverse_temperature * u, math.log(100.0)))


def advantage(batch, nets):
    targets = nets.target1, nets.target2
    best = critics.least_value(targets, batch.observation, batch.action)
    return best - nets.value(batch.observation)


def value(batch, nets, settings):
    return nn.mean(nn.each(expectile_loss, advantage(batch, nets), settings.expectile)), {}


def critic(batch, nets, settings):
    after = nets.value(batch.next_observation)
    target = nn.each(bootstrap, batch.reward, batch.discount, batch.terminated, after)
    return critics.critics_loss(batch, (nets.critic1, nets.critic2), target)


def actor(batch, nets, settings):
    weight = nn.each(weight_of, advantage(batch, nets), settings.inverse_temperature)
    action = critics.scaled_action(batch, settings)
    return nn.mean(weight * nn.sum(nn.each(distance, nets.actor(batch.observation), action))), {}


class ImplicitQLearning(TD3):
    """TD3's networks and a value of states, learnt from a buffer alone."""

    algorithm, Config = "ImplicitQLearning", IQLConfig
    reported = ("value", "critic", "q_value", "actor")

    def networks(self, seed):
        sizes = self.env.dynamics.observation_size, *self.config.hidden, 1
        return {**super().networks(seed), "value": nn.Network(sizes, "relu", seed=seed + 2)}

    def targets(self):
        return {"target1": "critic1", "target2": "critic2"}

    def updates(self):
        of_critics = nn.Update(critic, ("critic1", "critic2"))
        return [nn.Update(value, ("value",)), of_critics, nn.Update(actor, ("actor",))]


if __name__ == "__main__":
    teacher = TD3("Pendulum-v1", seed=0)
    teacher.learn(10_000)
    env, settings = teacher.env, dataclasses.asdict(teacher.config) | {"policy_delay": 1}
    spaces = rlcpu.envs.spaces_of(env.single_observation_space, env.single_action_space)
    agent = ImplicitQLearning(spaces, buffer=teacher.buffer, **settings)
    print(agent.learn_offline(10_000))
    print(f"greedy: {agent.evaluate(100, seed=1, env=env).mean():.1f}")
