"""Tensors and modules over the memory of batches, rollouts and policies."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiBinary

import rlcpu
from rlcpu.policies import MLP, Linear, Uniform

torch = pytest.importorskip("torch")

from rlcpu.adapters.torch import TensorBatch, as_tensors, to_torch  # noqa: E402

SEEN, CHOICES, MOVES = Box(-1.0, 1.0, (3,)), Discrete(4), Box(-1.0, 1.0, (2,))


def same_memory(tensor: Any, array: np.ndarray) -> bool:
    """The same numbers at the same place."""
    strides = tuple(step * array.itemsize for step in tensor.stride())
    return tensor.data_ptr() == array.ctypes.data and (strides, tensor.shape) == (
        array.strides,
        array.shape,
    )


@pytest.mark.parametrize("n_step", [1, 3])
def test_batches_share_their_memory(n_step: int) -> None:
    example = {"observation": {"a": np.zeros((2, 3), np.uint8)}, "reward": 0.0, "terminated": False}
    options = {"n_step": n_step, "truncated": False, "seed": 0}
    buffer = rlcpu.replay.PrioritizedReplayBuffer(100, example, **options)
    step = {"a": np.ones((50, 2, 3), np.uint8)}
    buffer.add({"observation": step, "reward": np.arange(50.0), "terminated": np.zeros(50, bool)})
    batch = buffer.sample(8)
    tensors = as_tensors(batch)
    assert type(tensors) is TensorBatch
    assert same_memory(tensors.data["observation"]["a"], batch["observation"]["a"])
    assert same_memory(tensors.data["terminated"], batch["terminated"])
    for name in ("indices", "weights"):
        assert same_memory(getattr(tensors, name), getattr(batch, name))
    assert (tensors.discounts is None) == (n_step == 1)
    buffer.sample(8, out=batch)
    np.testing.assert_array_equal(tensors.data["reward"], batch["reward"])


def test_rollouts_share_their_memory() -> None:
    env = rlcpu.make_vec("CartPole-v1", 8)
    policy = MLP(env.single_observation_space, env.single_action_space)
    rollout = rlcpu.collect(env, policy, 20)
    tensors = as_tensors(rollout)
    assert tensors.observations.shape[:2] == (20, 8)
    for name, tensor in tensors._asdict().items():
        assert same_memory(tensor, getattr(rollout, name)), name


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass
class Step:
    reward: Any


def test_containers_stay_what_they_are() -> None:
    array = np.arange(6, dtype=np.int64).reshape(2, 3).T
    given = Pair([array], (Step(array), {"x": torch.zeros(2)}))
    found = as_tensors(given)
    assert type(found) is Pair
    assert type(found.first) is list
    assert same_memory(found.first[0], array)
    assert same_memory(found.second[0].reward, array)
    assert found.second[1]["x"].data_ptr() == given.second[1]["x"].data_ptr()
    with pytest.raises(TypeError, match=r"data=3\.0: expected a Batch, a Rollout, or containers"):
        as_tensors({"reward": 3.0})


def randomized(policy: Any) -> Any:
    """A policy with other numbers in all of its arrays."""
    rng = np.random.default_rng(0)
    for array in policy.state().values():
        array[...] = rng.uniform(0.1, 0.9, array.shape)
    return policy


@pytest.mark.parametrize("value", ["separate", "shared", None])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_modules_say_what_policies_say(value: str | None, activation: str) -> None:
    policy = randomized(MLP(SEEN, MOVES, (8, 5), activation, value))
    module = to_torch(policy)
    x = np.random.default_rng(1).uniform(-30, 30, (4, 6, 3)).astype(np.float32)
    outputs, values = module(torch.from_numpy(x))
    assert outputs.shape == (4, 6, 2)
    flat = x.reshape(-1, 3)
    expected = policy.outputs(flat)
    np.testing.assert_allclose(outputs.detach().reshape(-1, 2), expected, rtol=1e-5, atol=1e-5)
    if value:
        found = values.detach().reshape(-1)
        np.testing.assert_allclose(found, policy.evaluate(flat), rtol=1e-5, atol=1e-5)
    else:
        assert values is None


@pytest.mark.parametrize(
    ("space", "observations"),
    [(Discrete(5), np.array([4, 0])), (MultiBinary((2, 3, 3)), np.ones((2, 2, 3, 3), np.int8))],
)
def test_modules_see_choices_and_planes(space: Any, observations: Any) -> None:
    policy = randomized(Linear(space, CHOICES))
    outputs, _ = to_torch(policy)(torch.from_numpy(observations))
    expected = policy.outputs(observations)
    np.testing.assert_allclose(outputs.detach(), expected, rtol=1e-5, atol=1e-5)
    if space.shape:
        with pytest.raises(ValueError, match=r"observations have shape \(2, 2, 9\): expected"):
            to_torch(policy)(torch.zeros(2, 2, 9))


def test_an_optimiser_changes_the_policy() -> None:
    env = rlcpu.make_vec("CartPole-v1", 8)
    policy = MLP(env.single_observation_space, env.single_action_space)
    module = to_torch(policy)
    before = {name: array.copy() for name, array in policy.state().items()}
    optimiser = torch.optim.Adam(module.parameters(), lr=0.1)
    for _ in range(2):  # the second rollout acts with the weights of the first step
        rollout = as_tensors(rlcpu.collect(env, policy, 4))
        logits, values = module(rollout.observations)
        log_probs = torch.distributions.Categorical(logits=logits).log_prob(rollout.actions)
        np.testing.assert_allclose(log_probs.detach(), rollout.log_probs, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(values.detach(), rollout.values, rtol=1e-3, atol=1e-3)
        optimiser.zero_grad()
        (values.square().mean() + log_probs.mean()).backward()
        optimiser.step()
    for name, array in before.items():
        assert (policy.state()[name] != array).any() == name.endswith("parameters"), name


def test_deviations_are_a_parameter_too() -> None:
    policy = MLP(SEEN, MOVES)
    policy.log_std = np.zeros(2)  # float64: replaced by what a tensor can share
    parameters = list(to_torch(policy).parameters())
    assert sum(tensor.numel() for tensor in parameters) == sum(
        array.size for array in (policy.parameters, policy.value_parameters, policy.log_std)
    )
    with torch.no_grad():
        for tensor in parameters:
            tensor.fill_(2.0)
    assert (policy.log_std == 2.0).all()
    assert policy.log_std.dtype == np.float32


@pytest.mark.parametrize("between", [torch.nn.Tanh, torch.nn.ReLU])
@pytest.mark.parametrize("outputs", [4, 5])
def test_there_and_back(between: Any, outputs: int) -> None:
    layers = [torch.nn.Linear(3, 8), between(), torch.nn.Linear(8, outputs)]
    module = torch.nn.Sequential(*layers)
    policy = MLP.from_torch(module, SEEN, CHOICES)
    back = to_torch(policy).policy
    for name, tensor in module.state_dict().items():
        assert torch.equal(back.state_dict()[name], tensor)
    back.load_state_dict(torch.nn.Sequential(*layers[:2], torch.nn.Linear(8, outputs)).state_dict())
    assert (policy.parameters[32:] != MLP.from_torch(module, SEEN, CHOICES).parameters[32:]).any()


class Two(torch.nn.Module):
    """Two layers, and a way of its own through them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(3, 8), torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> Any:
        return self.second(torch.tanh(self.first(x)))


def test_module_with_a_forward_of_its_own_is_refused() -> None:
    with pytest.raises(ValueError, match=r"(?s)module=Two.*expected a torch\.nn\.Sequential"):
        MLP.from_torch(Two(), SEEN, CHOICES)


def test_what_is_no_network_is_refused() -> None:
    with pytest.raises(TypeError, match=r"policy=Uniform\(\): expected one of networks"):
        to_torch(Uniform())  # type: ignore[arg-type]
    policy = MLP(SEEN, CHOICES)
    policy.parameters = np.zeros(3)
    with pytest.raises(ValueError, match=r"parameters of the policy have shape \(3,\): expected 4"):
        to_torch(policy)
