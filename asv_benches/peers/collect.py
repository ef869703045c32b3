"""The table `collect`: simulation, inference and rollout buffers of CartPole-v1 under an MLP."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from asv_benches.peers.cpp import fma_peak
from asv_benches.peers.harness import Contender, Job, best_of, jax_loop
from asv_benches.peers.libraries import jax, jnp, torch
from asv_benches.peers.rows import Row, duels
from asv_benches.peers.simulate import CARTPOLE, Lanes, advance, draw, jax_counters, start
from asv_benches.peers.stepping import make_gymnasium, make_ours, our_collect

NUM_ENVS, NUM_STEPS = 1024, 128
OPERATIONS = 2 * (4 * 64 + 64 * 64 + 64 * 3)  # multiply-adds of the MLP's three layers, as two each
TORCH = "torch + CartPoleVectorEnv"


def rows() -> list[Row]:
    table = []
    for activation, share in {"relu": 0.65, "tanh": None}.items():
        size = NUM_ENVS, NUM_STEPS, activation
        what = f"collect, {NUM_ENVS:,} x {NUM_STEPS}, MLP 4-64-64 {activation}"
        peers = {
            "torch": (TORCH, torch_best(*size), 15),
            "torch-tuned": ("the same, tuned", torch_best(*size, tuned=True)),
            "jax": ("jax scan", partial(jax_collect, *size), 2.5),
        }
        table += duels(activation, what, partial(cartpole_collect, *size), peers)
        limit = {"peak": ("FMA peak of all cores", fma_peak, share)}
        counted = partial(cartpole_collect, *size, OPERATIONS)
        table += duels(activation, what, counted, limit, "peak")
    return table


def cartpole_collect(num_envs: int, num_steps: int, activation: str, operations: int = 1) -> Job:
    """Ours with shared value head; `operations` of a step, where those are the figure."""
    env = make_ours(CARTPOLE, num_envs)
    job = our_collect(env, num_steps, hidden=(64, 64), activation=activation, value="shared")
    return job._replace(work=job.work * operations)


# ---------------------------------------------------------------- JAX


def collect_function(num_steps: int, activation: str) -> Callable[..., Any]:
    """Compiled (parameters, (lanes, buffers), counter) -> (lanes, buffers) of one rollout.

    Simulation, inference and buffers are one `lax.scan`. The old buffers are donated, so that XLA
    may write the new ones over them.
    """
    function = {"relu": jax.nn.relu, "tanh": jnp.tanh}[activation]

    def network(parameters: list[tuple[Any, Any]], x: Any) -> Any:
        *hidden, (weight, bias) = parameters
        for w, b in hidden:
            x = function(x @ w + b)
        return x @ weight + bias

    def collect(parameters: Any, state: Any, counter: Any) -> Any:
        def step(lanes: Lanes, counter: Any) -> Any:
            observations = jnp.stack(lanes[:4], axis=1)
            outputs = network(parameters, observations)
            u, *fresh = draw(lanes, counter)
            difference = outputs[:, 1] - outputs[:, 0]
            right = u < jax.nn.sigmoid(difference)
            log_probs = jax.nn.log_sigmoid(jnp.where(right, difference, -difference))
            new, terminated, truncated = advance(lanes, right, fresh)
            rewards = jnp.ones_like(u)
            values = outputs[:, 2]
            return new, (observations, right, log_probs, values, rewards, terminated, truncated)

        counters = counter + jnp.arange(num_steps, dtype=jnp.uint32)
        return jax.lax.scan(step, state[0], counters)

    return jax.jit(collect, donate_argnums=1)


def network_parameters() -> list[tuple[Any, Any]]:
    """Weights (in, out) and biases (out,) of every layer, of JAX."""
    rng = np.random.default_rng(0)
    return [
        (
            jnp.asarray(rng.normal(0, n_in**-0.5, (n_in, n_out)), jnp.float32),
            jnp.zeros(n_out, jnp.float32),
        )
        for n_in, n_out in itertools.pairwise((4, 64, 64, 3))
    ]


def jax_collect(num_envs: int, num_steps: int, activation: str) -> Job:
    """The same job in JAX, everything recorded."""
    function, parameters = collect_function(num_steps, activation), network_parameters()
    state = function(parameters, (start(num_envs), None), np.uint32(0))
    return jax_loop(partial(function, parameters), state, num_envs * num_steps, jax_counters)


# ---------------------------------------------------------------- PyTorch


def torch_best(num_envs: int, num_steps: int, activation: str, tuned: bool = False) -> Contender:
    """PyTorch with the number of threads that suits it here."""
    make = partial(torch_collect, num_envs, num_steps, activation, tuned=tuned)
    return best_of(TORCH, {f"{k} threads": partial(make, num_threads=k) for k in (1, 2)})


def torch_collect(
    num_envs: int,
    num_steps: int,
    activation: str,
    num_threads: int = 2,
    tuned: bool = True,
    mode: str = "vector_entry_point",
) -> Job:
    """PyTorch beside Gymnasium's environments: the collection loop of a single-file PPO.

    One network with three outputs, `inference_mode`, tensors that share memory with NumPy's arrays
    and buffers allocated once are taken for granted. The tuned variant also does without the
    objects of `torch.distributions`, which single-file implementations use, and which cost a third
    of the time. `mode` is Gymnasium's.
    """
    torch.manual_seed(0)
    function = {"relu": torch.nn.ReLU, "tanh": torch.nn.Tanh}[activation]
    layers = [torch.nn.Linear(4, 64), function(), torch.nn.Linear(64, 64), function()]
    network = torch.nn.Sequential(*layers, torch.nn.Linear(64, 3))
    env = make_gymnasium(CARTPOLE, num_envs, mode)
    seen, _ = env.reset(seed=0)
    shape = (num_steps, num_envs)
    observations, actions = torch.zeros((*shape, 4)), torch.zeros(shape, dtype=torch.int64)
    log_probs, values, rewards = torch.zeros((3, *shape))
    terminated, truncated = torch.zeros((2, *shape), dtype=torch.bool)

    def sample(logits: Any) -> tuple[Any, Any]:
        """Actions and their log-probabilities, as single-file implementations write it."""
        distribution = torch.distributions.Categorical(logits=logits)
        chosen = distribution.sample()
        return chosen, distribution.log_prob(chosen)

    def sample_tuned(logits: Any) -> tuple[Any, Any]:
        """The same, without what the distribution's object checks and computes twice."""
        log_softmax = torch.log_softmax(logits, 1)
        chosen = torch.multinomial(log_softmax.exp(), 1)
        return chosen[:, 0], log_softmax.gather(1, chosen)[:, 0]

    choose = sample_tuned if tuned else sample

    @torch.inference_mode()
    def call() -> None:
        nonlocal seen
        torch.set_num_threads(num_threads)
        for t in range(num_steps):
            x = torch.from_numpy(seen)
            outputs = network(x)
            chosen, log_prob = choose(outputs[:, :2])
            seen, reward, ended, cut, _ = env.step(chosen.numpy())
            observations[t] = x
            actions[t] = chosen
            log_probs[t] = log_prob
            values[t] = outputs[:, 2]
            rewards[t] = torch.from_numpy(reward)
            terminated[t] = torch.from_numpy(ended)
            truncated[t] = torch.from_numpy(cut)

    return Job(call, work=num_envs * num_steps)
