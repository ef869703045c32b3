"""Networks that are learnt, losses of a few lines, and the learner that runs both in kernels."""

from rlcpu.nn.adam import Adam
from rlcpu.nn.duals import Dual, slopes
from rlcpu.nn.heads import Head, categorical, gaussian, of_action, outputs
from rlcpu.nn.learner import Learner
from rlcpu.nn.losses import Loss
from rlcpu.nn.network import Network
from rlcpu.nn.ones import Ones

__all__ = [
    "Adam",
    "Dual",
    "Head",
    "Learner",
    "Loss",
    "Network",
    "Ones",
    "categorical",
    "gaussian",
    "of_action",
    "outputs",
    "slopes",
]


def __dir__() -> list[str]:
    return __all__
