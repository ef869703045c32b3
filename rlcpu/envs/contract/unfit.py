"""Policies whose numbers are not finite: which they are, said in an error."""

from __future__ import annotations

import itertools
from typing import Any, NoReturn

import numpy as np

#: Names of arrays of finite numbers that a user may change; the first two are parameters of
#: networks.
ARRAYS = ("parameters", "value_parameters", "log_std", "observation_mean", "observation_scale")


def refuse_policy(policy: Any, what: str) -> NoReturn:
    """Raise FloatingPointError for a policy that returned `what`, and name the cause."""
    cause = describe_fault(policy)
    if not cause and hasattr(policy, "sizes"):
        cause = "the network overflows, its parameters are finite"
    raise FloatingPointError(
        f"{type(policy).__name__} returned {what}: {cause or 'expected finite numbers'}"
    )


def describe_fault(policy: Any) -> str:
    """Return a description of the first number of a policy's arrays that is not finite, or ""."""
    for name in ARRAYS:
        array = np.asarray(getattr(policy, name, 0.0))
        places = np.flatnonzero(~np.isfinite(array))
        if places.size:
            first, sizes = int(places[0]), getattr(policy, _SIZES.get(name, ""), ())
            return (
                f"policy.{name}[{first}] is {array.flat[first]}{_describe_layer(sizes, first)}, "
                f"{places.size} of {array.size} numbers are not finite"
            )
    return ""


_SIZES = {"parameters": "sizes", "value_parameters": "value_sizes"}


def _describe_layer(sizes: Any, index: int) -> str:
    """Return the layer that has a flat parameter of an `MLP`, as " (a weight of layer 0)".

    The sizes are those of the layers; () for other networks.
    """
    begin = 0
    for layer, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        if index < begin + inputs * outputs:
            return f" (a weight of layer {layer})"
        begin += (inputs + 1) * outputs
        if index < begin:
            return f" (a bias of layer {layer})"
    return ""
