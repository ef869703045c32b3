"""PPO with self-attention, which is a layer of one's own (Vaswani et al. 2017, equation 1).

    y[i] = sum of a[i, j] * v[j] over j,    a[i] = softmax of q[i] . k[j] / sqrt(m) over j

q, k and v are m numbers each that one matrix makes of each object: for a convolution of window 1
an object is a pixel. The task: say in which quarter the colour of the nearest object is.
"""

import math

import numpy as np
from gymnasium.spaces import Box, Discrete

import rlcpu
from rlcpu import nn
from rlcpu.envs import Array, State

N = 4  # objects


class Objects(State):
    table: Array[float, N, 3]  # x, y and colour of each, in [-1, 1)


def reset(state, rng, params):
    for i in range(N):
        for k in range(3):
            state.table[i, k] = 2.0 * rng.uniform(3 * i + k) - 1.0


def step(state, action, params):
    nearest, colour = 9.0, 0.0
    for i in range(N):
        distance = state.table[i, 0] ** 2 + state.table[i, 1] ** 2
        if distance < nearest:
            nearest, colour = distance, state.table[i, 2]
    return 1.0 if action == math.floor(2.0 * (colour + 1.0)) else 0.0, True


def observe(state, params, out):
    out[:] = state.table


task = {"state": Objects, "step": step, "reset": reset, "observe": observe}
spaces = {"observation_space": Box(-1.0, 1.0, (N, 3)), "action_space": Discrete(4)}
rlcpu.register(rlcpu.Dynamics(id="Nearest-v0", **task, **spaces))


def dot(u, v):
    total = 0.0
    for c in range(u.size):
        total += u[c] * v[c]
    return total


def add(u, factor, v):
    for c in range(u.size):
        u[c] += factor * v[c]


def attend(x, i, a):
    """Write a[i] to `a`, from x (N, 3, m): q, k and v of each object."""
    for j in range(N):
        a[j] = dot(x[i, 0], x[j, 1]) / math.sqrt(x.shape[2])
    top = a.max()
    for j in range(N):
        a[j] = math.exp(a[j] - top)
    a /= a.sum()


class Attention(nn.CustomLayer):
    def output_size(self, inputs):
        return inputs // 3

    def forward(x, parameters, y):
        m = y.size // N
        x, y, a = x.reshape(N, 3, m), y.reshape(N, m), np.empty(N, x.dtype)
        y[:] = 0.0
        for i in range(N):
            attend(x, i, a)
            for j in range(N):
                add(y[i], a[j], x[j, 2])

    def by_inputs(x, parameters, slopes, out):
        m = slopes.size // N
        x, slopes, out = x.reshape(N, 3, m), slopes.reshape(N, m), out.reshape(N, 3, m)
        a, by_a = np.empty(N, x.dtype), np.empty(N, x.dtype)
        for i in range(N):
            attend(x, i, a)
            for j in range(N):
                by_a[j] = dot(slopes[i], x[j, 2])
                add(out[j, 2], a[j], slopes[i])
            by_score = a * (by_a - dot(a, by_a)) / math.sqrt(m)
            for j in range(N):
                add(out[i, 0], by_score[j], x[j, 1])
                add(out[j, 1], by_score[j], x[i, 0])


def layers(space):
    each = nn.Image(1, N, 3) >> nn.Convolution(32, 1) >> nn.Relu() >> nn.Convolution(48, 1)
    return each >> Attention() >> nn.Dense(64) >> nn.Relu()


if __name__ == "__main__":
    for settings in ({"network": layers}, {"hidden": (64, 72)}):  # of about the same size
        agent = rlcpu.train.PPO("Nearest-v0", seed=0, **settings)
        agent.learn(40_000, progress=True)
        print(f"right: {agent.evaluate(1000, seed=1).mean():.3f}")
