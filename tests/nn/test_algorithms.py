"""The first update of each agent against PyTorch's derivatives of the papers' losses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributions import Categorical, Normal
from torch.distributions.transforms import TanhTransform

from rlcpu import nn
from rlcpu.train import qrdqn, sac, td3, tqc
from rlcpu.train.dqn import dqn
from rlcpu.train.ppo import ppo
from rlcpu.train.pqn import pqn
from tests.nn.twins import (
    TOLERANCES,
    Twins,
    arrays_of,
    assert_close,
    batch_of,
    double,
    gradients_of,
)

DTYPES = (np.float64, np.float32)
SAMPLES = 100
ACTIONS, SIZE = 3, 4


def rng_of() -> np.random.Generator:
    return np.random.default_rng(0)


def make_transitions(action_size: int = 0) -> dict[str, Any]:
    """A batch of a replay buffer; actions are choices, or so many numbers in [-1, 1]."""
    rng = rng_of()
    batch = {
        "observation": rng.normal(size=(SAMPLES, SIZE)),
        "next_observation": rng.normal(size=(SAMPLES, SIZE)),
        "reward": 3.0 * rng.normal(size=SAMPLES),
        "discount": rng.choice([0.99, 0.99**3], SAMPLES),
        "terminated": rng.random(SAMPLES) < 0.2,
        "weight": rng.uniform(0.2, 1.0, SAMPLES),
        "action": rng.uniform(-1.0, 1.0, (SAMPLES, action_size)),
    }
    if not action_size:
        batch["action"] = rng.integers(0, ACTIONS, SAMPLES)
        batch["next_action_mask"] = rng.random((SAMPLES, ACTIONS)) < 0.5
        batch["next_action_mask"][:, 1] = True
    return batch


def columns_of(batch: dict[str, Any]) -> dict[str, int]:
    return {name: 1 if x.ndim == 1 else x.shape[1] for name, x in batch.items()}


def step(learner: nn.Learner, batch: dict[str, Any], **options: Any) -> dict[str, float]:
    options = {"learning_rate": 0.0, "minibatch_size": SAMPLES} | options
    return learner.update(batch, **options)


def assert_gradients(learner: nn.Learner, expected: dict[str, Any]) -> None:
    tolerance = TOLERANCES[learner.dtype]
    for name, arrays in expected.items():
        assert_close(gradients_of(learner, name), arrays, tolerance)


def near(x: torch.Tensor, learner: nn.Learner) -> Any:
    tolerance = 10 * TOLERANCES[learner.dtype]
    return pytest.approx(float(x.detach()), rel=tolerance, abs=tolerance)


# ---------------------------------------------------------------- values of actions


def make_dqn(batch: Any, dtype: Any, double: bool, masked: bool) -> nn.Learner:
    learner = nn.Learner(
        {"online": nn.Network((SIZE, 24, 16, ACTIONS), "relu", seed=1)},
        dqn,
        columns=columns_of(batch),
        targets={"target": "online"},
        settings={
            "is_masked": masked,
            "double": double,
        },
        per_sample=("error",),
        num_threads=1,
        dtype=dtype,
    )
    learner.networks[0].parameters += 0.3 * rng_of().normal(
        size=learner.networks[0].parameters.size
    )
    learner.read_networks(learner.names[:1])  # the target is another network from now on
    return learner


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_dqn(dtype: Any, double: bool, masked: bool) -> None:
    """Mnih et al. 2015, algorithm 1; van Hasselt et al. 2016, equation 4."""
    batch = make_transitions()
    learner = make_dqn(batch, dtype, double, masked)
    twins, given = Twins(learner), batch_of(batch)
    with torch.no_grad():
        after = twins.nets.target(given.next_observation)
        judges = twins.nets.online if double else twins.nets.target
        judged = judges(given.next_observation).clone()
        if masked:
            judged[given.next_action_mask == 0.0] = -math.inf
        chosen = after.gather(1, judged.argmax(dim=1, keepdim=True))[:, 0]
        y = given.reward + given.discount * (1.0 - given.terminated) * chosen
    values = twins.nets.online(given.observation)
    value = values.gather(1, given.action.long()[:, None])[:, 0]
    loss = (given.weight * torch.nn.functional.huber_loss(value, y, reduction="none")).mean()
    assert ((value - y).abs() > 1.0).any()
    assert ((value - y).abs() < 1.0).any()
    report = step(learner, batch)
    assert report["dqn"] == report["loss"] == near(loss, learner)
    assert report["q_value"] == near(value.mean(), learner)
    errors = (value - y).detach().numpy()
    np.testing.assert_allclose(learner.per_sample["error"], errors, rtol=1e-4, atol=1e-5)
    assert_gradients(learner, twins.gradients(loss, ("online",)))


QUANTILES = 7


def quantile_loss(quantiles: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean over pairs of quantiles (n, N) and targets (n, K); Dabney et al. 2018, equation 10."""
    count = quantiles.shape[1]
    taus = (2 * torch.arange(1, count + 1, dtype=torch.float64) - 1) / (2 * count)
    u = targets[:, None, :] - quantiles[:, :, None]
    huber = torch.where(u.abs() <= 1.0, 0.5 * u**2, u.abs() - 0.5)
    below = (u.detach() < 0).double()
    return ((taus[None, :, None] - below).abs() * huber).mean(dim=(1, 2))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("double_q", [False, True])
@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_qrdqn(dtype: Any, double_q: bool, dueling: bool, masked: bool) -> None:
    """Dabney et al. 2018, algorithm 1, with the next action of van Hasselt et al. 2016."""
    batch, count = make_transitions(), QUANTILES
    hidden = nn.Dense(24) >> nn.Relu() >> nn.Dense(16) >> nn.Relu()
    quantiles = hidden >> nn.Dense((ACTIONS + dueling) * count)
    quantiles = quantiles >> nn.Dueling(ACTIONS) if dueling else quantiles
    graphs = {"values": quantiles >> nn.Means(ACTIONS), "quantiles": quantiles}
    learner = nn.Learner(
        {"online": nn.Network(SIZE, graphs, seed=1)},
        qrdqn.qrdqn,
        columns=columns_of(batch),
        targets={"target": "online"},
        settings={
            "is_masked": masked,
            "double": double_q,
            "num_quantiles": count,
            "midpoints": qrdqn.midpoints(count),
        },
        per_sample=("error",),
        num_threads=1,
        dtype=dtype,
    )
    move_targets(learner)
    twins, given = Twins(learner), batch_of(batch)

    def quantiles_of(outputs: torch.Tensor) -> torch.Tensor:
        """(n, actions, quantiles); Wang et al. 2016, equation 9, of each quantile."""
        outputs = outputs.reshape(SAMPLES, -1, count)
        if not dueling:
            return outputs
        advantages, value = outputs[:, :ACTIONS], outputs[:, ACTIONS:]
        return value + advantages - advantages.mean(dim=1, keepdim=True)

    def of_action(numbers: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return numbers[torch.arange(SAMPLES), action]

    with torch.no_grad():
        after = quantiles_of(twins.nets.target(given.next_observation))
        judges = twins.nets.online if double_q else twins.nets.target
        judged = quantiles_of(judges(given.next_observation)).mean(dim=2)
        if masked:
            judged[given.next_action_mask == 0.0] = -math.inf
        following = of_action(after, judged.argmax(dim=1))
        goes_on = given.discount * (1.0 - given.terminated)
        targets = given.reward[:, None] + goes_on[:, None] * following
    taken = of_action(quantiles_of(twins.nets.online(given.observation)), given.action.long())
    loss = (given.weight * count * quantile_loss(taken, targets)).mean()
    report = step(learner, batch)
    assert report["qrdqn"] == report["loss"] == near(loss, learner)
    assert report["q_value"] == near(taken.mean(), learner)
    errors = (taken.mean(dim=1) - targets.mean(dim=1)).detach().numpy()
    np.testing.assert_allclose(learner.per_sample["error"], errors, rtol=1e-4, atol=1e-5)
    assert_gradients(learner, twins.gradients(loss, ("online",)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_pqn(dtype: Any) -> None:
    """Gallici et al. 2024, algorithm 1, through normalised layers."""
    rng = rng_of()
    batch = {
        "observation": rng.normal(size=(SAMPLES, SIZE)),
        "action": rng.integers(0, ACTIONS, SAMPLES),
        "target": rng.normal(size=SAMPLES),
    }
    network = nn.Network((SIZE, 24, 16, ACTIONS), "relu", layer_norm=True, seed=1)
    columns: Any = columns_of(batch)
    learner = nn.Learner({"online": network}, pqn, columns=columns, num_threads=1, dtype=dtype)
    twins, given = Twins(learner), batch_of(batch)
    values = twins.nets.online(given.observation)
    value = values[torch.arange(SAMPLES), given.action.long()]
    loss = torch.nn.functional.mse_loss(value, given.target)
    report = step(learner, batch)
    assert report["loss"] == near(loss, learner)
    tolerance = 1e-10 if dtype is np.float64 else 1e-4
    gradients = twins.gradients(loss, ("online",))["online"]
    assert_close(gradients_of(learner, "online"), gradients, tolerance)


# ---------------------------------------------------------------- PPO


CHOICES = (3, 2)
OUTPUTS = {"discrete": ACTIONS, "masked": ACTIONS, "choices": sum(CHOICES), "continuous": 2}
OUTPUTS["masked choices"] = sum(CHOICES)


def make_samples(kind: str) -> dict[str, Any]:
    """Samples of a rollout; half of the ratios have left the range that is not clipped."""
    rng = rng_of()
    batch = {
        "old_log_prob": rng.normal(-1.5, 0.5, SAMPLES),
        "advantage": rng.normal(1.0, 2.0, SAMPLES),
        "target": rng.normal(size=SAMPLES),
        "observation": rng.normal(size=(SAMPLES, SIZE)),
    }
    if kind == "continuous":
        batch["action"] = rng.normal(size=(SAMPLES, 2))
    elif kind.endswith("choices"):
        batch["action"] = np.stack([rng.integers(0, n, SAMPLES) for n in CHOICES], axis=1)
    else:
        batch["action"] = rng.integers(0, ACTIONS, SAMPLES)
    if kind.startswith("masked"):
        batch["action_mask"] = mask = rng.random((SAMPLES, OUTPUTS[kind])) < 0.5
        begins = [0, CHOICES[0]] if kind.endswith("choices") else [0]
        for begin, numbers in zip(begins, batch["action"].reshape(SAMPLES, -1).T, strict=True):
            mask[np.arange(SAMPLES), begin + numbers] = True
    return batch


def in_distribution(kind: str, outputs: Any, given: Any, twins: Twins) -> Any:
    """Log-probabilities and entropies, by PyTorch's distributions."""
    if kind == "continuous":
        policy = Normal(outputs, twins.nets.log_std.exp().expand(SAMPLES, 2))
        return policy.log_prob(given.action).sum(dim=1), policy.entropy().sum(dim=1)
    if kind.startswith("masked"):
        outputs = torch.where(given.action_mask > 0.0, outputs, double(-1e8))
    if kind.endswith("choices"):
        parts = [Categorical(logits=x) for x in outputs.split(CHOICES, dim=1)]
        log_probs = [x.log_prob(given.action[:, k]) for k, x in enumerate(parts)]
        return sum(log_probs), sum(x.entropy() for x in parts)
    policy = Categorical(logits=outputs)  # type: ignore[assignment]
    return policy.log_prob(given.action), policy.entropy()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("kind", list(OUTPUTS))
def test_ppo(dtype: Any, kind: str, shared: bool) -> None:
    """Schulman et al. 2017, equations 7 and 9; values without a factor 1/2.

    A shared network's values are clipped, as in `ppo.py` of CleanRL with `--clip-vloss`.
    """
    batch, standardises = make_samples(kind), kind != "masked"
    if shared:
        batch["old_value"] = np.random.default_rng(3).normal(size=SAMPLES)
    networks: dict[str, Any] = {
        "policy": nn.Network((SIZE, 24, 16, OUTPUTS[kind] + shared), "tanh", seed=1)
    }
    if not shared:
        networks["value"] = nn.Network((SIZE, 24, 1), "tanh", seed=2)
    if kind == "continuous":
        networks["log_std"] = np.array([-0.5, 0.25], np.float32)
    learner = nn.Learner(
        networks,
        ppo,
        columns=columns_of(batch),
        settings={
            "kind": kind.split()[-1],
            "choices": CHOICES,
            "is_masked": kind.startswith("masked"),
            "is_shared": shared,
            "num_outputs": OUTPUTS[kind] + shared,
            "normalize_advantages": standardises,
            "clip": 0.5,
            "clip_range_value": 0.4 if shared else None,
            "entropy_coefficient": 0.03,
            "value_coefficient": 0.25,
        },
        num_threads=1,
        dtype=dtype,
    )
    twins, given = Twins(learner), batch_of(batch)
    outputs = twins.nets.policy(given.observation)
    if shared:
        outputs, value = outputs[:, :-1], outputs[:, -1]
    else:
        value = twins.nets.value(given.observation)[:, 0]
    log_prob, entropy = in_distribution(kind, outputs, given, twins)
    advantage = given.advantage
    if standardises:
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    ratio = (log_prob - given.old_log_prob).exp()
    objective = torch.minimum(ratio * advantage, ratio.clamp(0.75, 1.25) * advantage)
    error = (value - given.target) ** 2
    if shared:
        clipped = given.old_value + torch.clamp(value - given.old_value, -0.4, 0.4)
        error = torch.max(error, (clipped - given.target) ** 2)
    error = error.mean()
    loss = -objective.mean() - 0.03 * entropy.mean() + 0.25 * error
    report = step(learner, batch, settings={"clip": 0.25})  # read anew
    clipped = ((ratio - 1.0).abs() > 0.25).double().mean()
    assert 0.2 < float(clipped) < 0.95
    assert report["ppo"] == near(loss, learner)
    assert report["policy"] == near(-objective.mean(), learner)
    assert report["value"] == near(error, learner)
    assert report["entropy"] == near(entropy.mean(), learner)
    assert report["clip_fraction"] == pytest.approx(float(clipped), abs=1e-6)
    divergence = (ratio - 1.0 - (log_prob - given.old_log_prob)).mean()
    assert report["kl"] == near(divergence, learner)
    assert_gradients(learner, twins.gradients(loss, tuple(networks)))


# ---------------------------------------------------------------- actors and critics


def observe_noise(size: int, seed: int, dtype: Any, samples: int = SAMPLES) -> dict[str, Any]:
    """The noise of the first two updates of an algorithm that draws `size` numbers in each."""

    def drawing(name: str) -> Any:
        def draw(batch: Any, nets: Any, settings: Any) -> Any:
            noise = nn.normal(nets.net(batch.x))
            found = {f"{name}{k}": noise[k] for k in range(size)}
            return nn.mean(nn.sum(nets.net(batch.x))), found

        return draw

    names = [f"{name}{k}" for name in ("critic", "actor") for k in range(size)]
    learner = nn.Learner(
        {"net": nn.Network((1, size))},
        [nn.Update(drawing(name), ("net",)) for name in ("critic", "actor")],
        columns={"x": 1},
        per_sample=names,
        seed=seed,
        dtype=dtype,
    )
    step(learner, {"x": np.zeros(samples)}, minibatch_size=samples)
    drawn = learner.per_sample
    return {
        name: double(np.stack([drawn[f"{name}{k}"] for k in range(size)], axis=1))
        for name in ("critic", "actor")
    }


def critics_of(count: int, action_size: int) -> dict[str, nn.Network]:
    sizes = (SIZE + action_size, 24, 16, 1)
    return {f"critic{k}": nn.Network(sizes, "relu", seed=k) for k in range(1, count + 1)}


def move_targets(learner: nn.Learner) -> None:
    """Learnt networks move away from their targets, as they do while they learn."""
    for k, name in enumerate(learner._sources):
        parameters = learner.networks[k].parameters
        parameters += 0.1 * np.random.default_rng(k).normal(size=parameters.size)
        learner.read_networks([name])


def assert_critics(
    twins: Twins, learner: nn.Learner, given: Any, y: Any, report: Any, count: int
) -> torch.Tensor:
    """Loss of the critics: mean(weight * sum_k (Q_k - y)**2 / 2); its statistics."""
    values = [
        twins.networks[f"critic{k}"](given.observation, given.action)[:, 0]
        for k in range(1, count + 1)
    ]
    loss = sum((given.weight * (value - y) ** 2 / 2).mean() for value in values)
    sizes = sum((value - y).abs() for value in values) / count
    assert report["critic"] == near(loss, learner)  # type: ignore[arg-type]
    assert report["q_value"] == near(sum(values).mean() / count, learner)  # type: ignore[union-attr]
    np.testing.assert_allclose(
        learner.per_sample["error"], sizes.detach().numpy(), rtol=1e-4, atol=1e-5
    )
    return loss  # type: ignore[return-value]


def draw_squashed(outputs: torch.Tensor, drawn: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Actions and log-probabilities; Haarnoja et al. 2018, appendix C."""
    mean, log_std = outputs.chunk(2, dim=1)
    deviation = log_std.clamp(-20.0, 2.0).exp()
    inner = mean + deviation * drawn
    action = torch.tanh(inner)
    log_prob = Normal(mean, deviation).log_prob(inner)
    log_prob = log_prob - TanhTransform().log_abs_det_jacobian(inner, action)
    return action, log_prob.sum(dim=1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("learns_temperature", [False, True])
def test_sac(dtype: Any, learns_temperature: bool) -> None:
    """Haarnoja et al. 2018, algorithm 1, equations 5, 7 and 18; appendix C."""
    batch, size, seed = make_transitions(2), 2, 5
    learnt = ("actor", "log_temperature") if learns_temperature else ("actor",)
    critics = ("critic1", "critic2")
    learner = nn.Learner(
        {
            "actor": nn.Network((SIZE, 24, 16, 2 * size), "relu", seed=3),
            **critics_of(2, size),
            "log_temperature": np.array([-0.7], np.float32),
        },
        [nn.Update(sac.critic, critics), nn.Update(sac.actor_and_temperature, learnt)],
        columns=columns_of(batch),
        targets={"target1": "critic1", "target2": "critic2"},
        settings={
            "action_size": size,
            "movable": np.ones(size),
            "learn_temperature": learns_temperature,
            "target_entropy": -2.0,
            "remembers": False,
        },
        per_sample=("error",),
        seed=seed,
        num_threads=1,
        dtype=dtype,
    )
    move_targets(learner)
    twins, given = Twins(learner), batch_of(batch)
    noise, alpha = observe_noise(size, seed, dtype), twins.nets.log_temperature.exp().detach()

    def sample(observation: Any, drawn: Any) -> Any:
        return draw_squashed(twins.nets.actor(observation), drawn)

    def least(names: Any, observation: Any, action: Any) -> Any:
        found = [twins.networks[name](observation, action)[:, 0] for name in names]
        return torch.minimum(*found)

    report = step(learner, batch)
    with torch.no_grad():
        action, log_prob = sample(given.next_observation, noise["critic"])
        value = least(("target1", "target2"), given.next_observation, action)
        after = given.discount * (1.0 - given.terminated) * (value - alpha * log_prob)
        y = given.reward + after
    critics_loss = assert_critics(twins, learner, given, y, report, 2)
    assert_gradients(learner, twins.gradients(critics_loss, critics))

    action, log_prob = sample(given.observation, noise["actor"])
    loss = (alpha * log_prob - least(critics, given.observation, action)).mean()
    assert report["actor"] == near(loss, learner)
    assert report["log_prob"] == near(log_prob.mean(), learner)
    assert_gradients(learner, twins.gradients(loss, ("actor",)))
    if learns_temperature:
        entropy = -(twins.nets.log_temperature * (log_prob.detach() - 2.0)).mean()
        assert_gradients(learner, twins.gradients(entropy, ("log_temperature",)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_critics", "dropped"), [(2, 2), (3, 0)])
def test_tqc(dtype: Any, num_critics: int, dropped: int) -> None:
    """Kuznetsov et al. 2020, equations 9 to 14; the temperature is SAC's."""
    batch, size, seed, count = make_transitions(2), 2, 5, QUANTILES
    critics = [
        nn.Dense(24) >> nn.Relu() >> nn.Dense(16) >> nn.Relu() >> nn.Dense(count)
        for _ in range(num_critics)
    ]
    learner = nn.Learner(
        {
            "actor": nn.Network((SIZE, 24, 16, 2 * size), "relu", seed=3),
            "critics": nn.Network(SIZE + size, nn.Concatenate(*critics), seed=1),
            "log_temperature": np.array([-0.7], np.float32),
        },
        [
            nn.Update(tqc.critic, ("critics",)),
            nn.Update(tqc.actor_and_temperature, ("actor", "log_temperature")),
        ],
        columns=columns_of(batch),
        targets={"target": "critics"},
        settings={
            "action_size": size,
            "movable": np.ones(size),
            "learn_temperature": True,
            "target_entropy": -2.0,
            "remembers": False,
            "num_critics": num_critics,
            "num_quantiles": count,
            "dropped": dropped,
            "midpoints": qrdqn.midpoints(count),
        },
        per_sample=("error",),
        seed=seed,
        num_threads=1,
        dtype=dtype,
    )
    move_targets(learner)
    twins = Twins(learner, {"critics": num_critics, "target": num_critics})
    given, noise = batch_of(batch), observe_noise(size, seed, dtype)
    alpha = twins.nets.log_temperature.exp().detach()
    report = step(learner, batch)
    with torch.no_grad():
        action, log_prob = draw_squashed(twins.nets.actor(given.next_observation), noise["critic"])
        pooled = twins.nets.target(given.next_observation, action).sort(dim=1).values
        kept = pooled[:, : num_critics * (count - dropped)]
        goes_on = given.discount * (1.0 - given.terminated)
        targets = given.reward[:, None] + goes_on[:, None] * (kept - alpha * log_prob[:, None])
    quantiles = twins.nets.critics(given.observation, given.action)
    parts = quantiles.chunk(num_critics, dim=1)
    loss = sum((given.weight * quantile_loss(part, targets)).mean() for part in parts)
    assert report["critic"] == near(loss, learner)  # type: ignore[arg-type]
    assert report["q_value"] == near(quantiles.mean(), learner)
    sizes = (quantiles.mean(dim=1) - targets.mean(dim=1)).abs().detach().numpy()
    np.testing.assert_allclose(learner.per_sample["error"], sizes, rtol=1e-4, atol=1e-5)
    assert_gradients(learner, twins.gradients(loss, ("critics",)))  # type: ignore[arg-type]

    action, log_prob = draw_squashed(twins.nets.actor(given.observation), noise["actor"])
    value = twins.nets.critics(given.observation, action).mean(dim=1)
    loss = (alpha * log_prob - value).mean()
    assert report["actor"] == near(loss, learner)
    assert_gradients(learner, twins.gradients(loss, ("actor",)))
    entropy = -(twins.nets.log_temperature * (log_prob.detach() - 2.0)).mean()
    assert_gradients(learner, twins.gradients(entropy, ("log_temperature",)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("count", "deviation", "bound"), [(2, 0.6, 0.5), (1, 0.0, 0.0)])
def test_td3_and_ddpg(dtype: Any, count: int, deviation: float, bound: float) -> None:
    """Fujimoto et al. 2018, algorithm 1; with one critic and no noise, Lillicrap et al. 2016."""
    batch, size, seed = make_transitions(2), 2, 5
    critics = critics_of(count, size)
    movable = np.array([1.0, 0.0])
    batch["action"] *= movable
    learner = nn.Learner(
        {"actor": nn.Network((SIZE, 24, 16, size), "relu", seed=3), **critics},
        [nn.Update(td3.critic, tuple(critics)), nn.Update(td3.actor, ("actor",), every=2)],
        columns=columns_of(batch),
        targets={
            "target_actor": "actor",
            **{f"target{k}": f"critic{k}" for k in range(1, count + 1)},
        },
        settings={
            "num_critics": count,
            "movable": movable,
            "target_noise": deviation,
            "target_noise_clip": bound,
            "remembers": False,
        },
        per_sample=("error",),
        seed=seed,
        num_threads=1,
        dtype=dtype,
    )
    move_targets(learner)
    twins, given = Twins(learner), batch_of(batch)
    noise = observe_noise(size, seed, dtype)["critic"]
    report = step(learner, batch)
    with torch.no_grad():
        shift = (deviation * noise).clamp(-bound, bound)
        action = torch.tanh(twins.nets.target_actor(given.next_observation)) + shift
        action = action.clamp(-1.0, 1.0) * double(movable)
        targets = [twins.networks[f"target{k}"] for k in range(1, count + 1)]
        value = torch.stack([x(given.next_observation, action)[:, 0] for x in targets]).amin(dim=0)
        y = given.reward + given.discount * (1.0 - given.terminated) * value
    loss = assert_critics(twins, learner, given, y, report, count)
    assert_gradients(learner, twins.gradients(loss, tuple(critics)))
    assert math.isnan(report["actor"])
    assert not any(np.any(x) for x in gradients_of(learner, "actor"))

    report = step(learner, batch)  # of every second minibatch, the actor
    action = torch.tanh(twins.nets.actor(given.observation)) * double(movable)
    loss = -twins.nets.critic1(given.observation, action).mean()
    assert report["actor"] == near(loss, learner)
    assert_gradients(learner, twins.gradients(loss, ("actor",)))


# ---------------------------------------------------------------- Adam


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("optimiser", "options", "settings"),
    [
        (torch.optim.Adam, {"eps": 1e-5}, {"epsilon": 1e-5}),
        (torch.optim.Adam, {"eps": 1e-8}, {"max_gradient_norm": 0.1}),
        (torch.optim.RAdam, {"eps": 1e-8}, {"rectified": True}),
        (torch.optim.AdamW, {"weight_decay": 0.3}, {"weight_decay": 0.3}),
    ],
)
def test_steps_equal_torchs(dtype: Any, optimiser: Any, options: Any, settings: Any) -> None:
    """Kingma & Ba 2015; clipped gradients; Liu et al. 2020; Loshchilov & Hutter 2019."""
    batch = make_transitions()
    learner = make_dqn(batch, dtype, False, False)
    twins, given = Twins(learner), batch_of(batch)
    parameters = twins.parameters("online")
    adam = optimiser(parameters, lr=3e-3, **options)
    steps = 12
    for _ in range(steps):
        with torch.no_grad():
            after = twins.nets.target(given.next_observation).amax(dim=1)
            y = given.reward + given.discount * (1.0 - given.terminated) * after
        value = twins.nets.online(given.observation).gather(1, given.action.long()[:, None])[:, 0]
        loss = given.weight * torch.nn.functional.huber_loss(value, y, reduction="none")
        adam.zero_grad()
        loss.mean().backward()
        if "max_gradient_norm" in settings:
            norm = torch.nn.utils.clip_grad_norm_(parameters, settings["max_gradient_norm"])
            assert float(norm) > settings["max_gradient_norm"]
        adam.step()
        with torch.no_grad():
            for online, target in zip(parameters, twins.parameters("target"), strict=True):
                target += 0.25 * (online - target)
    step(learner, batch, epochs=steps, learning_rate=3e-3, tau=0.25, **settings)
    tolerance = 1e-9 if dtype is np.float64 else 1e-4
    for name in ("online", "target"):
        expected = [x.detach().numpy() for x in twins.parameters(name)]
        assert_close(arrays_of(learner, learner.learnt.parameters, name), expected, tolerance)
