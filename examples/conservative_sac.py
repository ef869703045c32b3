"""SAC with a conservative penalty, from a fixed buffer: CQL (Kumar et al. 2020, equation 4).

    loss of a critic = SAC's + weight * mean(log sum_a e**Q(s, a) - Q(s, a of the buffer))

The sum is estimated from two uniform actions and two of the policy, weighted by their densities.
"""

import dataclasses
import math

import rlcpu
from rlcpu import nn
from rlcpu.train import SAC, SACConfig, sac


@dataclasses.dataclass(frozen=True)
class ConservativeConfig(SACConfig):
    """Settings of SAC and one more."""

    penalty: float = 1.0


def log_mean_exp(a, b, c, d):
    top = max(max(a, b), max(c, d))
    total = math.exp(a - top) + math.exp(b - top) + math.exp(c - top) + math.exp(d - top)
    return top + math.log(0.25 * total)


def conservative_critic(batch, nets, settings):
    loss, statistics = sac.critic(batch, nets, settings)
    log_density = -settings.action_size * math.log(2.0)  # of uniform actions in [-1, 1]
    drawn = [(2.0 * nn.uniform(batch.action) - 1.0, log_density) for _ in range(2)]
    drawn += [sac.sample(nets.actor(batch.observation), settings) for _ in range(2)]
    gap = 0.0
    for critic in (nets.critic1, nets.critic2):
        values = [critic(batch.observation, a) - nn.hold(log_prob) for a, log_prob in drawn]
        gap = gap + nn.each(log_mean_exp, *values) - critic(batch.observation, batch.action)
    return loss + settings.penalty * nn.mean(gap), {**statistics, "critic": loss, "gap": gap}


class ConservativeSAC(SAC):
    """SAC whose critics are conservative."""

    algorithm, Config = "ConservativeSAC", ConservativeConfig
    reported = ("critic", "q_value", "gap", "actor", "log_prob")

    def updates(self):
        return [nn.Update(conservative_critic, ("critic1", "critic2")), super().updates()[1]]


if __name__ == "__main__":
    teacher = SAC("Pendulum-v1", seed=0)
    teacher.learn(10_000)
    env, settings = teacher.env, dataclasses.asdict(teacher.config)
    spaces = rlcpu.envs.spaces_of(env.single_observation_space, env.single_action_space)
    agent = ConservativeSAC(spaces, buffer=teacher.buffer, **settings)
    print(agent.learn_offline(10_000))
    print(f"greedy: {agent.evaluate(100, seed=1, env=env).mean():.1f}")
