"""Networks that are learnt, and algorithms in plain Python, which one learner runs in kernels."""

from rlcpu.nn import dual_types as dual_types
from rlcpu.nn.adam import Adam
from rlcpu.nn.distributions import categorical, categoricals, gaussian
from rlcpu.nn.duals import Dual, slopes
from rlcpu.nn.layers import (
    Concatenate,
    Dense,
    Elu,
    Embedding,
    Graph,
    Input,
    LayerNorm,
    Ones,
    Relu,
    Residual,
    Silu,
    Sum,
    Tanh,
)
from rlcpu.nn.learner import Learner, Update
from rlcpu.nn.network import Network
from rlcpu.nn.operations import (
    argmax,
    each,
    entropy,
    hold,
    log_softmax,
    max,
    mean,
    normal,
    standardise,
    sum,
    take,
    uniform,
)

__all__ = [
    "Adam",
    "Concatenate",
    "Dense",
    "Dual",
    "Elu",
    "Embedding",
    "Graph",
    "Input",
    "LayerNorm",
    "Learner",
    "Network",
    "Ones",
    "Relu",
    "Residual",
    "Silu",
    "Sum",
    "Tanh",
    "Update",
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
    "slopes",
    "standardise",
    "sum",
    "take",
    "uniform",
]


def __dir__() -> list[str]:
    return __all__
