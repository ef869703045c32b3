"""Networks of layers: what users write, and what they are told."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from rlcpu import nn


def test_short_form_is_a_graph() -> None:
    """Weights are drawn alike, and parameters lie in the same order."""
    short = nn.Network((3, 20, 9, 2), "relu", layer_norm=True, seed=7)
    graph = nn.Dense(20) >> nn.LayerNorm() >> nn.Relu()
    graph = graph >> nn.Dense(9) >> nn.LayerNorm() >> nn.Relu() >> nn.Dense(2)
    network = nn.Network(3, graph, seed=7)
    np.testing.assert_array_equal(network.parameters, short.parameters)
    inputs = np.random.default_rng(0).normal(size=(5, 3))
    np.testing.assert_array_equal(network.outputs(inputs), short.outputs(inputs))
    assert network.plan.units == short.plan.units
    assert (network.input_sizes, network.output_sizes) == ({"input": 3}, {"output": 2})


def test_arrays_are_parts_of_the_parameters() -> None:
    network = nn.Network(3, nn.Dense(4) >> nn.LayerNorm() >> nn.Dense(2, gain=0.01))
    arrays = network.arrays()
    assert {name: array.shape for name, array in arrays.items()} == {
        "dense0.weights": (3, 4),
        "dense0.biases": (4,),
        "layer_norm0.gains": (4,),
        "layer_norm0.shifts": (4,),
        "dense1.weights": (4, 2),
        "dense1.biases": (2,),
    }
    assert np.allclose(np.linalg.norm(arrays["dense0.weights"], axis=1), np.sqrt(2.0))
    assert np.allclose(np.linalg.norm(arrays["dense1.weights"], axis=0), 0.01)
    arrays["dense1.biases"][:] = 5.0
    assert (network.parameters[-2:] == 5.0).all()


def test_outputs_share_layers() -> None:
    trunk = nn.Dense(8) >> nn.Tanh()
    network = nn.Network(3, {"a": trunk >> nn.Dense(1), "b": trunk >> nn.Dense(1)})
    assert network.parameters.size == 4 * 8 + 2 * 9
    other = pickle.loads(pickle.dumps(network))
    inputs = np.ones((2, 3))
    for name, outputs in network.outputs(inputs).items():
        np.testing.assert_array_equal(other.outputs(inputs)[name], outputs)


def test_numbers_that_are_no_choices_count_as_the_first() -> None:
    network = nn.Network(1, nn.Embedding(4, choices=3) >> nn.Dense(2))
    outputs = network.outputs([[0.0], [-1.0], [3.0], [np.nan], [1e30], [2.9], [2.0]])
    assert (outputs[1:5] == outputs[0]).all()
    assert (outputs[5] == outputs[6]).all()
    assert (outputs[6] != outputs[0]).any()


DENSE = nn.Dense(4)
BOTH = {"a": 3, "b": 4}


@pytest.mark.parametrize(
    ("inputs", "graph", "error", "message"),
    [
        (3, nn.Residual(nn.Dense(4)), ValueError, r"Residual\(Dense\(4\)\) adds 4 and 3 numbers"),
        (BOTH, nn.Sum(nn.Input("a"), nn.Input("b")), ValueError, r"Sum\(.*\) adds 3 and 4 numbers"),
        (BOTH, nn.Input("c") >> nn.Dense(1), ValueError, r"Input\('c'\): .* has the inputs a, b"),
        (BOTH, nn.Input("a") >> nn.Dense(1), ValueError, "no layer reads the input 'b'"),
        (BOTH, nn.Dense(4), ValueError, r"Dense\(4\) has nothing in front .* nn.Input\('a'\) or"),
        (BOTH, nn.Residual(nn.Input("a")), ValueError, "has nothing in front of it"),
        (
            BOTH,
            nn.Input("a") >> nn.Dense(4) >> nn.Input("b"),
            ValueError,
            r"Input\('b'\) stands behind a layer",
        ),
        (
            BOTH,
            nn.Concatenate(nn.Input("a") >> DENSE, nn.Input("b") >> DENSE),
            ValueError,
            r"Dense\(4\) stands in two places",
        ),
        (3, {}, ValueError, "the network has no output"),
        ({}, nn.Dense(2), ValueError, "the network has no input"),
        (0, nn.Dense(2), ValueError, "size of the input 'input'=0"),
        (3, 7, TypeError, "7: expected layers, such as"),
        (3, nn.Dense, TypeError, "expected layers, such as"),
        ((3,), "tanh", ValueError, r"sizes=\[3\]: expected an input and an output"),
        ((3, 2), "gelu", ValueError, "activation='gelu': expected"),
        (3, "relu", TypeError, "sizes=3: expected sizes of layers"),
    ],
)
def test_layers_that_do_not_fit(inputs: Any, graph: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        nn.Network(inputs, graph)


def test_bad_layers() -> None:
    with pytest.raises(ValueError, match="size=0"):
        nn.Dense(0)
    with pytest.raises(ValueError, match="choices=-1"):
        nn.Embedding(4, choices=-1)
    with pytest.raises(TypeError, match=r"Dense\(4\) >> 3: expected a layer behind >>"):
        nn.Dense(4) >> 3  # type: ignore[operator]
    with pytest.raises(TypeError, match=r"Concatenate\('a'\): expected layers"):
        nn.Concatenate("a")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"Sum\(\): expected a layer at least"):
        nn.Sum()


def test_parameters_of_another_network() -> None:
    other = nn.Network(4, nn.Dense(2)).parameters
    with pytest.raises(ValueError, match=r"parameters have shape \(10,\): expected \(8,\)"):
        nn.Network(3, nn.Dense(2), parameters=other)
    with pytest.raises(TypeError, match="parameters are int64: expected float32 or float64"):
        nn.Network(3, nn.Dense(2), parameters=np.zeros(8, np.int64))
    with pytest.raises(ValueError, match=r"layer_norm=True: expected nn.LayerNorm\(\)"):
        nn.Network(3, nn.Dense(2), layer_norm=True)


def test_inputs_by_other_names() -> None:
    joined = nn.Concatenate(nn.Input("a"), nn.Input("b"))
    network = nn.Network(BOTH, {"x": joined >> nn.Dense(2)})
    a, b = np.zeros((5, 3)), np.zeros((5, 4))
    with pytest.raises(TypeError, match="inputs are of ndarray: expected a dictionary of a, b"):
        network.outputs(a)
    with pytest.raises(ValueError, match="inputs of a, c: expected a, b"):
        network.outputs({"a": a, "c": b})
    with pytest.raises(ValueError, match=r"inputs\['b'\] have shape \(5, 3\): expected \(n, 4\)"):
        network.outputs({"a": a, "b": a})
    with pytest.raises(ValueError, match=r"inputs\['b'\] have 4 rows: expected 5"):
        network.outputs({"a": a, "b": b[:4]})
    with pytest.raises(ValueError, match=r"slopes\['x'\] have shape \(5, 1\): expected \(n, 2\)"):
        network.gradients({"a": a, "b": b}, {"x": np.zeros((5, 1))})


def seen_layers() -> Any:
    """Layers of three inputs, one of which two layers read."""
    picture = nn.Input("picture") >> nn.Planes(2, 4, 5) >> nn.Convolution(3, 2) >> nn.Relu()
    numbers = nn.Concatenate(nn.Input("near") >> nn.Dense(4) >> nn.Tanh(), nn.Input("near"))
    return nn.Concatenate(picture, numbers, nn.Input("far")) >> nn.Dense(2)


def test_parts_are_inputs() -> None:
    """What `Parts` cuts out of one input is what a network of as many inputs is given."""
    sizes = {"far": 17, "near": 3, "picture": 40}
    parts = nn.Network(60, nn.Parts(sizes, seen_layers()), seed=3)
    named = nn.Network(sizes, seen_layers(), seed=3)
    np.testing.assert_array_equal(parts.parameters, named.parameters)
    rng = np.random.default_rng(0)
    rows, slopes = rng.normal(size=(6, 60)), rng.normal(size=(6, 2))
    cut = dict(zip(sizes, np.split(rows, [17, 20], axis=1), strict=True))
    np.testing.assert_array_equal(parts.outputs(rows), named.outputs(cut))
    by_parameters, by_inputs = parts.gradients(rows, slopes)
    others, by_named = named.gradients(cut, slopes)
    np.testing.assert_array_equal(by_parameters, others)
    np.testing.assert_array_equal(by_inputs, np.concatenate([*by_named.values()], axis=1))


def test_parts_and_the_whole_are_read_together() -> None:
    """A layer without an input in front of it reads all numbers; derivatives add up."""
    layers = nn.Sum(nn.Dense(2), nn.Input("b") >> nn.Dense(2))
    network = nn.Network(5, nn.Parts({"a": 3, "b": 2}, layers), seed=1)
    arrays = network.arrays()
    whole, part = arrays["dense0.weights"], arrays["dense1.weights"]
    rows, slopes = np.random.default_rng(1).normal(size=(2, 4, 5))[..., :5], np.ones((4, 2))
    outputs = rows[0] @ whole + rows[0][:, 3:] @ part
    np.testing.assert_allclose(network.outputs(rows[0]), outputs, rtol=1e-5, atol=1e-6)
    by_inputs = slopes @ whole.T
    by_inputs[:, 3:] += slopes @ part.T
    np.testing.assert_allclose(
        network.gradients(rows[0], slopes)[1], by_inputs, rtol=1e-5, atol=1e-6
    )


def test_parts_that_do_not_fit() -> None:
    sizes = {"a": 3, "b": 2}
    for size, layers, text in (
        (6, nn.Input("a") >> nn.Dense(2), "has 5 numbers: what stands in front has 6"),
        (5, nn.Input("a") >> nn.Dense(2), r"no layer reads the part 'b': nn.Input\('b'\)"),
        (5, nn.Input("c") >> nn.Dense(2), "the network has the inputs a, b"),
    ):
        with pytest.raises(ValueError, match=text):
            nn.Network(size, nn.Parts(sizes, layers))
