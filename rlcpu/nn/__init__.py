"""Networks that are learnt, and algorithms in plain Python, which one learner runs in kernels.

Read `layers`, `network` (a graph of them), `tape` (an algorithm of networks) and `learning` (what
runs it). `duals` are derivatives of scalar functions, `export` writes networks to files.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlcpu.nn.duals.numbers import Dual, slopes
    from rlcpu.nn.layers import (
        Activation,
        Concatenate,
        Convolution,
        CustomLayer,
        Dense,
        Dueling,
        Elu,
        Embedding,
        Graph,
        Gru,
        Image,
        Input,
        LayerNorm,
        Lstm,
        MaxPool,
        Means,
        MinGru,
        Ones,
        Parts,
        Planes,
        Relu,
        Residual,
        Silu,
        Sum,
        Tanh,
    )
    from rlcpu.nn.learning.adam import Adam
    from rlcpu.nn.learning.learner import Learner, Update
    from rlcpu.nn.network.graph import Network
    from rlcpu.nn.tape.operations import (
        ahead,
        argmax,
        categorical,
        categoricals,
        each,
        entropy,
        gaussian,
        hold,
        log_softmax,
        max,
        mean,
        normal,
        pairs,
        sort,
        standardise,
        sum,
        take,
        uniform,
    )

__all__ = [
    "Activation",
    "Adam",
    "Concatenate",
    "Convolution",
    "CustomLayer",
    "Dense",
    "Dual",
    "Dueling",
    "Elu",
    "Embedding",
    "Graph",
    "Gru",
    "Image",
    "Input",
    "LayerNorm",
    "Learner",
    "Lstm",
    "MaxPool",
    "Means",
    "MinGru",
    "Network",
    "Ones",
    "Parts",
    "Planes",
    "Relu",
    "Residual",
    "Silu",
    "Sum",
    "Tanh",
    "Update",
    "ahead",
    "argmax",
    "categorical",
    "categoricals",
    "each",
    "entropy",
    "gaussian",
    "hold",
    "log_softmax",
    "max",
    "mean",
    "normal",
    "pairs",
    "slopes",
    "sort",
    "standardise",
    "sum",
    "take",
    "uniform",
]

#: Names by their module, imported at first use: environments need few of them.
_MODULES = {
    "learning.adam": "Adam",
    "duals.numbers": "Dual slopes",
    "layers": "Activation Concatenate Convolution CustomLayer Dense Dueling Elu Embedding Graph "
    "Gru Image Input LayerNorm Lstm MaxPool Means MinGru Ones Parts Planes Relu Residual Silu Sum "
    "Tanh",
    "learning.learner": "Learner Update",
    "network.graph": "Network",
    "tape.operations": "ahead argmax categorical categoricals each entropy gaussian hold "
    "log_softmax max mean normal pairs sort standardise sum take uniform",
}


if not TYPE_CHECKING:  # type checkers shall find names that there are not

    def __getattr__(name):
        for module, names in _MODULES.items():
            if name in names.split():
                value = getattr(importlib.import_module(f"rlcpu.nn.{module}"), name)
                globals()[name] = value
                return value
        refusals = importlib.import_module("rlcpu.nn.tape.refusals")
        hint = "" if name.startswith("_") else refusals.hint_of(name)
        instead = f": expected {hint}" if hint else ""
        raise AttributeError(f"module 'rlcpu.nn' has no attribute {name!r}{instead}")


def __dir__() -> list[str]:
    return __all__
