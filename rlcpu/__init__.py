"""Write a Gymnasium environment in plain Python, train it in seconds on a CPU."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import types
from typing import TYPE_CHECKING

from rlcpu import _settings  # noqa: F401 (it comes before whatever imports numba)
from rlcpu.envs.registration import make_vec, register, registered
from rlcpu.envs.registration import register_built_in as _register_built_in
from rlcpu.translation import ANSWERS

if TYPE_CHECKING:
    from rlcpu import envs, experiments, nn, policies, replay, scan, train
    from rlcpu.envs import Dynamics, VectorEnv
    from rlcpu.envs.rollout.collect import Rollout, Statistics, collect, simulate

__version__ = "0.1.0"
__all__ = [
    "Dynamics",
    "Rollout",
    "Statistics",
    "VectorEnv",
    "collect",
    "envs",
    "experiments",
    "make_vec",
    "nn",
    "policies",
    "register",
    "registered",
    "replay",
    "scan",
    "simulate",
    "train",
]

#: Imported at first use: `import rlcpu` takes gymnasium alone, and what knows the environments.
_MODULES = ("experiments", "nn", "policies", "replay", "scan", "train")
_FROM_ENVS = ("Dynamics", "VectorEnv")
_FROM_COLLECT = ("Rollout", "Statistics", "collect", "simulate")


if not TYPE_CHECKING:  # type checkers shall find names that there are not

    def __getattr__(name):
        if name in _MODULES:
            return _load(name)
        if name in _FROM_ENVS:
            from rlcpu import envs as module
        elif name in _FROM_COLLECT:
            from rlcpu.envs.rollout import collect as module
        else:
            raise AttributeError(f"module 'rlcpu' has no attribute {name!r}{_hint(name)}")
        globals()[name] = getattr(module, name)
        return globals()[name]


def _load(name: str) -> types.ModuleType:
    """Return a module of this package, imported at its first use."""
    return importlib.import_module(f"{__name__}.{name}")


def _hint(name: str) -> str:
    """Return what to write for a name of another library, or the public name most like it."""
    # Nobody types the first; Python looks for the second, which it imports then.
    if name.startswith("_") or importlib.util.find_spec(f"{__name__}.{name}"):
        return ""
    if name in ANSWERS:
        return f": {ANSWERS[name]}"
    places = dict.fromkeys(__all__, "rlcpu")
    for module in ("envs", *_MODULES):
        for each in _load(module).__all__:
            places.setdefault(each, f"rlcpu.{module}")
    # One of this package is nearer than what looks a little more alike elsewhere.
    near = difflib.get_close_matches(name, __all__, n=1) or difflib.get_close_matches(
        name, places, n=1
    )
    return f": did you mean {places[near[0]]}.{near[0]}?" if near else ""


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


_register_built_in()
