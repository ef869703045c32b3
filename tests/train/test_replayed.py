"""Sequences from replay against the papers: targets, burn-in, priorities, and a whole update."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from rlcpu import nn
from rlcpu.replay.items import Batch
from rlcpu.train import sac, td3
from rlcpu.train.dqn import DQNConfig, dqn_of_sequences
from rlcpu.train.replaying import replayed
from tests.nn.test_algorithms import move_targets, observe_noise
from tests.nn.test_memory import Cells
from tests.nn.twins import assert_close, gradients_of

ACTIONS, SIZE, UNITS, COUNT = 3, 3, 16, 20
#: Powers of its gamma times `draw_batch`'s rewards have no rounding errors in float32.
CONFIG = DQNConfig(burn_in=2, sequence_length=5, n_step=3, gamma=0.5)
TOTAL = replayed.length_of(CONFIG)


def draw_batch(seed: int = 0) -> Any:
    """Sequences in which episodes terminate, and are cut off."""
    rng = np.random.default_rng(seed)
    shape = TOTAL, COUNT
    ends = rng.random(shape) < 0.25
    terminated = ends & (rng.random(shape) < 0.5)
    begins = np.concatenate([rng.random((1, COUNT)) < 0.2, ends[:-1]])
    allowed = rng.random((*shape, ACTIONS)) < 0.6
    allowed[..., 1] = True
    data = {
        "observation": rng.normal(size=(*shape, SIZE)).astype(np.float32),
        "action": rng.integers(0, ACTIONS, shape),
        "reward": np.float32(rng.integers(-16, 17, shape) / 8.0),
        "terminated": terminated,
        "begins": begins,
        "action_mask": allowed,
        "state": np.where(begins[0][:, None], 0, rng.normal(size=(COUNT, UNITS)).astype("f")),
    }
    weights = rng.uniform(0.2, 1.0, COUNT).astype(np.float32)
    return Batch(data, None, np.arange(COUNT), None, None, weights)


def naive_target(batch: Any, t: int, b: int) -> tuple[float, float, int] | None:
    """Sum of rewards, discount of the value that follows (0 without), steps to it; None if cut."""
    total, discount = 0.0, 1.0
    for m in range(CONFIG.n_step):
        now = t + m
        if batch["begins"][now + 1, b] and not batch["terminated"][now, b]:
            return (total, discount, m) if m else None
        total += discount * float(batch["reward"][now, b])
        if batch["terminated"][now, b]:
            return total, 0.0, 0
        discount *= CONFIG.gamma
    return total, discount, CONFIG.n_step


def test_targets_end_with_episodes() -> None:
    batch = draw_batch()
    targets = replayed.targets_of(batch["reward"], batch["terminated"], batch["begins"], CONFIG)
    kinds = set()
    for t in range(TOTAL):
        for b in range(COUNT):
            if not CONFIG.burn_in <= t < CONFIG.burn_in + CONFIG.sequence_length:
                assert targets.is_learnt[t, b] == 0.0
                continue
            expected = naive_target(batch, t, b)
            assert targets.is_learnt[t, b] == float(expected is not None)
            if expected is None:
                continue
            total, discount, ahead = expected
            assert targets.reward[t, b] == pytest.approx(total, abs=1e-5)
            assert targets.terminated[t, b] == float(discount == 0.0)
            if discount:
                assert targets.discount[t, b] == pytest.approx(discount)
                assert targets.ahead[t, b] == ahead
            kinds.add((discount == 0.0, ahead))
    assert kinds == {(True, 0), (False, 1), (False, 2), (False, 3)}


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_rewards_that_no_target_reaches_are_no_terms(poison: float) -> None:
    """Those of the next episode and, without a discount, of all steps but the first."""
    rewards = np.ones((TOTAL, 2), np.float32)
    terminated, begins = np.zeros((2, TOTAL + 1, 2), bool)
    first = CONFIG.burn_in
    terminated[first, 0], begins[first + 1, 0], rewards[first + 1, 0] = True, True, poison
    targets = replayed.targets_of(rewards, terminated[:-1], begins[:-1], CONFIG)
    assert targets.reward[first, 0] == 1.0
    undiscounted = dataclasses.replace(CONFIG, gamma=0.0)
    targets = replayed.targets_of(rewards, terminated[:-1], begins[:-1], undiscounted)
    learnt = slice(first, first + CONFIG.sequence_length)
    np.testing.assert_array_equal(targets.reward[learnt], rewards[learnt])


def test_priorities_are_between_mean_and_maximum() -> None:
    """Kapturowski et al. 2019, section 2.3, of steps that are learnt from."""
    errors, learnt = np.array([[1.0, -8.0], [-3.0, 2.0], [9.0, 4.0]]), np.ones((3, 2))
    learnt[2, 0] = 0.0
    expected = [0.9 * 3.0 + 0.1 * 2.0, 0.9 * 8.0 + 0.1 * 14.0 / 3.0]
    np.testing.assert_allclose(replayed.priorities_of(errors, learnt, 0.9), expected)


def run_memory(cells: Cells, batch: Any, holds: bool) -> torch.Tensor:
    """What a GRU makes (T, B, UNITS) from the stored states; the burn-in has no gradient."""
    h, made = torch.tensor(batch["state"]).double(), []
    for t in range(TOTAL):
        h = torch.where(torch.tensor(batch["begins"][t])[:, None], torch.zeros_like(h), h)
        h = h.detach() if holds and t == CONFIG.burn_in else h
        h = cells.gru(0, UNITS, torch.tensor(batch["observation"][t].astype(float)), h)
        made.append(h)
    return torch.stack(made)


def targets_along(batch: Any, following: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Targets (T, B) by values that follow, and the weight of each step in the mean."""
    y, weights = torch.zeros(TOTAL, COUNT).double(), torch.zeros(TOTAL, COUNT).double()
    for t in range(CONFIG.burn_in, CONFIG.burn_in + CONFIG.sequence_length):
        for b in range(COUNT):
            found = naive_target(batch, t, b)
            if found is not None:
                total, discount, ahead = found
                y[t, b] = total + discount * following[t + ahead, b].detach()
                weights[t, b] = float(batch.weights[b]) / (CONFIG.sequence_length * COUNT)
    return y, weights


def update(learner: nn.Learner, batch: Any, names: Any) -> tuple[dict[str, float], Any]:
    """Learn from a batch at a rate of 0; returns the report, and errors of what is learnt from."""
    columns, targets = replayed.columns_of(batch, CONFIG)
    columns["observation"] = batch["observation"].reshape(-1, SIZE)
    report = learner.update(
        {name: x for name, x in columns.items() if name in learner.columns},
        states=dict.fromkeys(names, batch["state"]),
        sequence_length=TOTAL,
        minibatch_size=TOTAL * COUNT,
        learning_rate=0.0,
    )
    return report, learner.per_sample["error"].reshape(TOTAL, COUNT) * targets.is_learnt


def assert_gradient(learner: nn.Learner, name: str, cells: Cells) -> None:
    number = learner.names.index(name)
    found = [cells.parameters[key].grad for key in learner.networks[number].arrays()]
    assert_close(gradients_of(learner, name), [x.numpy() for x in found], 1e-10)


COLUMNS = dict.fromkeys(("reward", "discount", "terminated", "ahead", "weight"), 1)


@pytest.mark.parametrize(("double", "masked"), [(True, False), (False, True)])
def test_the_update_equals_pytorch(double: bool, masked: bool) -> None:
    """Its gradient, from the papers: stored states, burn-in, n steps, importance weights."""
    batch = draw_batch()
    learner = nn.Learner(
        {"online": nn.Network(SIZE, nn.Gru(UNITS) >> nn.Dense(ACTIONS), seed=1)},
        dqn_of_sequences,
        columns={**COLUMNS, "action": 1, "observation": SIZE, "action_mask": ACTIONS},
        targets={"target": "online"},
        settings={"double": double, "is_masked": masked},
        per_sample=("error",),
        num_threads=1,
        dtype=np.float64,
    )
    move_targets(learner)
    learner.write_networks(learner.names[:2])
    online, target = (Cells(network) for network in learner.networks)
    values = online.dense(1, run_memory(online, batch, True))
    judged = target.dense(1, run_memory(target, batch, False)).detach()
    choosing = (values if double else judged).detach().clone()
    if masked:
        choosing[torch.tensor(~batch["action_mask"])] = -np.inf
    following = judged.gather(2, choosing.argmax(dim=2, keepdim=True))[..., 0]
    taken = values.gather(2, torch.tensor(batch["action"])[..., None])[..., 0]
    y, weights = targets_along(batch, following)
    loss = (weights * torch.nn.functional.huber_loss(taken, y, reduction="none")).sum()
    loss.backward()
    report, errors = update(learner, batch, ["online"])
    assert report["loss"] == pytest.approx(float(loss.detach()), rel=1e-10)
    expected = ((taken - y) * (weights > 0)).detach().numpy()
    np.testing.assert_allclose(errors, expected, atol=1e-10)
    assert_gradient(learner, "online", online)


NUMBERS, SEED = 2, 5
FACTS = {"remembers": True, "movable": np.ones(NUMBERS), "action_size": NUMBERS}
CRITIC = nn.Concatenate(nn.Input("observation") >> nn.Gru(UNITS), nn.Input("action"))


def make_actor_and_critics(outputs: int, updates: Any, settings: Any, **arrays: Any) -> nn.Learner:
    """A learner of an actor and two critics with memory, all of which have left their targets."""
    inputs, layers = {"observation": SIZE, "action": NUMBERS}, nn.Gru(UNITS) >> nn.Dense(outputs)
    critic = CRITIC >> nn.Dense(24) >> nn.Tanh() >> nn.Dense(1)
    learner = nn.Learner(
        {
            "actor": nn.Network(SIZE, layers, seed=3),
            **{f"critic{k}": nn.Network(inputs, critic, seed=k) for k in (1, 2)},
            **arrays,
        },
        updates,
        columns={**COLUMNS, "action": NUMBERS, "observation": SIZE},
        targets={"target_actor": "actor", "target1": "critic1", "target2": "critic2"},
        settings={**FACTS, **settings},
        per_sample=("error",),
        seed=SEED,
        num_threads=1,
        dtype=np.float64,
    )
    move_targets(learner)
    learner.write_networks(learner.names[:6])
    return learner


class Twins:
    """An actor, critics and their targets with memory in PyTorch, along a batch of sequences."""

    def __init__(self, learner: nn.Learner, batch: Any) -> None:
        named = zip(learner.names, learner.networks, strict=True)
        self.cells = {name: Cells(network) for name, network in named}
        self.memory = {
            name: run_memory(cells, batch, not name.startswith("target"))
            for name, cells in self.cells.items()
        }

    def act(self, name: str) -> torch.Tensor:
        return self.cells[name].dense(1, self.memory[name])

    def value(self, name: str, action: torch.Tensor) -> torch.Tensor:
        cells, seen = self.cells[name], torch.cat([self.memory[name], action], dim=2)
        return cells.dense(2, torch.tanh(cells.dense(1, seen)))[..., 0]

    def least(self, kind: str, action: torch.Tensor) -> torch.Tensor:
        return torch.minimum(*(self.value(f"{kind}{k}", action) for k in (1, 2)))


def assert_critics(learner: Any, batch: Any, twins: Twins, following: torch.Tensor) -> Any:
    """Gradients of the critics, and their errors; returns the report and the weights of steps."""
    y, weights = targets_along(batch, following)
    action = torch.tensor(np.float64(batch["action"]))
    errors = [twins.value(f"critic{k}", action) - y for k in (1, 2)]
    loss = sum((weights * error**2 / 2).sum() for error in errors)
    loss.backward(retain_graph=True)
    report, found = update(learner, batch, ("actor", "critic1", "critic2"))
    assert report["critic"] == pytest.approx(float(loss.detach()), rel=1e-10)
    expected = (errors[0].abs() + errors[1].abs()) / 2 * (weights > 0)
    np.testing.assert_allclose(found, expected.detach().numpy(), atol=1e-10)
    for k in (1, 2):
        assert_gradient(learner, f"critic{k}", twins.cells[f"critic{k}"])
    return report, weights


def draw_actions() -> Any:
    batch = draw_batch()
    shape = TOTAL, COUNT, NUMBERS
    batch.data["action"] = np.random.default_rng(1).uniform(-1, 1, shape).astype(np.float32)
    del batch.data["action_mask"]
    return batch


def test_sac_equals_pytorch() -> None:
    """Haarnoja et al. 2018, algorithm 1: all networks remember, and actions change no memory."""
    batch, learnt = draw_actions(), ("actor", "log_temperature")
    updates = [
        nn.Update(sac.critic, ("critic1", "critic2")),
        nn.Update(sac.actor_and_temperature, learnt),
    ]
    settings = {"learn_temperature": True, "target_entropy": -2.0}
    temperature = np.array([-0.7], np.float32)
    learner = make_actor_and_critics(2 * NUMBERS, updates, settings, log_temperature=temperature)
    twins, drawn = Twins(learner, batch), observe_noise(NUMBERS, SEED, np.float64, TOTAL * COUNT)
    log_alpha = torch.tensor(temperature).double().requires_grad_()
    alpha = log_alpha.exp().detach()

    def sample(noise: Any) -> Any:
        mean, log_std = twins.act("actor").chunk(2, dim=2)
        inner = mean + log_std.clamp(-20.0, 2.0).exp() * noise.reshape(TOTAL, COUNT, NUMBERS)
        normal = torch.distributions.Normal(mean, log_std.clamp(-20.0, 2.0).exp())
        slope = torch.distributions.TanhTransform().log_abs_det_jacobian(inner, torch.tanh(inner))
        return torch.tanh(inner), (normal.log_prob(inner) - slope).sum(dim=2)

    action, log_prob = sample(drawn["critic"])
    following = twins.least("target", action) - alpha * log_prob
    report, weights = assert_critics(learner, batch, twins, following)
    action, log_prob = sample(drawn["actor"])
    loss = (weights * (alpha * log_prob - twins.least("critic", action))).sum()
    loss.backward()
    assert report["actor"] == pytest.approx(float(loss.detach()), rel=1e-10)
    assert_gradient(learner, "actor", twins.cells["actor"])
    (-(weights * log_alpha * (log_prob.detach() - 2.0)).sum()).backward()
    found = gradients_of(learner, "log_temperature")
    np.testing.assert_allclose(found[0], log_alpha.grad.numpy(), rtol=1e-10)


def test_td3_equals_pytorch() -> None:
    """Fujimoto et al. 2018, algorithm 1, with memory."""
    batch, deviation, bound = draw_actions(), 0.6, 0.5
    updates = [nn.Update(td3.critic, ("critic1", "critic2")), nn.Update(td3.actor, ("actor",))]
    settings = {"num_critics": 2, "target_noise": deviation, "target_noise_clip": bound}
    learner = make_actor_and_critics(NUMBERS, updates, settings)
    twins = Twins(learner, batch)
    noise = observe_noise(NUMBERS, SEED, np.float64, TOTAL * COUNT)["critic"]
    shift = (deviation * noise.reshape(TOTAL, COUNT, NUMBERS)).clamp(-bound, bound)
    action = (torch.tanh(twins.act("target_actor")) + shift).clamp(-1.0, 1.0)
    following = twins.least("target", action)
    report, weights = assert_critics(learner, batch, twins, following)
    loss = -(weights * twins.value("critic1", torch.tanh(twins.act("actor")))).sum()
    loss.backward()
    assert report["actor"] == pytest.approx(float(loss.detach()), rel=1e-10)
    assert_gradient(learner, "actor", twins.cells["actor"])


def test_starts_say_where_derivatives_end() -> None:
    begins = np.array([[False, True], [False, False], [False, True], [True, False]])
    np.testing.assert_array_equal(replayed.starts_of(begins, 2), [[0, 1], [0, 0], [-1, 1], [1, 0]])
    np.testing.assert_array_equal(replayed.starts_of(begins, 0), begins.astype(float))
