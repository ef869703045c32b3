"""The catalogue: what users want to know of an environment, read from its `Dynamics`.

`rlcpu list` prints it, and the documentation has a page made from each entry. Descriptions are the
docstrings of an environment's module and functions, and the comments beside the fields of its
params, so that an environment of a user's own is described in the same way.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import re
import sys
import textwrap
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

from rlcpu.algorithms import NAMES as NAMES_OF_ALGORITHMS
from rlcpu.algorithms import TABLE, taking
from rlcpu.envs.contract.dynamics import Dynamics, identity
from rlcpu.envs.contract.names import find
from rlcpu.envs.registration import registered
from rlcpu.train.settings.algorithms import algorithm as class_of
from rlcpu.train.settings.tuned import (
    REPLAY_STEPS,
    USUAL_STEPS,
    entry_of,
    fitting,
    steps_of,
)

AGENTS: dict[str, Any] = {name: class_of(name) for name in NAMES_OF_ALGORITHMS}


class Chapter(NamedTuple):
    """Environments of one origin."""

    title: str  # the heading in the catalogue
    port_of: str = ""  # what they are ports of, with {id} for the environment's; empty for none


_SAME = "the same transitions from the same states"
#: By the module of the scalar functions; the first that it begins with counts.
FAMILIES = {
    "rlcpu.envs.tasks.minatar": Chapter("MinAtar", f"the package minatar: {_SAME}"),
    "rlcpu.envs.tasks.minigrid": Chapter("MiniGrid", f"the package minigrid: {_SAME}"),
    "rlcpu.envs.tasks.craftax": Chapter("Craftax", f"the package craftax: {_SAME}"),
    "rlcpu.envs.tasks.popgym": Chapter("POPGym", f"the package popgym: {_SAME}"),
    "rlcpu.envs.tasks.goals.bit_flip": Chapter("Goals", "section 3.1 of the paper"),
    "rlcpu.envs.tasks.goals.point_maze": Chapter(
        "Goals", "Gymnasium-Robotics' PointMaze_Medium in its map, with simpler motion"
    ),
    "rlcpu.envs.tasks.t_maze": Chapter("T-maze", "Bakker's T-maze, with a limit of steps"),
    "rlcpu.envs.tasks.toy_text": Chapter("Toy text", f"Gymnasium's {{id}}: {_SAME}"),
    "rlcpu.envs.mujoco": Chapter(
        "MuJoCo",
        "Gymnasium's {id}: the same bits in float64, but for the last bit of NumPy's sines, "
        "cosines and norms",
    ),
    "rlcpu.envs.tasks.box2d.lunar_lander": Chapter(
        "Box2D tasks", "Gymnasium's {id}, without Box2D: returns have the same distribution"
    ),
    "rlcpu.envs.tasks.no_velocity": Chapter(
        "Classic control",
        "rl-baselines3-zoo's {id}: Gymnasium's environment with zeros in the place of velocities",
    ),
    "rlcpu.envs.": Chapter(
        "Classic control",
        "Gymnasium's {id}: the same bits in float64, except NumPy's last digit of sin and cos",
    ),
}


class Parameter(NamedTuple):
    """One field of an environment's params."""

    name: str  # as `make_vec` and `--param` take it
    default: Any  # its value
    text: str  # the comment beside it


class Learning(NamedTuple):
    """Settings by which `rlcpu train` learns an environment with one algorithm."""

    algorithm: str  # as `--algo` takes it
    steps: int  # environment steps, unless `--steps` says otherwise
    config: Any  # all settings
    is_default: bool  # whether `rlcpu train` takes this algorithm without `--algo`
    is_own: bool  # whether the settings are this environment's or its family's, not general ones

    def changes(self) -> dict[str, Any]:
        """Return the settings that differ from the defaults of the config's class."""
        changes: dict[str, Any] = self.config.changes_from(type(self.config)())
        return changes


@dataclasses.dataclass(frozen=True)
class Entry:
    """One environment."""

    id: str  # such as "CartPole-v1"
    family: str  # title of its `Chapter`
    port_of: str  # see `Chapter`
    title: str  # one sentence
    text: str  # paragraphs, as the source has them
    observation: str  # the space in words
    observed: str  # what the numbers of an observation mean, if that is said
    action: str  # the space in words
    acts: str  # what the numbers of an action mean, if that is said
    is_masked: bool  # whether some actions are not allowed in some states
    state: tuple[Parameter, ...]  # names and meanings of the state's fields
    parameters: tuple[Parameter, ...]  # of `params`
    max_episode_steps: int | None
    reward_threshold: float | None
    learning: tuple[Learning, ...]  # one for each algorithm that takes its actions


def entries() -> list[Entry]:
    """Return all environments that `make_vec` finds here, family by family.

    Returns:
        The entries of `rlcpu list`; MuJoCo's are left out where it is not installed.
    """
    entries = [entry(id) for id in registered()]
    families = list(dict.fromkeys(each.family for each in entries))
    return sorted(entries, key=lambda each: families.index(each.family))


def entry(environment: str | Dynamics) -> Entry:
    """Return the entry of one environment.

    Raises:
        TypeError, ValueError, ImportError: see `rlcpu.envs.find`.
    """
    dynamics = find(environment)
    family, (title, text) = family_of(dynamics), describe(dynamics)
    original = f"Gymnasium's {dynamics.original}" if dynamics.original else ""
    shows_state, state = dynamics.observe is identity, dynamics.state
    # Gymnasium's environments keep theirs to themselves.
    comments = comments_of(state.value_class) if state is not None else {}
    names = [field.name for field in state.fields if field.name] if state is not None else []
    return Entry(
        id=dynamics.id,
        family=family.title,
        port_of=family.port_of.format(id=dynamics.id) or original,
        title=title,
        text=text,
        observation=space_in_words(dynamics.observation_space),
        observed=meaning_of(dynamics.step if shows_state else dynamics.observe, "state"),
        action=space_in_words(dynamics.action_space),
        acts=meaning_of(dynamics.origin.step, "action") if dynamics.runs_in_kernels else "",
        is_masked=dynamics.num_masked > 0,
        state=tuple(Parameter(name, None, comments.get(name, "")) for name in names),
        parameters=parameters_of(dynamics.params),
        max_episode_steps=dynamics.max_episode_steps,
        reward_threshold=dynamics.reward_threshold,
        learning=learning_of(dynamics),
    )


# ---------------------------------------------------------------- what the source says


def main_function(dynamics: Dynamics) -> Any:
    """Return the function whose module describes an environment: its step, or MuJoCo's reward.

    `dynamics.origin` is the environment before transforms.
    """
    return dynamics.origin.step if dynamics.runs_in_kernels else getattr(dynamics, "reward", None)


def family_of(dynamics: Dynamics) -> Chapter:
    """Return the family of an environment: that of what it shows, or of its main function."""
    observe = getattr(dynamics, "observe", identity)
    function = main_function(dynamics) if observe is identity else observe
    module = getattr(function, "__module__", "")
    for begin, family in FAMILIES.items():
        if module.startswith(begin) and dynamics.transform is None:
            return family
    return Chapter("Registered by you")


def describe(dynamics: Dynamics) -> tuple[str, str]:
    """Return a sentence on an environment, and the paragraphs that follow it.

    They are the docstring of its module, which may begin with its id and a colon; those of a
    MuJoCo task's params and reward otherwise, since many tasks share a module.
    """
    function = main_function(dynamics)
    module = sys.modules.get(getattr(function, "__module__", ""))
    first, _, remainder = (inspect.getdoc(module) or "").partition("\n")
    names, colon, sentence = first.partition(": ")
    if colon and (re.search(r"-v\d", names) or is_of_family(names, dynamics.id)):
        return sentence[:1].upper() + sentence[1:], remainder.strip()
    if dynamics.runs_in_kernels:
        return first or dynamics.id, remainder.strip()
    reward = first_line(function)
    if not dynamics.params._fields:
        return reward or dynamics.id, ""
    text = f"Reward: {reward[:1].lower()}{reward[1:]}" if reward else ""
    return first_line(type(dynamics.params)), text


def is_of_family(names: str, id: str) -> bool:
    """Return whether words name environments of the family of an id, such as "POPGym"."""
    family, slash, _ = id.partition("/")
    return bool(slash) and names.startswith(f"{family}/")


def first_line(documented: Any) -> str:
    """Return the first line of the docstring of a class or function; "" if it has none."""
    return (inspect.getdoc(documented) or "").partition("\n")[0]


def meaning_of(function: Any, argument: str) -> str:
    """Return what a docstring says of an argument; without that, its first paragraph.

    The verb that a docstring begins with, "Return the cell", is left out.
    """
    text = inspect.getdoc(function) or ""
    # "argument: text", to the next "name:" as far in, a line that is not indented, or the end.
    entry = re.search(rf"^( +){argument}: (.*?)(?=^\1\w+:|^\S|\Z)", text, re.DOTALL | re.MULTILINE)
    words = " ".join((entry[2] if entry else text.partition("\n\n")[0]).split())
    return re.sub(r"^(Return|Write|Take a step:|Make one step:) ", "", words)


def parameters_of(params: Any) -> tuple[Parameter, ...]:
    """Return the fields of an instance of a NamedTuple, with the comments beside them."""
    texts = comments_of(type(params))
    return tuple(Parameter(k, v, texts.get(k, "")) for k, v in params._asdict().items())


def comments_of(kind: Any) -> dict[str, str]:
    """Return the comments beside the fields of a class, by name; none where there is no source."""
    try:
        lines = inspect.getsource(kind).splitlines()
    except (OSError, TypeError):
        return {}
    texts: dict[str, str] = {}
    name = ""
    for line in lines:  # a field and its comment, or a line of comment that goes on with it
        field = re.match(r"\s+(\w+): [^#]*(?:# (.*))?$", line)
        if field:
            name = field[1]
            texts[name] = field[2] or ""
        elif name and (more := re.match(r"\s+# (.*)$", line)):
            texts[name] = f"{texts[name]} {more[1]}".strip()
        else:
            name = ""
    return {field: text for field, text in texts.items() if text}


# ---------------------------------------------------------------- spaces


def space_in_words(space: Any) -> str:
    """Return a space in a few words, with its bounds where they are few.

    Example:
        >>> space_in_words(Discrete(4))
        '1 of 4'
    """
    if isinstance(space, Discrete):
        return f"1 of {space.n}"
    if isinstance(space, MultiDiscrete):
        return " and ".join(f"1 of {n}" for n in space.nvec.tolist())
    if isinstance(space, MultiBinary):
        planes, *cells = space.shape
        plane = "plane" if planes == 1 else "planes"
        return f"{planes} {plane} of {'x'.join(map(str, cells))} cells"
    if isinstance(space, Box):
        size = int(np.prod(space.shape))
        return f"{size} float{'s' * (size != 1)}{bounds_in_words(space)}"
    if isinstance(space, Dict):
        parts = (f"{name} is {space_in_words(part)}" for name, part in space.items())
        return f"{len(space)} parts, {'; '.join(parts)}"
    return str(space)


def bounds_in_words(space: Box) -> str:
    """Return the bounds of a box, if they are the same for all numbers or are few."""
    low, high = space.low.ravel(), space.high.ravel()
    if np.isinf(low).all() and np.isinf(high).all():
        return ""
    if np.all(low == low[0]) and np.all(high == high[0]):
        return f" in [{low[0]:.4g}, {high[0]:.4g}]"
    if np.array_equal(low, -high) and low.size <= 8:
        return f" within +-({', '.join(f'{x:.4g}' for x in high)})"
    return ", bounded" if np.isfinite(low).all() and np.isfinite(high).all() else ", some bounded"


# ---------------------------------------------------------------- settings


def learning_of(dynamics: Dynamics) -> tuple[Learning, ...]:
    """Return how each algorithm learns an environment, first the one that `rlcpu train` takes."""
    space, kind = dynamics.action_space, "any"
    if isinstance(space, Discrete):
        kind = "choice"
    elif isinstance(space, Box) and space.is_bounded():
        kind = "bounded"
    chosen, names = fitting(dynamics.id), map(str.lower, taking(kind))
    return tuple(
        learning(dynamics, name) for name in sorted(names, key=lambda name: name != chosen)
    )


def learning(dynamics: Dynamics, algorithm: str) -> Learning:
    """Return how one algorithm learns an environment with its default settings."""
    agent, id = AGENTS[algorithm], dynamics.id
    usual = REPLAY_STEPS if TABLE[algorithm.upper()].has_replay else USUAL_STEPS
    return Learning(
        algorithm=algorithm,
        steps=steps_of(id, agent, usual),
        config=agent.default_config(dynamics),
        is_default=fitting(id) == algorithm,
        is_own=entry_of(id, agent.defaults) is not None,
    )


def tuned(algorithm: str) -> dict[str, Any]:
    """Return the configs of an algorithm that differ from the general ones.

    They are by the id of an environment, or of a family, such as "MinAtar/*", whose environments
    have the same.
    """
    known = registered()
    families = {f"{id.partition('/')[0]}/*": id for id in reversed(known)}  # by the first of each
    members = families | {id: id for id in known}
    ids = [id for id in AGENTS[algorithm].defaults if id in members]
    return {id: learning(find(members[id]), algorithm).config for id in ids}


# ---------------------------------------------------------------- text


def value_in_words(value: Any) -> str:
    """Return a number, bool, tuple or word, as it is typed in Python.

    Example:
        >>> value_in_words(1e-05), value_in_words((64, 64))
        ('1e-05', '(64, 64)')
    """
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int):
        return f"{value:_}" if value >= 10_000 else str(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, tuple):
        return f"({', '.join(map(value_in_words, value))}{',' * (len(value) == 1)})"
    return repr(value)


#: Columns of `rlcpu list` behind the names, and ways to show them, from wide to narrow: the space
#: between columns, and which of them are shown.
COLUMNS = ("observation", "action", "steps", "solved")
WAYS = (
    (2, (0, 1, 2, 3, 4)),
    (1, (0, 1, 2, 3, 4)),
    (2, (0, 2, 3, 4)),
    (1, (0, 2, 3, 4)),
    (1, (0, 3, 4)),
)


def table(width: int = 80) -> str:
    """Return the text of `rlcpu list`.

    A line for each environment, under the titles of families.

    Args:
        width: columns of the terminal; where they are few for a family, observations are left out.
    """
    lines: list[str] = []
    for family, group in itertools.groupby(entries(), lambda each: each.family):
        rows = [(family, *COLUMNS), *(cells_of(each) for each in group)]
        sizes = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
        fitting_ways = [
            way for way in WAYS if sum(sizes[k] + way[0] for k in way[1]) - way[0] <= width
        ]
        gap, chosen = (fitting_ways or WAYS[-1:])[0]
        for row in rows:
            cells = [row[k].rjust(sizes[k]) if k > 2 else row[k].ljust(sizes[k]) for k in chosen]
            lines.append((" " * gap).join(cells).rstrip())
        lines.append("")
    note = "steps: of an episode at most; solved: the mean return"
    return "\n".join([*lines, note, "rlcpu list ENV describes one of them"])


def cells_of(each: Entry) -> tuple[str, ...]:
    """Return the line of an environment in `rlcpu list`, column by column."""
    observation = re.split(r" in | within |, | cells", each.observation)[0]
    action = each.action.partition(" in ")[0].replace(" and 1 of ", ", ")
    steps = "-" if each.max_episode_steps is None else str(each.max_episode_steps)
    solved = "-" if each.reward_threshold is None else f"{each.reward_threshold:g}"
    return f"  {each.id}", observation, action, steps, solved


def page(each: Entry, columns: int = 80) -> str:
    """Return the lines that `rlcpu list ENV` prints, for a terminal of so many columns."""
    title = each.id if each.title == each.id else f"{each.id}: {each.title}"
    parts = [*textwrap.wrap(title, columns - 1), ""]
    fill = textwrap.TextWrapper(columns - 1, subsequent_indent=" " * 13)
    facts = {
        "port of": each.port_of,
        "observation": each.observation + (f": {each.observed}" if each.observed else ""),
        "action": each.action + (f": {each.acts}" if each.acts else ""),
        "masks": "infos say which actions are allowed" if each.is_masked else "",
        "steps": "no limit" if each.max_episode_steps is None else f"{each.max_episode_steps:,}",
        "solved from": "" if each.reward_threshold is None else f"{each.reward_threshold:g}",
    }
    parts += [fill.fill(f"{name:<12} {text}") for name, text in facts.items() if text]
    if each.parameters:
        width = max(len(parameter.name) for parameter in each.parameters)
        parts += ["", "parameters (--param NAME=VALUE, make_vec(..., NAME=VALUE)):"]
        for name, value, text in each.parameters:
            line = f"  {name:<{width}} = {value_in_words(value):<8} {text}".rstrip()
            parts += textwrap.wrap(line, columns - 1, subsequent_indent=" " * (width + 14))
    for way in each.learning:
        kind = "own" if way.is_own else "general"
        chosen = "rlcpu train takes it" if way.is_default else f"--algo {way.algorithm}"
        parts += ["", f"{way.algorithm.upper()} ({chosen}): {way.steps:,} steps, {kind} settings"]
        for name, value in way.changes().items():
            parts.append(f"  {name} = {value_in_words(value)}")
    return "\n".join(parts)
