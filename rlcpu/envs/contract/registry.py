"""Environments by id: families list theirs, and make one when somebody looks it up."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class Limits(NamedTuple):
    """Limits of an environment, which Gymnasium asks for before it is made; None for none."""

    max_episode_steps: int | None = None  # steps after which an episode is truncated
    reward_threshold: float | None = None  # mean return from which a task counts as solved


class Family(NamedTuple):
    """Environments of one origin."""

    limits: Mapping[str, Limits]  # of each environment, by its id
    make: Callable[[str], Any]  # (id) -> the environment's `Dynamics`; imports its module
    package: str = ""  # that has to be installed; "" for none


#: The families of this library by the ids of their environments.
families: dict[str, Family] = {}
#: Every `Dynamics` that was made or registered, by its id.
made: dict[str, Any] = {}


def add_family(family: Family) -> Family:
    """Make the environments of a family known by their ids, and return the family."""
    families.update(dict.fromkeys(family.limits, family))
    return family


def add_modules(folder: str, modules: Mapping[str, Mapping[str, Limits]]) -> Family:
    """Add the environments that the modules of a package have, and return them as a family.

    A module of the package `folder` is imported when one of its environments is looked up;
    `modules` has the limits of each module's environments, by their ids.
    """
    module_names = {id: f"{folder}.{name}" for name, limits in modules.items() for id in limits}

    def make(id: str) -> Any:
        """Import the module of an environment, and return its `Dynamics`.

        The module has it as one of its globals, or in one that is a tuple or list of several.
        """
        for value in vars(importlib.import_module(module_names[id])).values():
            for each in value if isinstance(value, tuple | list) else (value,):
                if getattr(each, "id", None) == id:
                    return each
        raise AssertionError(f"{module_names[id]} has no environment {id}")

    limits = {id: limit for each in modules.values() for id, limit in each.items()}
    return add_family(Family(limits, make))


def lookup(id: str) -> Any:
    """Return the `Dynamics` of an id, made now if it was not before; None if there is none.

    Raises ImportError if it needs a package that is not installed.
    """
    if id not in made and id in families:
        made[id] = families[id].make(id)
    return made.get(id)


def all_ids() -> list[str]:
    """Return the ids of all environments of this library and its users."""
    return list(dict.fromkeys((*families, *made)))


def installed_ids() -> list[str]:
    """Return those of `all_ids` whose packages are installed."""
    packages = {family.package for family in families.values() if family.package}
    missing = {name for name in packages if importlib.util.find_spec(name) is None}
    return [id for id in all_ids() if id not in families or families[id].package not in missing]
