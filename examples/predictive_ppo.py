"""PPO with an auxiliary head: hidden units that predict the next observation.

    loss = PPO's + weight * mean(|f(hidden(s), a) - s'|**2)

From the prediction the hidden layers, which policy and values share, learn something in each step,
also where rewards are rare (Jaderberg et al. 2017, "Unsupervised auxiliary tasks").
"""

import dataclasses

from rlcpu import nn
from rlcpu.train import PPO, PPOConfig
from rlcpu.train.on_policy import networks_of
from rlcpu.train.ppo import loss_of, squared_error


@dataclasses.dataclass(frozen=True)
class PredictiveConfig(PPOConfig):
    """Settings of PPO and one more."""

    prediction_weight: float = 1.0


def predictive(batch, nets, settings):
    policy = nets.policy(batch.observation)
    loss, statistics = loss_of(policy.outputs, batch, nets, settings)
    predicted = nets.next(policy.hidden, batch.action)
    error = nn.sum(nn.each(squared_error, predicted, batch.next_observation))
    return loss + settings.prediction_weight * nn.mean(error), {**statistics, "prediction": error}


class PredictivePPO(PPO):
    """PPO whose hidden layers learn to predict, too."""

    algorithm, Config = "PredictivePPO", PredictiveConfig
    reported = (*PPO.reported, "prediction")

    def networks(self, seed):
        size, count = self.config.hidden[-1], self.env.dynamics.num_actions
        action = nn.Input("action") >> nn.Embedding(64, choices=count)
        head = nn.Sum(nn.Input("hidden") >> nn.Dense(64), action) >> nn.Relu()
        head = head >> nn.Dense(self.env.dynamics.observation_size)
        model = nn.Network({"hidden": size, "action": 1}, head, seed=seed)
        return {**networks_of(self.policy, hidden=True), "next": model}

    def updates(self):
        return [nn.Update(predictive)]

    def column_sizes(self):
        return {"next_observation": self.env.dynamics.observation_size}

    def columns(self, rollout):
        return rollout.transitions(("next_observation",), as_inputs=True)


if __name__ == "__main__":
    agent = PredictivePPO("CartPole-v1", seed=0, value="shared")
    print(agent.learn(100_000, target_return=475.0, progress=True).losses)
    print(f"greedy: {agent.evaluate(100, seed=1).mean():.1f}")
