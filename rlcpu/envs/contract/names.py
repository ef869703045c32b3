"""Environments as users name them: by ids of ours, by Gymnasium's, or nearly right."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import gymnasium

from rlcpu.envs.contract import registry

if TYPE_CHECKING:
    from rlcpu.envs.contract.dynamics import Dynamics

#: (id) -> `Dynamics` of an environment that is Gymnasium's. `rlcpu.envs.registration` enters it,
#: which lies above all kinds of environments.
find_foreign: Callable[[str], Any] = NotImplemented


def find(environment: str | Dynamics) -> Dynamics:
    """Return the environment of an id, with or without the prefix "rlcpu/".

    If there is none here, it is Gymnasium's of that id, which is stepped in Python; "module:id"
    imports the module first. Other versions of ours are not looked up there: "CartPole-v0" is a
    mistake more often than a wish.

    Raises:
        TypeError: `environment` is neither an id nor a `Dynamics`; or Gymnasium's has other spaces
            than `rlcpu.envs.GymnasiumEnv` takes.
        ValueError: no environment has the id; the message lists the known ones.
        ImportError: it is one of MuJoCo's, which is not installed.
    """
    from rlcpu.envs.contract.dynamics import Dynamics

    if isinstance(environment, Dynamics):
        return environment
    if not isinstance(environment, str):
        raise TypeError(f"environment={environment!r}: expected an id or a Dynamics")
    name = environment.removeprefix("rlcpu/")
    known: Dynamics | None = registry.lookup(name)
    if known is not None:
        return known
    if is_of_gymnasium(environment):
        foreign: Dynamics = find_foreign(environment)
        return foreign
    near = nearest_id(name)
    hint = f"did you mean {near!r}? " if near else ""
    if is_atari(name):
        hint = f"with the package ale-py it is {ATARI!r} and the like; "
    known_ids = ", ".join(registry.all_ids())
    raise ValueError(f"environment={environment!r} is unknown: {hint}known are {known_ids}")


#: How a game of Atari's is named, of which Gymnasium's registry knows once `ale_py` is imported.
ATARI = "ale_py:ALE/Breakout-v5"


def is_atari(id: str) -> bool:
    """Tell whether an id is one of Gymnasium's for Atari's games, old or new."""
    return id.startswith("ALE/") or re.search(r"(NoFrameskip|Deterministic)-v\d$", id) is not None


def nearest_id(name: str) -> str:
    """Return the id of ours that is most like a name, but for version, family and case, or ""."""
    ids = {_bare(id): id for id in reversed(registry.all_ids())}
    bare = _bare(name)
    near = [each for each in sorted(ids) if bare and each.startswith(bare)]
    near = near or difflib.get_close_matches(bare, ids, n=1, cutoff=0.7)
    return ids[near[0]] if near else ""


def _bare(id: str) -> str:
    """Return an id without its version and family, in small letters."""
    return re.sub(r"-v\d+$", "", id.rpartition("/")[2]).casefold()


def is_of_gymnasium(id: str) -> bool:
    """Tell whether an id that is none of ours may be one of Gymnasium's, or names a module."""
    ours = {name.rpartition("-v")[0] for name in registry.all_ids()}
    return ":" in id or (id in gymnasium.registry and id.rpartition("-v")[0] not in ours)
