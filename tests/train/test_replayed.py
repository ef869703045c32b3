"""Sequences from replay against the papers: targets, burn-in, priorities, and a whole update."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rlcpu import nn
from rlcpu.replay.items import Batch
from rlcpu.train import replayed
from rlcpu.train.dqn import DQNConfig, dqn_of_sequences
from tests.nn.test_memory import Cells
from tests.nn.twins import assert_close, gradients_of

ACTIONS, SIZE, UNITS, COUNT = 3, 3, 16, 20
CONFIG = DQNConfig(burn_in=2, sequence_length=5, n_step=3, gamma=0.9)
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
        "reward": rng.normal(size=shape).astype(np.float32),
        "terminated": terminated,
        "begins": begins,
        "action_mask": allowed,
        "state": np.where(begins[0][:, None], 0.0, rng.normal(size=(COUNT, UNITS))),
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


def test_priorities_are_between_mean_and_maximum() -> None:
    """Kapturowski et al. 2019, section 2.3, of steps that are learnt from."""
    errors, learnt = np.array([[1.0, -8.0], [-3.0, 2.0], [9.0, 4.0]]), np.ones((3, 2))
    learnt[2, 0] = 0.0
    expected = [0.9 * 3.0 + 0.1 * 2.0, 0.9 * 8.0 + 0.1 * 14.0 / 3.0]
    np.testing.assert_allclose(replayed.priorities_of(errors, learnt, 0.9), expected)


def make_learner(double: bool, masked: bool) -> nn.Learner:
    network = nn.Network(SIZE, nn.Gru(UNITS) >> nn.Dense(ACTIONS), seed=1)
    columns = dict.fromkeys(("reward", "discount", "terminated", "ahead", "action", "weight"), 1)
    learner = nn.Learner(
        {"online": network},
        dqn_of_sequences,
        columns={**columns, "observation": SIZE, "action_mask": ACTIONS},
        targets={"target": "online"},
        settings={"double": double, "is_masked": masked, "dueling": False},
        per_sample=("error",),
        num_threads=1,
        dtype=np.float64,
    )
    noise = np.random.default_rng(2).normal(0.0, 0.3, network.parameters.size)
    network.parameters += noise.astype(np.float32)
    learner.read_networks([0])  # the target is another network from now on
    return learner


def values_along(cells: Cells, batch: Any, holds: bool) -> torch.Tensor:
    """Values (T, B, actions) from the stored states, step by step; the burn-in has no gradient."""
    h, made = torch.tensor(batch["state"]), []
    for t in range(TOTAL):
        h = torch.where(torch.tensor(batch["begins"][t])[:, None], torch.zeros_like(h), h)
        h = h.detach() if holds and t == CONFIG.burn_in else h
        h = cells.gru(0, UNITS, torch.tensor(batch["observation"][t].astype(float)), h)
        made.append(cells.dense(1, h))
    return torch.stack(made)


@pytest.mark.parametrize(("double", "masked"), [(True, False), (False, True)])
def test_the_update_equals_pytorch(double: bool, masked: bool) -> None:
    """Its gradient, from the papers: stored states, burn-in, n steps, importance weights."""
    batch, learner = draw_batch(), make_learner(double, masked)
    learner.write_networks(range(2))
    online, target = (Cells(network) for network in learner.networks)
    values = values_along(online, batch, True)
    judged = values_along(target, batch, False).detach()
    choosing = (values if double else judged).detach().clone()
    if masked:
        choosing[torch.tensor(~batch["action_mask"])] = -np.inf
    following = judged.gather(2, choosing.argmax(dim=2, keepdim=True))[..., 0]
    taken = values.gather(2, torch.tensor(batch["action"])[..., None])[..., 0]
    loss, errors = torch.zeros(()).double(), np.zeros((TOTAL, COUNT))
    for t in range(CONFIG.burn_in, CONFIG.burn_in + CONFIG.sequence_length):
        for b in range(COUNT):
            found = naive_target(batch, t, b)
            if found is not None:
                total, discount, ahead = found
                y = total + discount * following[t + ahead, b]
                error = torch.nn.functional.huber_loss(taken[t, b], y)
                loss = loss + float(batch.weights[b]) * error
                errors[t, b] = float((taken[t, b] - y).detach())
    loss = loss / (CONFIG.sequence_length * COUNT)
    loss.backward()
    columns, targets = replayed.columns_of(batch, CONFIG)
    columns["observation"] = batch["observation"].reshape(-1, SIZE)
    report = learner.update(
        columns,
        states={"online": batch["state"]},
        sequence_length=TOTAL,
        minibatch_size=TOTAL * COUNT,
        learning_rate=0.0,
    )
    assert report["loss"] == pytest.approx(float(loss.detach()), rel=1e-6)
    found = learner.per_sample["error"].reshape(TOTAL, COUNT) * targets.is_learnt
    np.testing.assert_allclose(found, errors, atol=1e-6)
    packed = [online.parameters[key].grad.numpy() for key in learner.networks[0].arrays()]
    assert_close(gradients_of(learner, "online"), packed, 1e-6)


def test_starts_say_where_derivatives_end() -> None:
    begins = np.array([[False, True], [False, False], [False, True], [True, False]])
    np.testing.assert_array_equal(replayed.starts_of(begins, 2), [[0, 1], [0, 0], [-1, 1], [1, 0]])
    np.testing.assert_array_equal(replayed.starts_of(begins, 0), begins.astype(float))
