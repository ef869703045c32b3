"""The reinforcement-learning data path at the speed of the machine, from plain Python."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rlcpu.envs import Dynamics, VectorEnv, make_vec, register, registered
from rlcpu.envs.registration import register_built_in as _register_built_in

if TYPE_CHECKING:
    from rlcpu import replay, scan, train
    from rlcpu.envs import policies
    from rlcpu.envs.collect import Rollout, Statistics, collect, simulate

__version__ = "0.1.0"
__all__ = [
    "Dynamics",
    "Rollout",
    "Statistics",
    "VectorEnv",
    "collect",
    "make_vec",
    "policies",
    "register",
    "registered",
    "replay",
    "scan",
    "simulate",
    "train",
]

#: Modules, and names in modules, that are imported at first use: `import rlcpu` stays as quick as
#: importing numba and gymnasium.
_LAZY = {
    "Rollout": "rlcpu.envs.collect",
    "Statistics": "rlcpu.envs.collect",
    "collect": "rlcpu.envs.collect",
    "simulate": "rlcpu.envs.collect",
    "policies": "rlcpu.envs.policies",
    "replay": "rlcpu.replay",
    "scan": "rlcpu.scan",
    "train": "rlcpu.train",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'rlcpu' has no attribute {name!r}")
    module = importlib.import_module(_LAZY[name])
    value = module if name in ("policies", "replay", "scan", "train") else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


_register_built_in()
