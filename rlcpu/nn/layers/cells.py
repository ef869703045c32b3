"""Recurrent cells of one unit, in plain Python, and their derivatives.

A cell computes a unit's next memory h' (an LSTM's: h' and c') from its memory h (and c) and from
pre-activations of its gates: x_z is gate z's product of weights and inputs, p_z that of weights and
memory. `<cell>_back` is the chain rule: from the gates that the cell returned and `slope`, the
derivative of the loss with respect to h', it computes those with respect to the cell's arguments.
"""

from __future__ import annotations

import math


def sigmoid(x: float) -> float:
    """Return 1 / (1 + exp(-x))."""
    return 1.0 / (1.0 + math.exp(-x))


def min_gru(x_z: float, x_h: float, h: float) -> tuple[float, float]:
    """Return the update gate and the memory of a minimal gated unit.

        z = sigmoid(x_z)
        h' = (1 - z) * h + z * x_h

    Source: Feng et al. 2024, "Were RNNs all we needed?", section 3.1.1.
    """
    z = sigmoid(x_z)
    return z, h + z * (x_h - h)


def min_gru_back(z: float, x_h: float, h: float, slope: float) -> tuple[float, float, float]:
    """Return the derivatives with respect to x_z, x_h and h."""
    return slope * (x_h - h) * z * (1.0 - z), slope * z, slope * (1.0 - z)


def gru(
    x_r: float, x_z: float, x_n: float, p_r: float, p_z: float, p_n: float, h: float
) -> tuple[float, float, float, float]:
    """Return gates r and z, the candidate n, and the memory of a gated recurrent unit.

        r, z = sigmoid(x_r + p_r), sigmoid(x_z + p_z)
        n = tanh(x_n + r * p_n)
        h' = (1 - z) * n + z * h

    Source: Cho et al. 2014, "Learning phrase representations using RNN encoder-decoder", in
    PyTorch's form.
    """
    r, z = sigmoid(x_r + p_r), sigmoid(x_z + p_z)
    n = math.tanh(x_n + r * p_n)
    return r, z, n, n + z * (h - n)


def gru_back(
    r: float, z: float, n: float, p_n: float, h: float, slope: float
) -> tuple[float, float, float, float, float]:
    """Return the derivatives with respect to x_r, x_z, x_n, p_n and h.

    Those with respect to p_r and p_z are those of x_r and x_z. The derivative with respect to h
    takes p_r, p_z and p_n as constants: the caller adds what comes through them.
    """
    by_n = slope * (1.0 - z) * (1.0 - n * n)
    by_z = slope * (h - n) * z * (1.0 - z)
    return by_n * p_n * r * (1.0 - r), by_z, by_n, by_n * r, slope * z


def lstm(
    x_i: float, x_f: float, x_g: float, x_o: float, c: float
) -> tuple[float, float, float, float, float, float]:
    """Return gates i, f, g and o, and the memory h and c of long short-term memory.

        i, f, o = sigmoid(x_i), sigmoid(x_f), sigmoid(x_o)
        c' = f * c + i * tanh(x_g)
        h' = o * tanh(c')

    Here x_i and the others are sums of the products of the inputs and of h. Source: Hochreiter &
    Schmidhuber 1997, "Long short-term memory", with the forget gate of Gers et al. 2000.
    """
    i, f, g, o = sigmoid(x_i), sigmoid(x_f), math.tanh(x_g), sigmoid(x_o)
    c_next = f * c + i * g
    return i, f, g, o, o * math.tanh(c_next), c_next


def lstm_back(
    i: float, f: float, g: float, o: float, c: float, slope: float, slope_c: float
) -> tuple[float, float, float, float, float]:
    """Return the derivatives with respect to x_i, x_f, x_g, x_o and c.

    `slope` and `slope_c` are those with respect to h' and c'; c' reaches the loss through h' too.
    """
    tanh_c = math.tanh(f * c + i * g)
    by_c_next = slope_c + slope * o * (1.0 - tanh_c * tanh_c)
    return (
        by_c_next * g * i * (1.0 - i),
        by_c_next * c * f * (1.0 - f),
        by_c_next * i * (1.0 - g * g),
        slope * tanh_c * o * (1.0 - o),
        by_c_next * f,
    )
