"""Slow, obvious oracles: plain Python loops that say what the kernels compute."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete, MultiBinary

from rlcpu.kernels.machine.random import (
    RANDOMIZE_GROUP,
    RESET_GROUP,
    STEP_GROUP,
    Rng,
    keys,
    mix,
    uniforms,
)


def discounted_returns(
    rewards: Any, terminated: Any, truncated: Any, last_values: Any, final_values: Any, gamma: Any
) -> np.ndarray:
    """Return of every step, one environment after the other."""
    returns = np.empty_like(rewards)
    for env in range(rewards.shape[1]):
        following = last_values[env]
        for t in reversed(range(rewards.shape[0])):
            if terminated[t, env]:
                following = rewards.dtype.type(0.0)
            elif truncated[t, env]:
                following = final_values[t, env]
            following = returns[t, env] = rewards[t, env] + gamma * following
    return returns


def gae(
    rewards: Any,
    values: Any,
    terminated: Any,
    truncated: Any,
    last_values: Any,
    final_values: Any,
    gamma: Any,
    decay: Any,
) -> np.ndarray:
    """Advantage of every step, one environment after the other; `decay` is gamma * lambda."""
    advantages = np.empty_like(rewards)
    for env in range(rewards.shape[1]):
        next_value = last_values[env]
        next_advantage = rewards.dtype.type(0.0)
        for t in reversed(range(rewards.shape[0])):
            if terminated[t, env]:
                next_value = rewards.dtype.type(0.0)
            elif truncated[t, env]:
                next_value = final_values[t, env]
            delta = rewards[t, env] + gamma * next_value - values[t, env]
            if terminated[t, env] or truncated[t, env]:
                advantages[t, env] = delta
            else:
                advantages[t, env] = delta + decay * next_advantage
            next_value, next_advantage = values[t, env], advantages[t, env]
    return advantages


class Draws:
    """The random numbers of one environment: a key from its seed, and a counter of steps.

    The generator's own functions run here as plain Python on NumPy scalars.
    """

    def __init__(self, seed: int, dtype: type) -> None:
        low, high = keys(np.array([seed], np.uint64))[:, 0]
        self.key, self.dtype, self.counter = (low, high), dtype, 0

    def advance(self) -> None:
        self.counter += 1

    def take(self, count: int, first: int, dtype: type) -> tuple[float, ...]:
        """`count` numbers of the present step, from index `first` on."""
        with np.errstate(over="ignore"):
            words = mix.py_func(*self.key, np.uint32(self.counter))
            return tuple(map(float, uniforms(count, first, dtype).py_func(*words)))

    def rng(self, group: int) -> Rng:
        """The present step's numbers, to be asked for one by one."""
        with np.errstate(over="ignore"):
            a, b = mix.py_func(*self.key, np.uint32(self.counter))
        return Rng(int(a), int(b), group, self.dtype)


class Lane:
    """One environment in plain Python, stepped by the unjitted scalar functions."""

    def __init__(self, env: Any, seed: int, index: int = 0) -> None:
        self.dynamics, self.limit = env.dynamics, env.max_episode_steps
        own = {name: float(values[index]) for name, values in self.dynamics.varied.items()}
        self.given = self.params = self.dynamics.params._replace(**own)
        self.draws = Draws(seed, env.dtype.type)
        self.draws.advance()  # the first reset took the numbers of step 0
        self.start(Draws(seed, env.dtype.type))

    def start(self, draws: Draws) -> None:
        if self.dynamics.takes_rng("reset"):
            numbers: Any = draws.rng(RESET_GROUP)
        else:
            numbers = draws.take(self.dynamics.reset_draws, 0, draws.dtype)
        if self.dynamics.randomize is not None:
            drawn = self.dynamics.randomize(draws.rng(RANDOMIZE_GROUP), self.given)
            self.params = self.given._replace(**drawn._asdict())
        self.state = self.dynamics.reset(numbers, self.params)
        self.total, self.length = 0.0, 0

    def observe(self) -> np.ndarray:
        """As `env.step` returns it; boards as uint8."""
        seen, space = (
            self.dynamics.observe(self.state, self.params),
            self.dynamics.observation_space,
        )
        if isinstance(space, Discrete):
            return np.int64(seen)
        if isinstance(space, MultiBinary):
            cells = math.prod(space.shape[1:])
            bits = [[board >> cell & 1 for cell in range(cells)] for board in map(int, seen)]
            return np.array(bits, np.uint8).reshape(space.shape)
        return np.float32(seen)

    def step(self, action: Any) -> dict[str, Any]:
        """One step, and a new episode at once where one has ended."""
        dynamics, draws = self.dynamics, self.draws
        inputs = [self.state, action, self.params]
        if dynamics.takes_rng("step"):
            inputs.append(draws.rng(STEP_GROUP))
        elif dynamics.step_draws:
            inputs.append(draws.take(dynamics.step_draws, dynamics.reset_draws, draws.dtype))
        self.state, reward, terminated, *cut = dynamics.step(*inputs)
        self.total, self.length = self.total + reward, self.length + 1
        truncated = any(cut) or (self.limit is not None and self.length >= self.limit)
        result = {"rewards": reward, "terminated": terminated, "truncated": truncated}
        if terminated or truncated:
            result["final"] = (self.observe(), self.total, self.length)
            self.start(draws)
        draws.advance()
        return result

    def policy_draws(self, count: int) -> tuple[float, ...]:
        first = self.dynamics.reset_draws + self.dynamics.step_draws
        return self.draws.take(count, first, np.float32)


def network(parameters: np.ndarray, sizes: np.ndarray, activation: str, x: Any) -> np.ndarray:
    """Outputs of a multi-layer perceptron for one input, in float64."""
    begin = 0
    for layer, (inputs, outputs) in enumerate(itertools.pairwise(map(int, sizes))):
        end = begin + inputs * outputs
        weights = parameters[begin:end].reshape(inputs, outputs).astype(np.float64)
        x, begin = x @ weights + parameters[end : end + outputs], end + outputs
        if layer < len(sizes) - 2:
            x = np.tanh(x) if activation == "tanh" else np.maximum(x, 0.0)
    return np.asarray(x)


def value_of(policy: Any, observation: np.ndarray) -> float:
    """The value head's number, or 0."""
    seen = normalized(policy, observation)
    if policy.value == "separate":
        return network(policy.value_parameters, policy.value_sizes, policy.activation, seen)[0]
    if policy.value == "shared":
        return network(policy.parameters, policy.sizes, policy.activation, seen)[-1]
    return 0.0


def normalized(policy: Any, observation: np.ndarray) -> np.ndarray:
    if observation.dtype == np.int64:
        observation = np.eye(policy.observation_mean.size)[observation]
    return normalized_rows(policy, observation.reshape(-1)).astype(np.float64)


def normalized_rows(policy: Any, inputs: np.ndarray) -> np.ndarray:
    """Inputs (..., size) as a policy's networks get them."""
    scaled = (inputs - policy.observation_mean) * policy.observation_scale
    return np.clip(scaled, -policy.observation_limit, policy.observation_limit)


def decide(policy: Any, lane: Lane, observation: np.ndarray) -> tuple[Any, float, float]:
    """Action, log-probability and value of any policy for one observation."""
    code = policy.code(lane.dynamics)
    uniform = lane.policy_draws(code.draws)
    if code.act is not None:
        params = policy.arrays(lane.dynamics).weights.tolist()
        params = tuple(params) if code.params_type is None else code.params_type(*params)
        if not lane.dynamics.observation.is_plain:
            seen = lane.dynamics.observe(lane.state, lane.dynamics.params)
            return code.act(seen, params, uniform)
        return code.act(tuple(observation.tolist()), params, uniform)
    seen = normalized(policy, observation)
    heads = network(policy.parameters, policy.sizes, policy.activation, seen)
    value = value_of(policy, observation)
    if lane.dynamics.is_discrete:
        return *categorical(heads[: lane.dynamics.num_actions], uniform[0], policy), value
    return *gaussian(heads[: lane.dynamics.action_size], uniform, policy), value


def categorical(logits: np.ndarray, uniform: float, policy: Any) -> tuple[int, float]:
    probabilities = np.exp(logits - logits.max())
    probabilities /= probabilities.sum()
    drawn = int(np.searchsorted(np.cumsum(probabilities)[:-1], uniform, side="right"))
    action = int(logits.argmax()) if policy.deterministic else drawn
    return action, math.log(probabilities[action])


def gaussian(means: np.ndarray, uniform: Any, policy: Any) -> tuple[tuple[float, ...], float]:
    """Box & Muller (1958), one pair of numbers for each coordinate of the action."""
    radius = np.sqrt(-2.0 * np.log(1.0 - np.array(uniform[::2])))
    noise = radius * np.cos(2.0 * np.pi * (np.array(uniform[1::2]) - 0.5))
    noise = np.zeros_like(noise) if policy.deterministic else noise
    log_std = policy.log_std.astype(np.float64)
    density = -0.5 * noise**2 - log_std - 0.5 * math.log(2.0 * math.pi)
    return tuple(means + np.exp(log_std) * noise), float(density.sum())


def clip(dynamics: Any, action: Any) -> Any:
    """The action that the environment gets: float32 numbers within its bounds."""
    if dynamics.is_discrete:
        return int(action)
    space = dynamics.action_space
    return tuple(np.clip(np.float32(action), space.low, space.high).tolist())


def collect(env: Any, policy: Any, num_steps: int, seeds: Any) -> dict[str, np.ndarray]:
    """What `rlcpu.collect` returns after `env.reset(seed=seeds)`, one step after the other."""
    lanes = [Lane(env, seed, n) for n, seed in enumerate(seeds)]
    rows: dict[str, list[Any]] = {}
    finals, indices = [], []
    final_values = np.zeros((num_steps, len(lanes)))
    for step in range(num_steps):
        for n, lane in enumerate(lanes):
            seen = lane.observe()
            action, log_prob, value = decide(policy, lane, seen)
            result = lane.step(clip(env.dynamics, action))
            if "final" in result:
                finals.append(result.pop("final"))
                indices.append([step, n])
                if not result["terminated"] and hasattr(policy, "value"):
                    final_values[step, n] = value_of(policy, finals[-1][0])
            recorded = {"observations": seen, "actions": action, "log_probs": log_prob}
            for name, item in {**recorded, "values": value, **result}.items():
                rows.setdefault(name, []).append(item)
    shape = (num_steps, len(lanes))
    arrays = {k: np.array(v).reshape(*shape, *np.shape(v[0])) for k, v in rows.items()}
    last = np.array([lane.observe() for lane in lanes])
    values = [value_of(policy, seen) if hasattr(policy, "value") else 0.0 for seen in last]
    return arrays | {
        "last_observations": last,
        "last_values": np.array(values),
        "final_indices": np.array(indices, np.int64).reshape(-1, 2),
        "final_observations": np.array([f[0] for f in finals]).reshape(-1, *last.shape[1:]),
        "final_values": final_values,
        "episode_returns": np.array([f[1] for f in finals]),
        "episode_lengths": np.array([f[2] for f in finals], np.int64),
    }
