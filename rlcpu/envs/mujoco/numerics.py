"""NumPy's arithmetic in its order, and noise: scalar functions that Gymnasium's tasks share.

They are plain Python over arrays that are sliced as in NumPy. The order of NumPy's sums matters: in
float64 observations and rewards shall be the same bits as Gymnasium's. `uniforms` are random
numbers in [0, 1); each function that takes some from `first` on says how many.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

single = np.float32


def clip(x: float, low: float, high: float) -> float:
    """Return the number within bounds that is closest to x."""
    return min(max(x, low), high)


def put(observation: Any, begin: int, numbers: Any) -> int:
    """Write an array of numbers from index `begin` on, and return the index after them.

    A loop compiles in a fifth of the time of `observation[begin:end] = numbers`.
    """
    for k in range(numbers.size):
        observation[begin + k] = numbers[k]
    return begin + numbers.size


def put_clipped(observation: Any, begin: int, numbers: Any, low: float, high: float) -> int:
    """Write numbers, clipped, from index `begin` on, and return the index after them."""
    for k in range(numbers.size):
        observation[begin + k] = clip(numbers[k], low, high)
    return begin + numbers.size


def put_rows(observation: Any, begin: int, rows: Any) -> int:
    """Write all rows of a matrix but the first, which is the world's; return the next index."""
    for row in range(1, rows.shape[0]):
        begin = put(observation, begin, rows[row])
    return begin


# ---------------------------------------------------------------- sums as NumPy's


def sum_of_few(x: Any) -> float:
    """Return np.sum(x) of at most 128 numbers, in NumPy's order.

    NumPy adds every eighth number, in eight sums, and the rest one by one.
    """
    full = x.size - x.size % 8
    a = b = c = d = e = f = g = h = 0.0
    for k in range(0, full, 8):
        a += x[k]
        b += x[k + 1]
        c += x[k + 2]
        d += x[k + 3]
        e += x[k + 4]
        f += x[k + 5]
        g += x[k + 6]
        h += x[k + 7]
    total = ((a + b) + (c + d)) + ((e + f) + (g + h))
    for k in range(full, x.size):
        total += x[k]
    return total


def sum_of_part(x: Any, begin: int, size: int, low: Any, high: Any, zero: Any) -> Any:
    """Return np.sum(np.square(np.clip(part, low, high))), in NumPy's order, of a part of x.

    The part has at most 128 numbers: `size` from `begin` on. Bounds and `zero` are of the dtype of
    x, in which the sum stays.
    """
    end = begin + size
    full = end - size % 8
    a = b = c = d = e = f = g = h = zero
    for k in range(begin, full, 8):
        a += clip(x[k], low, high) * clip(x[k], low, high)
        b += clip(x[k + 1], low, high) * clip(x[k + 1], low, high)
        c += clip(x[k + 2], low, high) * clip(x[k + 2], low, high)
        d += clip(x[k + 3], low, high) * clip(x[k + 3], low, high)
        e += clip(x[k + 4], low, high) * clip(x[k + 4], low, high)
        f += clip(x[k + 5], low, high) * clip(x[k + 5], low, high)
        g += clip(x[k + 6], low, high) * clip(x[k + 6], low, high)
        h += clip(x[k + 7], low, high) * clip(x[k + 7], low, high)
    total = ((a + b) + (c + d)) + ((e + f) + (g + h))
    for k in range(full, end):
        total += clip(x[k], low, high) * clip(x[k], low, high)
    return total


def sum_of_squares(x: Any, low: float, high: float) -> float:
    """Return np.sum(np.square(np.clip(x, low, high))), in NumPy's order for at most 256 numbers.

    NumPy halves what is longer than 128, at a multiple of eight.
    """
    if x.size <= 128:
        return sum_of_part(x, 0, x.size, low, high, 0.0)
    half = x.size // 2 - x.size // 2 % 8
    left = sum_of_part(x, 0, half, low, high, 0.0)
    return left + sum_of_part(x, half, x.size - half, low, high, 0.0)


def control_cost(action: Any, weight: float) -> float:
    """Return weight * np.sum(np.square(action)) as NumPy computes it of float32: in float32."""
    low, high, zero = single(-math.inf), single(math.inf), single(0)
    return float(single(weight) * sum_of_part(action, 0, action.size, low, high, zero))


def distance(a: Any, b: Any) -> float:
    """Return np.linalg.norm(a - b) of three numbers, but for the last bit, which BLAS decides."""
    x, y, z = a[0] - b[0], a[1] - b[1], a[2] - b[2]
    return math.sqrt(x * x + y * y + z * z)


# ---------------------------------------------------------------- noise


def normal(u: float, v: float) -> float:
    """Return a standard normal number of two uniform ones in [0, 1) (Box and Muller 1958)."""
    return math.sqrt(-2.0 * math.log(1.0 - u)) * math.cos(2.0 * math.pi * v)


def between(u: float, low: float, high: float) -> float:
    """Return a number in [low, high), made of a uniform number u in [0, 1)."""
    return low + (high - low) * u


def add_uniform(target: Any, uniforms: Any, first: int, scale: float) -> int:
    """Add a number from [-scale, scale) to each number of `target`.

    It takes as many uniforms as `target` has numbers, and returns the index of the next one.
    """
    for k in range(target.size):
        target[k] += between(uniforms[first + k], -scale, scale)
    return first + target.size


def add_normal(target: Any, uniforms: Any, first: int, scale: float) -> None:
    """Add a normal number of deviation `scale`, of two uniforms, to each number of `target`."""
    for k in range(target.size):
        target[k] += scale * normal(uniforms[first + 2 * k], uniforms[first + 2 * k + 1])


def reset_with_normal_velocities(data: Any, uniforms: Any, params: Any) -> None:
    """Add uniform noise to the default positions, and normal noise to the velocities."""
    first = add_uniform(data.qpos, uniforms, 0, params.reset_noise_scale)
    add_normal(data.qvel, uniforms, first, params.reset_noise_scale)


def draws_with_normal_velocities(model: Any, params: Any) -> int:
    """Return how many uniforms `reset_with_normal_velocities` takes."""
    return int(model.nq + 2 * model.nv)


def reset_uniformly(data: Any, uniforms: Any, params: Any) -> None:
    """Add uniform noise to the default positions and velocities."""
    first = add_uniform(data.qpos, uniforms, 0, params.reset_noise_scale)
    add_uniform(data.qvel, uniforms, first, params.reset_noise_scale)


def num_coordinates(model: Any, params: Any) -> int:
    """Return how many positions and velocities a model has: the uniforms of `reset_uniformly`."""
    return int(model.nq + model.nv)
