"""Pages and tables that are made from the program: the catalogue, and settings of algorithms."""

from __future__ import annotations

import inspect
import io
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from asv_benches.colours import ALGORITHMS  # noqa: E402
from rlcpu import catalogue  # noqa: E402
from rlcpu.catalogue import Entry, value_in_words  # noqa: E402
from rlcpu.envs import find  # noqa: E402
from rlcpu.train import bc, critics, dqn, ppo, pqn, qrdqn, sac, td3, tqc  # noqa: E402

FILMS = "pictures"
#: A table of a docstring: a rule, its head, the rule, its rows, the rule.
RULED = re.compile(r"^(=+(?: =+)+)\n(.*)\n\1\n((?:.*\n)+?)\1$", re.MULTILINE)
#: Text and background of pictures, on light and on dark pages.
THEMES = {"light": "#1f2328", "dark": "#d5d9e0"}


def slug(id: str) -> str:
    """The name of an environment's page and film."""
    return id.replace("/", "-").lower()


# ---------------------------------------------------------------- the catalogue


def overview(entries: list[Entry]) -> str:
    """All environments as cards with a picture, family by family."""
    parts: list[str] = []
    family = ""
    for entry in entries:
        if entry.family != family:
            parts += ["</div>"] if family else []
            family = entry.family
            parts += [f"## {family}", '<div class="grid cards films" markdown>']
        name = slug(entry.id)
        observation = re.split(r" in | within |,", entry.observation)[0]
        shown = re.sub("(?<=[a-z/])(?=[A-Z])", "<wbr>", entry.id)  # where a long name may break
        film = f"[![]({FILMS}/{name}.gif){{ loading=lazy }}](catalogue/{name}.md)\n    "
        parts.append(
            f"-   {film if has_film(entry) else ''}[**{shown}**](catalogue/{name}.md)\n\n"
            f"    {entry.title}\n\n    {observation} · {entry.action.partition(' in ')[0]}\n"
        )
    return "\n\n".join([*parts, "</div>"])


def source_of(entry: Entry) -> str:
    """The file that an environment is written in, from the repository's root."""
    module = catalogue.main_function(find(entry.id)).__module__
    return f"{module.replace('.', '/')}.py"


def has_film(entry: Entry) -> bool:
    """Whether docs/film.py has filmed an environment."""
    return (ROOT / "docs" / FILMS / f"{slug(entry.id)}.gif").exists()


def page(
    entry: Entry,
    runs: Mapping[str, list[Any]],
    rows: list[tuple[str, ...]],
    missing: Sequence[str] = (),
) -> str:
    """The page of one environment.

    Args:
        entry: the environment.
        runs: those of the study, by algorithm.
        rows: of the table of what agents reach.
        missing: names of algorithms that the study wants, and has no run of.
    """
    parts = [f"# {entry.id}", f"**{entry.title}**"]
    if has_film(entry):
        parts.append(f"![An episode of {entry.id}](../{FILMS}/{slug(entry.id)}.gif){{ .film }}")
    parts.append(paragraphs(entry.text))
    facts = {
        "Port of": entry.port_of,
        "Observation": ": ".join(filter(None, (entry.observation, entry.observed))),
        "Action": ": ".join(filter(None, (entry.action, entry.acts))),
        "Action masks": "infos say which actions are allowed" if entry.is_masked else "",
        "Episode": "no limit of steps"
        if entry.max_episode_steps is None
        else f"{entry.max_episode_steps:,} steps at most",
        "Solved from": ""
        if entry.reward_threshold is None
        else f"a mean return of {entry.reward_threshold:g}",
    }
    parts.append(table(("", ""), [(name, cell(text)) for name, text in facts.items() if text]))
    parts.append(usage(entry))
    if entry.parameters:
        parts += [
            "## Parameters",
            "Arguments of `make_vec`, and of `--param` on the command line. A new number compiles "
            "nothing; True and False are options of the machine code: another one compiles again.",
            table(
                ("name", "default", "what it is"),
                [
                    (f"`{p.name}`", f"`{value_in_words(p.default)}`", cell(p.text))
                    for p in entry.parameters
                ],
            ),
        ]
    if entry.state:
        names = [(f"`env.state.{name}`", cell(text)) for name, _, text in entry.state if text]
        others = ", ".join(f"`{name}`" for name, _, text in entry.state if not text)
        parts += ["## State", table(("field", "what it is"), names) if names else ""]
        parts += [f"Fields whose names say what they are: {others}."] if others else []
    if runs:
        parts += [
            "## What agents reach",
            f"![Learning curves](curves/{slug(entry.id)}-light.svg#only-light){{ .wide }}\n"
            f"![Learning curves](curves/{slug(entry.id)}-dark.svg#only-dark){{ .wide }}",
            "A line is the mean over seeds of the return in training, and its band goes from the "
            "lowest to the highest seed. Below are mean returns of 100 greedy episodes at the end, "
            "with the standard error over seeds.",
            table(("agent", "return", "seeds", "steps", "seconds of one CPU"), rows),
            f"Not run here: {', '.join(missing)}." if missing else "",
        ]
    parts += ["## Settings of `rlcpu train`", *settings(entry)]
    return "\n\n".join(part for part in parts if part)


def paragraphs(text: str) -> str:
    """A docstring as Markdown: indented lines stay as they are, and tables become tables."""
    text = RULED.sub(lambda found: ruled_table(*found.groups()), text)
    return text.replace("    ", "\n    ", 1) if re.search(r"^    ", text, re.MULTILINE) else text


def ruled_table(rule: str, head: str, body: str) -> str:
    """A table in Markdown of one whose columns are as wide as the parts of a rule."""
    columns = [slice(*part.span()) for part in re.finditer("=+", rule)]
    heads, *rows = ([line[k].strip() for k in columns] for line in (head, *body.splitlines()))
    return table(tuple(heads), [tuple(cell(each) for each in row) for row in rows])


def usage(entry: Entry) -> str:
    """How it is made, and learnt."""
    code = f'import rlcpu\n\nenv = rlcpu.make_vec("{entry.id}", num_envs=1024)'
    return f"```python\n{code}\n```\n\n```sh\nrlcpu train {entry.id}\n```"


def settings(entry: Entry) -> Iterator[str]:
    """For each algorithm what `rlcpu train` takes, where it differs from the class's defaults."""
    for way in entry.learning:
        name = way.algorithm.upper()
        first = "`rlcpu train` takes it" if way.is_default else f"with `--algo {way.algorithm}`"
        kind = "this environment's own" if way.is_own else "the general ones"
        yield (
            f"**[{name}](../algorithms/{way.algorithm}.md)**, {first}: "
            f"{way.steps:,} steps; settings are {kind}."
        )
        pairs = [(f"`{k}`", f"`{value_in_words(v)}`") for k, v in way.changes().items()]
        if pairs:
            yield table(("setting", "value"), pairs)


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def cell(text: str) -> str:
    """Text that stands in a table."""
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


# ---------------------------------------------------------------- curves


def curves(runs: Mapping[str, list[Any]], threshold: float | None) -> dict[str, bytes]:
    """Draw learning curves of an environment's agents over steps; SVG by theme."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    ink = THEMES["light"]
    style = dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), ink)
    style |= {"axes.edgecolor": ink, "svg.fonttype": "none", "svg.hashsalt": "rlcpu"}
    with mpl.rc_context({**style, "font.size": 10}):
        figure = Figure(figsize=(6.4, 3.0), layout="constrained")
        figure.patch.set_alpha(0.0)
        axes = figure.add_subplot()
        axes.patch.set_alpha(0.0)
        for algorithm, group in runs.items():
            colour, line = ALGORITHMS[algorithm]
            curves = np.array([run["curve"] for run in group], dtype=float)
            x, y = np.median(curves[..., 0], axis=0), curves[..., 2]
            label = f"{algorithm.upper()}, {len(group)} seed{'s' * (len(group) > 1)}"
            axes.plot(x, y.mean(axis=0), color=colour, linestyle=line, label=label)
            axes.fill_between(x, y.min(axis=0), y.max(axis=0), color=colour, alpha=0.2, linewidth=0)
        if threshold is not None:
            axes.axhline(threshold, color=ink, linewidth=1, linestyle=":", label="solved")
        axes.set_xlabel("environment steps")
        axes.set_ylabel("return in training")
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.locator_params(axis="x", nbins=5)
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside upper center", ncols=4, frameon=False)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    drawn = buffer.getvalue().decode()
    return {theme: drawn.replace(ink, other).encode() for theme, other in THEMES.items()}


def study() -> tuple[
    dict[str, dict[str, list[Any]]], dict[str, list[tuple[str, ...]]], dict[str, list[str]]
]:
    """Runs of the study by environment and algorithm; by environment rows of a table, and gaps."""
    from asv_benches import study

    groups: dict[str, dict[str, list[Any]]] = {}
    rows: dict[str, list[tuple[str, ...]]] = {}
    loaded = study.load(study.PATH)
    for (env_id, algorithm), runs in study.grouped(loaded).items():
        groups.setdefault(env_id, {})[algorithm] = runs
    for line in study.summary(loaded):
        digits = 2 if abs(line.mean) < 10 else 1
        error = f" ± {study.rounded(line.error)}" if line.seeds > 1 else ""
        mean = f"{line.mean:.{digits}f}{error}"
        cells = (
            line.algorithm.upper(),
            mean,
            line.of_wanted,
            f"{line.steps:,}",
            f"{line.seconds:.3g}",
        )
        rows.setdefault(line.env, []).append(cells)
    missing: dict[str, list[str]] = {}
    for env_id, algorithm in study.missing(loaded):
        missing.setdefault(env_id, []).append(algorithm.upper())
    return groups, rows, missing


# ---------------------------------------------------------------- algorithms

#: Functions of each algorithm's equations, in the order of its page.
EQUATIONS = {
    "ppo": (
        ppo.surrogate,
        ppo.squared_error,
        ppo.distribution,
        ppo.loss_of,
        ppo.ppo,
    ),
    "pqn": (pqn.squared_error, pqn.pqn),
    "bc": (bc.distance, bc.cloning),
    "dqn": (dqn.bootstrap, dqn.huber, dqn.dqn),
    "qrdqn": (qrdqn.midpoints, qrdqn.quantile_huber, qrdqn.qrdqn, qrdqn.loss_of),
    "tqc": (tqc.critic, tqc.actor_and_temperature),
    "sac": (sac.draw, sac.sample, sac.critic, sac.actor_and_temperature, sac.policy_loss),
    "td3": (td3.squashed, td3.smoothed, td3.critic, td3.actor),
    "critics": (
        critics.soft_bootstrap,
        critics.next_of,
        critics.to_next,
        critics.least_value,
        critics.actor_mean,
        critics.critics_loss,
    ),
}


def functions(algorithm: str) -> str:
    """Return the source of the functions that an algorithm's updates are traced from."""
    sources = [inspect.getsource(function) for function in EQUATIONS[algorithm]]
    return "```python\n" + "\n\n".join(sources) + "```"


# ---------------------------------------------------------------- settings of algorithms


def config_table(algorithm: str) -> str:
    """All settings of an algorithm, with the defaults of its class and their meaning."""
    config = catalogue.AGENTS[algorithm].Config
    texts = meanings(config)
    usual = config()
    rows = [
        (f"`{name}`", f"`{value_in_words(getattr(usual, name))}`", cell(texts.get(name, "")))
        for name in usual.names()
    ]
    return table(("setting", "default", "what it is"), rows)


def facts_table() -> str:
    """What `settings` hold beside the fields of a config, and for which algorithms."""
    agents = catalogue.AGENTS.values()
    facts = {name: text for agent in agents for name, text in agent.facts.items()}
    rows = []
    for name, text in facts.items():
        having = [agent.algorithm for agent in agents if name in agent.facts]
        rows.append((f"`{name}`", "all" if len(having) == len(agents) else ", ".join(having), text))
    return table(("fact", "algorithms", "what it is"), rows)


def meanings(config: type) -> dict[str, str]:
    """The meaning of each field, from the docstrings of a class and of those it is based on."""
    texts: dict[str, str] = {}
    for base in reversed(config.__mro__):
        section = re.search(
            r"^Attributes:\n(.*?)(?=^\S|\Z)",
            inspect.cleandoc(base.__doc__ or ""),
            re.DOTALL | re.MULTILINE,
        )
        for names, text in re.findall(
            r"^    ([\w, ]+): (.*?)(?=^    \w|\Z)",
            section[1] if section else "",
            re.DOTALL | re.MULTILINE,
        ):
            texts |= dict.fromkeys(names.split(", "), " ".join(text.split()))
    return texts


def tuned_table(algorithm: str) -> str:
    """The settings by environment, where they differ from the defaults of the class.

    The first rows are those of environments that nobody has tuned.
    """
    agent = catalogue.AGENTS[algorithm]
    usual = agent.Config()
    configs = {
        "all others, numbers": agent.general["numbers"],
        "all others, choices, cells or images": agent.general["symbols"],
    }
    for id, config in catalogue.tuned(algorithm).items():
        family = id.partition("/")[0]
        page = f"catalogue.md#{family.lower()}" if id.endswith("/*") else f"catalogue/{slug(id)}.md"
        configs[f"[{id}](../{page})"] = config
    rows = []
    for name, config in configs.items():
        names = [n for n in config.names() if getattr(config, n) != getattr(usual, n)]
        changes = [f"`{name}={value_in_words(getattr(config, name))}`" for name in names]
        rows.append((name, " ".join(changes) or "nothing"))
    return table(("environment", "what differs from the defaults above"), rows)


def choice_table(entries: list[Entry]) -> str:
    """What `rlcpu train` takes for each environment."""
    rows = []
    for entry in entries:
        way = entry.learning[0]
        kind = "own" if way.is_own else "general"
        agent = f"[{way.algorithm.upper()}]({way.algorithm}.md)"
        link = f"[{entry.id}](../catalogue/{slug(entry.id)}.md#settings-of-rlcpu-train)"
        rows.append((link, agent, f"{way.steps:,}", kind))
    return table(("environment", "algorithm", "steps", "settings"), rows)
