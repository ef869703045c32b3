"""Engines: classes that step N environments.

Read `base` (the contract), `lane` (one environment of numbers) and `lanes` (blocks of them), then
`episode` (what ends and is counted), `steps` and `drivers`, the kernels and their loops;
`array_lane` and `array_engine` are the same for states with arrays. `structure` decides which
environments share kernels, `observations` and `masks` are what users see, `faults` and `vectorised`
what they are told.
"""

from collections.abc import Callable
from typing import Any

#: By the class of an environment's `Dynamics`: a function of it that imports and returns the class
#: of its engine. Each kind of environment enters its own.
engines: dict[type, Callable[[Any], Any]] = {}


def engine_of(dynamics: Any) -> Any:
    """Return the class of the engine that steps an environment on the CPU."""
    classes = type(dynamics).__mro__
    import_engine = next(engines[each] for each in classes if each in engines)
    return import_engine(dynamics)
