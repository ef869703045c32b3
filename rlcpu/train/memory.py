"""What the kernels of an update read and write, and how it is laid out."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rlcpu.envs.policies import MLP
from rlcpu.kernels.compile import inline
from rlcpu.kernels.mlp import RELU, TANH
from rlcpu.train import network, objective, phases
from rlcpu.train.config import PPOConfig
from rlcpu.train.network import Network

#: Samples of a part of a minibatch, which one worker takes; two parts of each of two networks keep
#: four cores busy on minibatches of 256.
PART = 128
#: Samples that pass forward, loss and backward together: 64 samples of 64-64 are 50 KB beside 55 KB
#: of weights and gradients, all in the second-level cache.
CHUNK = 64


class Batch(NamedTuple):
    """S samples of a rollout.

    Attributes:
        observations: (S * observation_size,) float32.
        mean, scale: (observation_size,) float32, of the policy that collected.
        actions: (S,) int64 of `Discrete` or (S * action_size,) float32 of `Box`.
        log_probs, advantages, targets: (S,) float32; targets are returns to learn the value from.
    """

    observations: Any
    mean: Any
    scale: Any
    actions: Any
    log_probs: Any
    advantages: Any
    targets: Any


class Learner(NamedTuple):
    """What an update changes and a checkpoint keeps.

    One flat vector holds the logarithms of the standard deviations (padded) and then the packed
    parameters of each network; see `rlcpu.train.network`.

    Attributes:
        parameters, first, second: (P,), the vector and its moments in Adam.
        copies: (C,), transposed weights of all networks.
    """

    parameters: Any
    first: Any
    second: Any
    copies: Any


class Layout(NamedTuple):
    """Where the networks are in the flat vectors.

    Attributes:
        tables: (num_networks, num_layers, 8) int64; the policy's, then the value network's.
        activation: TANH or RELU.
        begins, copies_begins: (num_networks + 1,) int64, bounds in parameters and in copies.
        actions: number of actions, or of numbers in one.
        value_column: output of the policy network that is the value, or -1.
    """

    tables: Any
    activation: int
    begins: Any
    copies_begins: Any
    actions: int
    value_column: int


class Space(NamedTuple):
    """Scratch memory, overwritten.

    Attributes:
        indices: (S,) int64, the samples in the order of the epoch.
        moments: (num_minibatches, 2), mean and inverse deviation of each minibatch's advantages.
        gradients: (num_parts, P).
        sums: (num_parts, num_networks, NUM_SUMS) float64; see `rlcpu.train.objective`.
        cells, slopes, lanes, totals: (num_workers, any), scratch of one worker.
        claims, done: see `rlcpu.train.phases.Board`.
        report: (NUM_SUMS + 2,) float64, means of the sums over the minibatches, then the mean norm
            of the gradient, then the number of gradient steps taken.
    """

    indices: Any
    moments: Any
    gradients: Any
    sums: Any
    cells: Any
    slopes: Any
    lanes: Any
    totals: Any
    claims: Any
    done: Any
    report: Any


class Settings(NamedTuple):
    """Numbers of one update; reals are of the learner's dtype.

    Attributes:
        epochs, minibatch_size: see `PPOConfig`.
        normalize: 1 to normalise advantages.
        learning_rate, epsilon: of Adam.
        clip, entropy, value: see `Weights`.
        max_norm: the gradient is scaled down to this norm.
        max_divergence: the update ends at a minibatch that has diverged further.
        steps, shuffles: gradient steps and epochs before this update.
        key_low, key_high: uint32, of the random stream that shuffles.
        patience: see `phases.wait`.
    """

    epochs: int
    minibatch_size: int
    normalize: int
    learning_rate: Any
    epsilon: Any
    clip: Any
    entropy: Any
    value: Any
    max_norm: Any
    max_divergence: Any
    steps: int
    shuffles: int
    key_low: Any
    key_high: Any
    patience: int


class Item(NamedTuple):
    """One part of the gradient of a minibatch.

    Attributes:
        worker: who computes it, and so which scratch memory it may use.
        network: 0 is the policy, 1 the value network.
        part: which samples of the minibatch.
        minibatch: number of the minibatch in its epoch.
    """

    worker: int
    network: int
    part: int
    minibatch: int


@inline
def network_of(learner, layout, k):  # type: ignore[no-untyped-def]
    """Network number k in the flat vectors."""
    begin, end = layout.begins[k], layout.begins[k + 1]
    first, last = layout.copies_begins[k], layout.copies_begins[k + 1]
    parameters, copies = learner.parameters[begin:end], learner.copies[first:last]
    return Network(layout.tables[k], layout.activation, parameters, copies)


def refresh_all(learner: Learner, layout: Layout) -> None:
    """Make the transposed weights of all networks anew, as `refresh_copies` does for one."""
    for k in range(len(layout.tables)):
        view: Any = network_of.py_func(learner, layout, k)
        for layer, row in enumerate(view.table.tolist()):
            rows, columns, begin, end, copy, _, _, width = row
            last = layer == len(view.table) - 1
            if last or layer > 0:
                width = width if last else rows
                copies = view.copies[copy : copy + columns * width].reshape(columns, width)
                copies[:, :rows] = view.parameters[begin:end].reshape(rows, columns).T


def make_layout(policy: MLP) -> Layout:
    """The flat vector of a policy and its value network."""
    separate = policy.value == "separate"
    sizes = [policy.sizes, policy.value_sizes] if separate else [policy.sizes]
    tables = [network.layer_table(s) for s in sizes]
    begins, copies = [network.padded(policy.log_std.size)], [0]
    for table in tables:
        begins.append(begins[-1] + network.packed_size(table))
        copies.append(copies[-1] + network.copies_size(table))
    shared = policy.value == "shared"
    actions = int(policy.sizes[-1]) - shared
    return Layout(
        tables=np.array(tables),
        activation=RELU if policy.activation == "relu" else TANH,
        begins=np.array(begins),
        copies_begins=np.array(copies),
        actions=actions,
        value_column=actions if shared else -1,
    )


def make_space(layout: Layout, config: PPOConfig, count: int, workers: int, dtype: type) -> Space:
    """Scratch memory for batches of `count` samples."""
    minibatch = min(config.minibatch_size, count)
    num_minibatches = -(-count // minibatch)
    parts = -(-minibatch // PART)
    items = parts * len(layout.tables)
    size = layout.begins[-1]
    cells = max(network.cells_per_sample(table) for table in layout.tables)
    widest = layout.tables[:, :, network.WIDTH_IN :].max()
    lanes = objective.HEADS + 2 * layout.actions + 1
    return Space(
        indices=np.zeros(count, np.int64),
        moments=np.zeros((num_minibatches, 2), dtype),
        gradients=np.zeros((parts, size), dtype),
        sums=np.zeros((parts, len(layout.tables), objective.NUM_SUMS)),
        cells=np.zeros((workers, CHUNK * cells), dtype),
        slopes=np.zeros((workers, (CHUNK + 1) * widest), dtype),
        lanes=np.zeros((workers, CHUNK * lanes), dtype),
        totals=np.zeros((workers, size), dtype),
        claims=np.zeros(phases.LINE * max(items, num_minibatches), np.int64),
        done=np.zeros(phases.LINE, np.int64),
        report=np.zeros(objective.NUM_SUMS + 2),
    )
