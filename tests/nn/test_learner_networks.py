"""Networks of layers in an algorithm: gradients of the learner against PyTorch's autograd."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlcpu import nn

torch = pytest.importorskip("torch")


def squared(value: float, target: float) -> float:
    return 0.5 * (value - target) * (value - target)


def algorithm(batch: Any, nets: Any, settings: Any) -> Any:
    """An encoder feeds a critic of two inputs and two outputs, and the critic feeds itself."""
    features = nets.encoder(batch.observation)
    first = nets.critic(features, batch.action)
    second = nets.critic(features, first.reward)
    loss = nn.each(squared, first.value, batch.target) + nn.each(squared, second.value, first.value)
    return nn.mean(loss), {"value": first.value}


def make_networks() -> tuple[nn.Network, nn.Network]:
    encoder = nn.Dense(12) >> nn.LayerNorm() >> nn.Tanh()
    joined = nn.Concatenate(nn.Input("features"), nn.Input("action"))
    trunk = joined >> nn.Dense(20) >> nn.Silu()
    heads = {"value": trunk >> nn.Dense(1), "reward": trunk >> nn.Dense(2)}
    return nn.Network(3, encoder, seed=1), nn.Network({"features": 12, "action": 2}, heads, seed=2)


def make_learner(networks: dict[str, nn.Network]) -> nn.Learner:
    columns = {"observation": 3, "action": 2, "target": 1}
    return nn.Learner(networks, algorithm, columns=columns, dtype=np.float64)


def make_batch(count: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    shapes = {"observation": (count, 3), "action": (count, 2), "target": (count,)}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize("count", [20, 300])
def test_gradient_equals_torch(count: int) -> None:
    encoder, critic = make_networks()
    batch = make_batch(count)
    learner = make_learner({"encoder": encoder, "critic": critic})
    learner.update(batch, learning_rate=0.0, minibatch_size=count)

    arrays = [*encoder.arrays().values(), *critic.arrays().values()]
    leaves = [torch.tensor(array.astype(np.float64), requires_grad=True) for array in arrays]
    dense, biases, gains, shifts, *others = leaves
    functional = torch.nn.functional
    observation, action, target = (torch.tensor(x.astype(np.float64)) for x in batch.values())
    normal = functional.layer_norm(observation @ dense + biases, (12,), gains, shifts)
    features = torch.tanh(normal)

    def run(action: Any) -> tuple[Any, Any]:
        joined = torch.cat([features, action], 1)
        trunk = functional.silu(joined @ others[0] + others[1])
        return (trunk @ others[2] + others[3])[:, 0], trunk @ others[4] + others[5]

    value, reward = run(action)
    again, _ = run(reward)
    (0.5 * (value - target) ** 2 + 0.5 * (again - value) ** 2).mean().backward()
    # After one step the first moment is a tenth of the gradient.
    total, begins = 10.0 * learner.learnt.first, learner.layout.begins
    for k, (network, mine) in enumerate(((encoder, leaves[:4]), (critic, others))):
        gradient = total[begins[k] : begins[k + 1]]
        for view, leaf in zip(network.plan.packed_views(gradient), mine, strict=True):
            expected = leaf.grad.numpy()
            error = np.linalg.norm(view - expected) / np.linalg.norm(expected)
            assert error < 1e-10


def test_any_network_learns() -> None:
    encoder, critic = make_networks()
    batch = make_batch(256)
    learner = make_learner({"encoder": encoder, "critic": critic})
    first = learner.update(batch, learning_rate=3e-3)["algorithm"]
    learner.update(batch, learning_rate=3e-3, epochs=300)
    last = learner.update(batch, learning_rate=3e-3)
    assert last["algorithm"] < 0.5 * first


def test_numbers_that_do_not_fit() -> None:
    encoder, critic = make_networks()
    batch: dict[str, Any] = {"observation": 3, "action": 2, "target": 1}

    def swapped(batch: Any, nets: Any, settings: Any) -> Any:
        value = nets.critic(batch.action, nets.encoder(batch.observation)).value
        return nn.mean(nn.each(squared, value, batch.target)), {}

    with pytest.raises(ValueError, match=r"2 and 12 numbers to .* 'critic', which takes 12 and 2"):
        nn.Learner({"encoder": encoder, "critic": critic}, swapped, columns=batch)
