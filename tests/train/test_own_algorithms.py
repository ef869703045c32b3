"""Algorithms of the documentation, run for a while: what a user's own would go through."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from rlcpu import collect, nn
from rlcpu.envs import spaces_of
from rlcpu.train import DQN, PPO, SAC, TD3, DQNConfig, ppo
from rlcpu.train.dqn import bootstrap, huber
from rlcpu.train.on_policy import networks_of

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = {"num_envs": 4, "batch_size": 32, "hidden": (16, 16), "learning_starts": 64}


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:  # a dataclass looks its module up by name
        patch.setitem(__import__("sys").modules, name, module)
        spec.loader.exec_module(module)
    return module


PROGRAMS = {
    "munchausen_dqn": 60,
    "conservative_sac": 60,
    "predictive_ppo": 60,
    "rnd_ppo": 70,
    "implicit_q_learning": 90,
    "lagrangian_sac": 90,
    "attention_ppo": 110,
}


@pytest.mark.parametrize(("name", "most"), PROGRAMS.items())
def test_programs_are_short(name: str, most: int) -> None:
    assert len((EXAMPLES / f"{name}.py").read_text("utf-8").splitlines()) <= most


def test_munchausen_dqn_learns_to_balance() -> None:
    module = load("munchausen_dqn")
    agent = module.MunchausenDQN(
        "CartPole-v1", seed=0, num_envs=16, num_steps=8, num_updates=64, batch_size=128,
        hidden=(64, 64), learning_rate=1e-3, exploration_steps=5_000, reward_scale=0.1,
    )  # fmt: skip
    history = agent.learn(20_000)
    assert np.isfinite(history.losses).all()
    assert agent.evaluate(20, seed=1).mean() > 80.0  # a random policy has 22


def test_munchausen_settings_count_from_the_next_update() -> None:
    """A temperature so high that every policy is uniform makes values larger."""
    module = load("munchausen_dqn")
    values = []
    for temperature in (0.03, 3.0):
        config = module.MunchausenConfig(num_updates=64, **SMALL)
        agent = module.MunchausenDQN("CartPole-v1", seed=0, config=config)
        agent.learn(80)
        agent.config = agent.config.replace({"entropy_temperature": temperature})
        values.append(agent.learn(400).losses.q_value)
    assert values[1] > values[0] + 0.1


def test_a_conservative_critic_values_other_actions_less() -> None:
    """From one buffer and seed, with and without the penalty."""
    module = load("conservative_sac")
    teacher = SAC("Pendulum-v1", seed=0, **SMALL)
    teacher.learn(2_000)
    gaps = []
    for penalty in (0.0, 5.0):
        agent = module.ConservativeSAC(
            "Pendulum-v1", buffer=teacher.buffer, penalty=penalty, **SMALL
        )
        gaps.append(agent.learn_offline(900).gap)
    assert gaps[1] < gaps[0] - 0.1


def test_a_head_that_predicts_teaches_the_hidden_layers() -> None:
    """The prediction changes what is learnt, becomes right, and goes to files and back."""
    module = load("predictive_ppo")
    losses = []
    for weight in (0.0, 0.3):
        agent = module.PredictivePPO("CartPole-v1", seed=0, prediction_weight=weight)
        losses += [agent.learn(2_048).losses, agent.learn(20_480).losses]
    assert losses[3].prediction < 0.3 * losses[2].prediction
    assert losses[0].value != losses[2].value
    assert losses[1].prediction > 3.0 * losses[3].prediction, "without the loss nothing is learnt"


def test_a_predicting_agent_goes_on_from_its_file(tmp_path: Path) -> None:
    module = load("predictive_ppo")
    agent = module.PredictivePPO("CartPole-v1", seed=0)
    agent.learn(4_096)
    agent.save(tmp_path / "agent.npz")
    loaded = module.PredictivePPO.load(tmp_path / "agent.npz")
    assert loaded.learn(4_096).losses == agent.learn(4_096).losses


def test_what_was_seen_often_is_worth_no_bonus(tmp_path: Path) -> None:
    """Bonuses fall; the returns of episodes are the environment's; a file holds what was learnt."""
    module = load("rnd_ppo")
    settings = {"num_envs": 8, "num_steps": 64, "minibatch_size": 64, "hidden": (16,)}
    agent = module.RNDPPO("CartPole-v1", seed=0, bonus_scale=100.0, **settings)
    bonuses = []
    for steps in (512, 8_192):
        history = agent.learn(steps)
        bonuses.append(agent.guess.per_sample["bonus"].mean())
        assert history.episode_return <= 500.0
    assert bonuses[1] < 0.7 * bonuses[0]
    agent.save(tmp_path / "agent.npz")
    loaded = module.RNDPPO.load(tmp_path / "agent.npz")
    assert loaded.learn(1_024).losses == agent.learn(1_024).losses
    assert loaded.squares == agent.squares


def test_bonuses_find_what_is_rarely_rewarded() -> None:
    """The car reaches the flag, which random steps never do."""
    module = load("rnd_ppo")
    assert module.RNDPPO("MountainCar-v0", seed=0).learn(150_000).episode_return > -160.0


def test_an_expectile_above_one_half_values_the_better_transitions() -> None:
    """From one buffer and seed; and an agent of spaces alone learns to do better than it saw."""
    module = load("implicit_q_learning")
    teacher = TD3("Pendulum-v1", seed=0)
    teacher.learn(4_000)
    env, same = teacher.env, dataclasses.asdict(teacher.config) | {"policy_delay": 1}
    spaces = spaces_of(env.single_observation_space, env.single_action_space)
    values = []
    for expectile in (0.5, 0.9):
        agent = module.ImplicitQLearning(
            spaces, seed=1, buffer=teacher.buffer, expectile=expectile, **same
        )
        values.append(agent.learn_offline(3_000).q_value)
    assert values[1] > values[0] + 10.0
    returns = agent.evaluate(50, seed=1, env=env)
    assert returns.mean() > np.mean(teacher.returns) + 100.0


def test_a_multiplier_keeps_costs_below_their_limit(tmp_path: Path) -> None:
    """Without a limit a pendulum swings fast, for 4 % of the time; a file holds the multiplier."""
    module = load("lagrangian_sac")
    for limit, costs, multipliers in (
        (1.0, (0.04, 0.1), (0.0, 0.01)),
        (0.02, (0.0, 0.03), (1, 1e9)),
    ):
        agent = module.LagrangianSAC("Pendulum-v1", seed=0, cost_limit=limit)
        losses = agent.learn(4_000).losses
        cost = agent.columns(collect(agent.env, agent.policy, 1_000))["cost"].mean()
        assert costs[0] <= cost < costs[1]
        assert multipliers[0] < losses.multiplier < multipliers[1]
    agent.save(tmp_path / "agent.npz")
    loaded = module.LagrangianSAC.load(tmp_path / "agent.npz")
    assert loaded.learn(500).losses == agent.learn(500).losses


def test_attention_equals_pytorch() -> None:
    """Outputs and derivatives, from equation 1 of Vaswani et al. 2017."""
    torch = pytest.importorskip("torch")
    module = load("attention_ppo")
    network = nn.Network(12, module.layers(None) >> nn.Dense(5), seed=0)
    network.parameters = network.parameters.astype(np.float64)
    rng = np.random.default_rng(0)
    rows, slopes = rng.normal(size=(32, 12)), rng.normal(size=(32, 5))
    w = [torch.tensor(array).requires_grad_() for array in network.arrays().values()]
    x = torch.tensor(rows, requires_grad=True)
    hidden = torch.relu(x.reshape(32, 4, 3) @ w[0] + w[1]) @ w[2] + w[3]
    q, k, v = hidden.split(16, -1)
    y = ((q @ k.transpose(1, 2) / 4.0).softmax(-1) @ v).reshape(32, -1)
    outputs = torch.relu(y @ w[4] + w[5]) @ w[6] + w[7]
    expected = torch.autograd.grad((outputs * torch.tensor(slopes)).sum(), [*w, x])
    by_parameters, by_inputs = network.gradients(rows, slopes)
    np.testing.assert_allclose(network.outputs(rows), outputs.detach(), rtol=0, atol=1e-10)
    np.testing.assert_allclose(by_inputs, expected[-1], rtol=0, atol=1e-10)
    learnt = torch.cat([each.ravel() for each in expected[:-1]])
    np.testing.assert_allclose(by_parameters, learnt, rtol=0, atol=1e-9)


def test_attention_finds_the_nearest_object(tmp_path: Path) -> None:
    """Dense layers of as many parameters do not, in as many steps; a file holds the layer's."""
    module = load("attention_ppo")
    agents = [
        PPO("Nearest-v0", seed=0, value="shared", **settings)
        for settings in ({"network": module.layers}, {"hidden": (64, 72)})
    ]
    sizes = [agent.learner.networks[0].parameters.size for agent in agents]
    assert abs(sizes[0] / sizes[1] - 1.0) < 0.1
    for agent in agents:
        agent.learn(20_000)
    attending, dense = (agent.evaluate(1000, seed=1).mean() for agent in agents)
    assert attending > 0.85
    assert dense < 0.6
    agents[0].save(tmp_path / "agent.npz")
    loaded = PPO.load(tmp_path / "agent.npz", network=module.layers)
    assert loaded.evaluate(1000, seed=1).mean() == attending


@dataclasses.dataclass(frozen=True)
class BoltzmannConfig(DQNConfig):
    """Settings of DQN and one more."""

    temperature: float = 0.25


def boltzmann(batch: Any, nets: Any, settings: Any) -> Any:
    """Return DQN's loss with the mean of the next values under softmax(Q / temperature)."""
    after = nets.target(batch.next_observation)
    probabilities = nn.each(math.exp, nn.log_softmax(after / settings.temperature))
    next_value = nn.sum(probabilities * after)
    target = nn.each(bootstrap, batch.reward, batch.discount, batch.terminated, next_value)
    value = nn.take(nets.online(batch.observation), batch.action)
    return nn.mean(nn.each(huber, value, target)), {"q_value": value, "error": value - target}


class BoltzmannDQN(DQN):
    """DQN with another target, and nothing else that a subclass could say."""

    algorithm, Config, reported = "BoltzmannDQN", BoltzmannConfig, ("q_value",)

    def updates(self) -> list[nn.Update]:
        """Return the losses."""
        return [nn.Update(boltzmann, ("online",))]


def test_a_subclass_takes_over_tuned_settings_and_has_its_own() -> None:
    agent = BoltzmannDQN("CartPole-v1", seed=0, temperature=0.5, hidden=(16, 16))
    assert agent.config.temperature == 0.5
    assert agent.config.n_step == DQN("CartPole-v1").config.n_step != DQNConfig().n_step
    assert np.isfinite(agent.learn(3_000).losses).all()


def test_a_name_that_no_statistic_has_is_refused_when_the_agent_is_made() -> None:
    class Wrong(BoltzmannDQN):
        reported = ("loss", "q_value")

    with pytest.raises(ValueError, match=r"Wrong.reported has 'loss'.*boltzmann, q_value, error"):
        Wrong("CartPole-v1")


def test_outputs_of_a_network_with_hidden_ones_are_told_apart() -> None:
    class Wrong(PPO):
        def networks(self, seed: int) -> dict[str, Any]:
            return networks_of(self.policy, hidden=True)

        def updates(self) -> list[nn.Update]:
            return [nn.Update(ppo.ppo)]

    with pytest.raises(ValueError, match=r"outputs has 67 numbers of a sample, expected 3; of a"):
        Wrong("CartPole-v1", value="shared")
    Wrong.networks = lambda self, seed: {"net": nn.Network((4, 3))}  # type: ignore[method-assign]
    with pytest.raises(ValueError, match=r'networks\(\) returned net: expected "policy"'):
        Wrong("CartPole-v1")
    config = dataclasses.replace(PPO("CartPole-v1").config)

    class Undecorated(type(config)):  # type: ignore[misc]
        weight: float = 1.0

    Wrong.Config = Undecorated
    with pytest.raises(TypeError, match=r"Undecorated.weight: expected a frozen dataclass"):
        Wrong("CartPole-v1", weight=2.0)


def test_a_function_that_is_not_plain_python_is_refused_with_its_line() -> None:
    class Wrong(BoltzmannDQN):
        def updates(self) -> list[nn.Update]:
            return [
                nn.Update(
                    lambda batch, nets, settings: nn.each(np.exp, nets.online(batch.observation))
                )
            ]

    with pytest.raises(TypeError, match=r"test_own_algorithms.py, line \d+.*ufunc 'exp'"):
        Wrong("CartPole-v1")
