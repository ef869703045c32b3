# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Replay: what sampling costs
#
# Two complaints are retold here. In the first, a prioritised buffer on a CPU takes a fifth of a
# second to store what a GPU stores in 2.5 ms, and two time steps cost nearly 3,000 times as much as
# one. In the second, sampling from a buffer of a million transitions takes 65 % of the time of a
# training run of four days. Behind both is one data structure: the **sum tree**.

# %%
import itertools
import time

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import SVG

import rlcpu
from rlcpu.kernels.machine.threads import show_config

try:
    import torch
except ImportError:
    torch = None
    print("PyTorch is missing: pip install torch. What needs it is left out below.")

plt.rcParams.update({"figure.figsize": (7, 3.6), "axes.grid": True, "grid.alpha": 0.3})
plt.rcParams["figure.constrained_layout.use"] = True
settings = show_config()
print({k: settings[k] for k in ("cpu", "vector width", "threads", "numba", "numpy")})


def seconds(call, budget=0.1):
    """The median of the calls that fit into `budget` seconds, after one that may compile."""
    call()
    times, end = [], time.perf_counter() + budget
    while time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


# %% [markdown]
# ## The tree of priorities
#
# To draw an item with a probability proportional to its priority, draw a number below the sum of
# all priorities and find the item in whose share it lies. A tree whose every node holds the sum of
# its children finds it in one walk from the top, and a changed priority changes only the sums on
# that walk. Here a node has eight children, as many numbers as one line of the cache holds.

# %%
capacity = 64
rng = np.random.default_rng(0)
priorities = 0.02 + rng.exponential(size=capacity) ** 2
tree = rlcpu.replay.SumTree(capacity, seed=0)
tree.update(np.arange(capacity), priorities)
print(tree.total, priorities.sum())


# %% [markdown]
# Twelve draws, one a second: the walk chooses among eight nodes, then among eight leaves. High bars
# are drawn more often. The item that is drawn is red.


# %%
def box(x, y, width, height, color, extra=""):
    """An SVG rectangle that stands on y."""
    place = f'x="{x}" y="{y - height:.1f}" width="{width}" height="{height:.1f}"'
    return f'<rect {place} fill="{color}">{extra}</rect>'


def flash(second, of):
    """Makes a shape visible in one second of `of`."""
    moments = f'values="0;1;0" keyTimes="0;{second / of};{(second + 1) / of}"'
    timing = f'dur="{of}s" repeatCount="indefinite"'
    return f'<animate attributeName="opacity" calcMode="discrete" {moments} {timing}/>'


def bars(values, width, y, height, gap, only=None, color="#9bb7d4", extra=""):
    """Boxes as high as their values, all of them or one."""
    scale = height / values.max()
    chosen = range(len(values)) if only is None else [only]
    boxes = (box(k * width + 1, y, width - gap, values[k] * scale, color, extra) for k in chosen)
    return "".join(boxes)


sums = priorities.reshape(8, 8).sum(axis=1)
drawn = tree.sample(12)
parts = [bars(sums, 80, 90, 70, 4), bars(priorities, 10, 220, 100, 2)]
for second, leaf in enumerate(drawn.tolist()):
    extra = flash(second, len(drawn))
    parts.append(bars(sums, 80, 90, 70, 4, leaf // 8, "#1f77b4", extra))
    parts.append(bars(priorities, 10, 220, 100, 2, leaf, "#d62728", extra))
labels = '<text y="12">eight sums of eight priorities</text><text y="112">64 priorities</text>'
SVG(
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 225" width="640" height="225" '
    'font-family="sans-serif" font-size="12" fill="#555">'
    '<rect width="640" height="225" fill="#fff"/>'
    f"{labels}{''.join(parts)}</svg>"
)

# %% [markdown]
# A hundred thousand draws against what they should be:

# %%
draws = 100_000
counts = np.bincount(tree.sample(draws), minlength=capacity)
expected = draws * priorities / priorities.sum()
deviations = (counts - expected) / np.sqrt(expected)
figure, axes = plt.subplots()
axes.loglog(expected, counts, "o", markersize=4)
ends = np.array([expected.min(), expected.max()])
axes.loglog(ends, ends, color="black", linewidth=1, label="in proportion to the priority")
axes.set(xlabel="draws expected", ylabel="draws", title="100,000 draws of 64 items")
figure.legend(loc="outside lower center")
plt.show()
print(f"chi-squared per degree of freedom: {np.sum(deviations**2) / (capacity - 1):.2f}")

# %% [markdown]
# ## Two steps cost thousands of times one
#
# The report (flashbax, August 2025): a prioritised buffer of 2 million time steps of 400 bytes, 16
# environments side by side, sequences of 11. Adding one time step of all environments took 0.07 ms,
# adding two 204 ms, adding a hundred 209 ms (JAX 0.6.2 on a CPU, memory donated). The cause was a
# copy of the whole buffer that the compiler put around the write. Here the buffer is written in
# place, and the tree's sums are recomputed once for each node that changes. What has to be done in
# any case is to copy the new steps.

# %%
num_envs, length, size = 16, 125_000, 100
counts = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]
steps = np.ones((1000, num_envs, size), np.float32)


def time_trajectories():
    """Seconds of adding each count of steps to 2 million, and of sampling 256 sequences."""
    example = np.zeros(size, np.float32)
    buffer = rlcpu.replay.PrioritizedTrajectoryBuffer(
        num_envs, length, example, sequence_length=11, alpha=0.5, seed=0
    )
    for _ in range(length // 1000):  # the system hands out memory when it is first written
        buffer.add(steps)
    adding = [seconds(lambda count=count: buffer.add(steps[:count])) for count in counts]
    batch = buffer.sample(256)
    return adding, seconds(lambda: buffer.sample(256, out=batch))


def time_copies():
    """Seconds of copying each count of steps to a random place in memory."""
    memory = np.ones((50_000, num_envs, size), np.float32)
    places = itertools.cycle(rng.integers(0, len(memory) - 1000, 10_000).tolist())

    def copy(count):
        place = next(places)
        memory[place : place + count] = steps[:count]

    return [seconds(lambda count=count: copy(count)) for count in counts]


adding, sampling_sequences = time_trajectories()
copying = time_copies()

# %%
figure, axes = plt.subplots()
axes.loglog([1, 2, 100], [7.2e-5, 0.204, 0.209], "s", color="C1", label="flashbax, as reported")
axes.loglog(counts, adding, "o-", color="C0", label="rlcpu, here")
axes.loglog(counts, copying, "--", color="black", linewidth=1, label="copying to memory, here")
axes.set(xlabel="time steps of 16 environments", ylabel="seconds", title="Add to 2 million")
figure.legend(loc="outside lower center", ncols=3)
plt.show()
for count, name in ((1, "one time step"), (2, "two"), (100, "a hundred")):
    print(f"{name:>13s}: {1e6 * adding[counts.index(count)]:5.1f} us")
print(f"sample 256 sequences of 11: {1e6 * sampling_sequences:.0f} us")

# %% [markdown]
# ## 8 hours to gain 26
#
# The second complaint is a blog post of that name. An extension of soft actor-critic (SAC) draws
# transitions in proportion to the return of their episode, raised so that none is negative:
#
# ```text
# lowest = min(min(returns), 0)
# probability[i] = (returns[i] - lowest) / sum(returns - lowest)
# ```
#
# and none twice in a batch. With NumPy that took 65 % of the run: every step of training reads the
# whole buffer several times. The author's remedy was to keep the lowest return and to draw with
# PyTorch, 2.7 times as fast, and still linear in the size of the buffer.
#
# In a tree over the returns, the weight of a node is its sum minus its number of items times the
# lowest: a new lowest return changes all weights at no cost. `ReturnWeightedBuffer` keeps such a
# tree.


# %%
def with_numpy(returns, rng):
    """256 different indices, as the post drew them first."""
    weights = returns - min(returns.min(), 0.0)
    return rng.choice(len(returns), 256, replace=False, p=weights / weights.sum())


def with_torch(returns, lowest):
    """256 different indices, as the post drew them in the end, with the minimum given."""
    weights = returns - min(lowest, 0.0)
    return torch.multinomial(weights / weights.sum(), 256, replacement=False)


def make_returns(count):
    """Returns of episodes, a third of them negative."""
    return rng.normal(50.0, 120.0, count)


sampling = {"NumPy": {}, "PyTorch": {}, "rlcpu": {}}
for count in (1_000, 10_000, 100_000, 1_000_000):
    returns = make_returns(count)
    weighted = rlcpu.replay.ReturnWeightedBuffer(count, {"reward": np.float32(0)}, seed=0)
    weighted.add({"reward": np.zeros(count, np.float32)}, returns)
    sampling["NumPy"][count] = seconds(lambda returns=returns: with_numpy(returns, rng))
    sampling["rlcpu"][count] = seconds(lambda weighted=weighted: weighted.sample_indices(256))
    if torch:
        tensor = torch.from_numpy(returns).float()
        least = tensor.min().item()
        sampling["PyTorch"][count] = seconds(lambda t=tensor, m=least: with_torch(t, m))

# %%
colors = {"NumPy": "C1", "PyTorch": "C2", "rlcpu": "C0"}
figure, axes = plt.subplots()
for name, points in sampling.items():
    if points:
        axes.loglog(points.keys(), points.values(), "o-", color=colors[name], label=name)
post = {"NumPy": (0.0243, 0.0412, 0.0200), "PyTorch": (0.00844, 0.01553, 0.00768)}
for name, times in post.items():
    axes.loglog([1e6] * 3, times, "x", color=colors[name], label=f"{name}, the post's")
axes.set(xlabel="items in the buffer", ylabel="seconds", title="Draw 256, none twice, by return")
figure.legend(loc="outside right upper", fontsize=8)
plt.show()
ratio = sampling["NumPy"][1_000_000] / sampling["rlcpu"][1_000_000]
print(f"a million items: {ratio:,.0f} times as fast as NumPy")

# %% [markdown]
# ## The training loop
#
# What the run gains depends on what else it does. Here is SAC (Haarnoja et al. 2018) with networks
# of two layers of 256, on a buffer of a million transitions of the size of HalfCheetah's: 17
# numbers observed, 6 of action. Every step stores one transition, draws 256 and updates the actor,
# two critics and their targets. The environment itself is left out.

# %%
observed, acted, million = 17, 6, 1_000_000
example = {
    "observation": np.zeros(observed, np.float32),
    "action": np.zeros(acted, np.float32),
    "reward": np.float32(0),
    "next_observation": np.zeros(observed, np.float32),
    "terminated": False,
}


def network(inputs, outputs):
    """Two hidden layers of 256."""
    linear, relu = torch.nn.Linear, torch.nn.ReLU
    return torch.nn.Sequential(
        linear(inputs, 256), relu(), linear(256, 256), relu(), linear(256, outputs)
    )


class SAC:
    """The update of soft actor-critic, with a fixed temperature."""

    def __init__(self):
        self.actor = network(observed, 2 * acted)
        self.critics = [network(observed + acted, 1) for _ in range(2)]
        self.targets = [network(observed + acted, 1) for _ in range(2)]
        weights = [w for critic in self.critics for w in critic.parameters()]
        self.actor_adam = torch.optim.Adam(self.actor.parameters(), 3e-4)
        self.critic_adam = torch.optim.Adam(weights, 3e-4)

    def act(self, observations):
        """Actions in (-1, 1) and their log-probabilities."""
        mean, log_std = self.actor(observations).chunk(2, dim=1)
        normal = torch.distributions.Normal(mean, log_std.clamp(-5, 2).exp())
        raw = normal.rsample()
        actions = torch.tanh(raw)
        log_probs = normal.log_prob(raw) - torch.log(1 - actions**2 + 1e-6)
        return actions, log_probs.sum(dim=1)

    def least(self, critics, observations, actions):
        """The lower value of the two critics."""
        pairs = torch.cat([observations, actions], dim=1)
        return torch.minimum(*(critic(pairs).squeeze(1) for critic in critics))

    def update(self, batch):
        """One gradient step of everything."""
        data = {name: torch.as_tensor(batch[name]) for name in example}
        now, actions = data["observation"], data["action"]
        with torch.no_grad():
            following, log_probs = self.act(data["next_observation"])
            values = self.least(self.targets, data["next_observation"], following)
            left = (~data["terminated"]).float()
            target = data["reward"] + 0.99 * left * (values - 0.2 * log_probs)
        pairs = torch.cat([now, actions], dim=1)
        errors = [critic(pairs).squeeze(1) - target for critic in self.critics]
        self.descend(self.critic_adam, sum((error**2).mean() for error in errors))
        chosen, log_probs = self.act(now)
        loss = (0.2 * log_probs - self.least(self.critics, now, chosen)).mean()
        self.descend(self.actor_adam, loss)
        with torch.no_grad():
            for critic, target in zip(self.critics, self.targets, strict=True):
                for weight, slow in zip(critic.parameters(), target.parameters(), strict=True):
                    slow.lerp_(weight, 0.005)

    @staticmethod
    def descend(optimizer, loss):
        """One step of an optimiser."""
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


# %% [markdown]
# Three buffers with the same million transitions: the post's first version, its second, and ours.


# %%
class ArrayBuffer:
    """The post's buffer: arrays, and 256 indices drawn by NumPy or PyTorch."""

    def __init__(self, data, returns, library):
        self.data, self.returns, self.library = data, returns, library
        self.tensor = torch.from_numpy(returns).float()
        self.lowest, self.position = float(returns.min()), 0

    def add(self, transition, value):
        """Store one transition with its return."""
        for name, array in self.data.items():
            array[self.position] = transition[name]
        self.returns[self.position] = self.tensor[self.position] = value
        self.lowest = min(self.lowest, value)
        self.position = (self.position + 1) % million

    def sample(self):
        """256 different transitions."""
        if self.library == "NumPy":
            indices = with_numpy(self.returns, rng)
        else:
            indices = with_torch(self.tensor, self.lowest).numpy()
        return {name: array[indices] for name, array in self.data.items()}


class OurBuffer:
    """The same on `ReturnWeightedBuffer`."""

    def __init__(self, data, returns):
        self.buffer = rlcpu.replay.ReturnWeightedBuffer(million, example, seed=0)
        self.buffer.add(data, returns)
        self.batch, self.add = self.buffer.sample(256), self.buffer.add

    def sample(self):
        """256 different transitions."""
        return self.buffer.sample(256, out=self.batch)


def take_turns(buffers, agent, num_steps=40):
    """Least seconds of storing and sampling and of the update, for each buffer: (buffers, 2)."""
    times = []
    for _ in range(num_steps):
        for buffer in buffers:
            value = float(make_returns(1)[0])
            start = time.perf_counter()
            buffer.add(example, value)
            batch = buffer.sample()
            middle = time.perf_counter()
            agent.update(batch)
            times.append((middle - start, time.perf_counter() - middle))
    return np.min(np.reshape(times, (num_steps, len(buffers), 2))[5:], axis=0)


found = {}
if torch is None:
    print("The training loop needs PyTorch: pip install torch")
else:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # small networks gain little by more, and other programs disturb them
    data = {
        name: np.zeros((million, *np.shape(item)), np.asarray(item).dtype)
        for name, item in example.items()
    }
    for name in ("observation", "next_observation"):
        data[name] = rng.standard_normal((million, observed), np.float32)
    returns = make_returns(million)
    buffers = {
        "NumPy, the post's first": ArrayBuffer(data, returns.copy(), "NumPy"),
        "PyTorch, its second": ArrayBuffer(data, returns.copy(), "PyTorch"),
        "rlcpu": OurBuffer(data, returns),
    }
    found = dict(zip(buffers, take_turns(buffers.values(), SAC()), strict=True))

# %%
if found:
    figure, axes = plt.subplots(figsize=(8, 2.4))
    sampled, updated = 1e3 * np.array(list(found.values())).T
    first = axes.barh(list(found), sampled, label="store and sample")
    axes.barh(list(found), updated, left=sampled, label="update", color="lightgray")
    portions = [f"{100 * s / (s + u):.1f} %" for s, u in zip(sampled, updated, strict=True)]
    for row, (total, portion) in enumerate(zip(sampled + updated, portions, strict=True)):
        axes.text(total, row, f" {portion} sampling", va="center")
    axes.set(xlabel="ms per training step", xlim=(0, 1.3 * (sampled + updated).max()))
    axes.set_title("SAC, a million transitions, batches of 256")
    axes.invert_yaxis()
    figure.legend(loc="outside lower center", ncols=2)
    plt.show()
    for (name, (sampled, updated)), portion in zip(found.items(), portions, strict=True):
        days = 5e6 * (sampled + updated) / 86400
        print(f"{name:24s} {portion:>7s} sampling; 5 million steps take {days:.2f} days")

# %% [markdown]
# ## Priorities by temporal difference
#
# Prioritised replay (Schaul et al. 2016) on the same tree: new transitions get the highest
# priority, and the learner sets those that it has seen.

# %%
prioritized = rlcpu.replay.PrioritizedReplayBuffer(100_000, example, alpha=0.6, seed=0)
prioritized.add({name: np.stack([item] * 1000) for name, item in example.items()})
batch = prioritized.sample(256, beta=0.5)
prioritized.update_priorities(batch.indices, rng.exponential(size=256))
print(batch["observation"].shape, batch.weights.min(), batch.weights.max())
