"""Learning curves of the `rlcpu` command: `rlcpu plot`, and the picture of one run."""

from __future__ import annotations

import argparse
import collections
import csv
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rlcpu.cli.arguments import CommandError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rlcpu.experiments.pictures import Points
    from rlcpu.train import History

#: Columns of the returns in tables, and what they are: of evaluations, or of training episodes.
RETURNS = {
    "mean_return": "return",
    "evaluation_return": "return",
    "episode_return": "return in training",
}
#: Columns of steps and of seconds, the first that a table has: in those of `History` steps of
#: earlier calls of `learn` are part of "total_steps" alone.
STEPS, SECONDS = ("total_steps", "steps"), ("seconds", "time_total")
#: The end of a file's name that is a seed: "ppo-3", "ppo_seed3", "3".
_SEED = re.compile(r"[-_. ]*(?:seed)?[-_. ]*\d+$")


class Key(NamedTuple):
    """Names that tell a run in a table from others."""

    env: str  # "" where the table does not say
    variant: str
    seed: str


def plot(args: argparse.Namespace) -> int:
    """Run `rlcpu plot`: draw the runs of experiments' folders, or of tables, into one picture."""
    from rlcpu.experiments import load
    from rlcpu.experiments.pictures import write

    folders = [name for name in args.runs if os.path.isdir(name)]
    if folders and len(folders) < len(args.runs):
        raise CommandError("folders have evaluations, and tables may not: draw them apart")
    try:
        if folders:
            figure = load(*folders).plot(args.statistic, args.over, target=args.target)
        else:
            figure = draw_tables(args.runs, args.statistic, args.over, args.target)
        write(figure, args.out)
    except (ImportError, OSError, ValueError) as error:
        raise CommandError(error) from None
    print(f"picture     {args.out}")
    return 0


def draw_tables(names: Sequence[str], statistic: str, over: str, target: float | None) -> Any:
    """Return a figure of the runs in tables, a panel for each environment.

    Runs of one variant are one line. Tables of `rlcpu train --csv` say which that is, by their
    settings; of others the file's name does, without a number at its end, which is the seed.

    Raises:
        CommandError: a table cannot be read, or they hold different returns.
        ImportError, ValueError: as in `rlcpu.experiments.pictures.draw`.
    """
    from rlcpu.experiments.pictures import Panel, draw

    stems = [Path(name).stem for name in names]
    files = stems if len(set(stems)) == len(stems) else list(names)
    tables = [read_table(name, over) for name in names]
    kinds = [kind for kind in RETURNS.values() if all(kind in table for table in tables)]
    if not kinds:
        evaluated = [name for name, each in zip(names, tables, strict=True) if "return" in each]
        others = [name for name in names if name not in evaluated]
        raise CommandError(
            f"{evaluated[0]!r} has evaluations, and {others[0]!r} returns in training: "
            "draw them apart"
        )
    lines = joined({file: each[kinds[0]] for file, each in zip(files, tables, strict=True)})
    envs = dict.fromkeys(env for env, _ in lines)
    levels = {} if target is None else {f"target: {target:g}": target}
    panels = [
        Panel(
            f"{env}\n{kinds[0]}" if len(envs) > 1 else kinds[0],
            {variant: runs for (of, variant), runs in lines.items() if of == env},
            levels,
        )
        for env in envs
    ]
    title = "" if len(envs) > 1 else next(iter(envs))
    return draw(panels, title=title, statistic=statistic, over=over)


def joined(tables: Mapping[str, Mapping[Key, Points]]) -> dict[tuple[str, str], list[Points]]:
    """Return the runs of each environment and variant, of all tables by the names of their files.

    Where two files have a run of one variant with one seed, they are different experiments: the
    variant of each gets its file's name in front.
    """
    count = collections.Counter(key for runs in tables.values() for key in runs)
    clashes = {(key.env, key.variant) for key, number in count.items() if number > 1}
    lines: dict[tuple[str, str], list[Points]] = {}
    for file, runs in tables.items():
        for key, curve in runs.items():
            variant = f"{file}: {key.variant}" if (key.env, key.variant) in clashes else key.variant
            lines.setdefault((key.env, variant), []).append(curve)
    return lines


def read_table(name: str, over: str) -> dict[str, dict[Key, Points]]:
    """Return the curves of a table over "steps" or "seconds", by what its returns are.

    A table may have evaluations and returns in training. Evaluations are there if all of its runs
    have some.

    Raises:
        CommandError: it cannot be read, or is another table.
    """
    from rlcpu.experiments.pictures import points

    needed = "steps" if over == "steps" else "steps, seconds"
    curves: dict[str, dict[Key, list[tuple[float, ...]]]] = {}
    try:
        with open(name, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        head = rows[0] if rows else {}
        names = [STEPS, *([SECONDS] if over == "seconds" else [])]
        # A column that is missing raises KeyError below.
        columns = [next((each for each in some if each in head), some[-1]) for some in names]
        returns = [each for each in RETURNS if each in head] or ["episode_return"]
        for row in rows:
            steps, *seconds = (float(row[each]) for each in columns)
            for each in returns:
                runs = curves.setdefault(RETURNS[each], {}).setdefault(key_of(row, name), [])
                runs.append((steps, float(row[each]), *seconds))
    except OSError as error:
        raise CommandError(f"cannot read {name!r}: {error.strerror}") from None
    except (KeyError, TypeError, ValueError, csv.Error):
        raise CommandError(
            f"{name!r}: expected a table with numbers in its columns {needed} and episode_return"
        ) from None
    if not curves:
        raise CommandError(f"{name!r} has no updates")
    tables = {
        kind: {key: points(*zip(*each, strict=True)) for key, each in runs.items()}
        for kind, runs in curves.items()
    }
    is_evaluated = "return" in tables and all(len(run.steps) for run in tables["return"].values())
    if not is_evaluated and len(tables) > 1:
        del tables["return"]
    return tables


def key_of(row: Mapping[str, str], name: str) -> Key:
    """Return which run a line of a table belongs to, by its labels or the name of the file."""
    known = {k: v for k, v in row.items() if v not in ("", "nan", None)}
    path = Path(name)
    variant = _SEED.sub("", path.stem) or path.resolve().parent.name
    return Key(known.get("env", ""), known.get("variant", variant), known.get("seed", path.stem))


def draw_run(
    path: Path,
    history: History,
    title: str,
    target: float | None = None,
    greedy: tuple[int, NDArray[np.float64]] | None = None,
) -> None:
    """Draw the learning curve of one run, its evaluations on the way, and the target.

    Args:
        path: of the picture.
        history: of the run.
        title: stands above it.
        target: a return to draw a line at.
        greedy: (steps, returns) of an evaluation.

    Raises:
        OSError: the file cannot be written.
    """
    from rlcpu import palette
    from rlcpu.experiments.pictures import Panel, draw, name_lines, points, write

    levels = {} if target is None else {f"target: {target:g}": target}
    lines = {"training, mean of the last episodes": [points(*zip(*history.curve, strict=True))]}
    if made := history.evaluations:
        steps = [each.steps - history.steps_before for each in made]
        evaluated = points(steps, [each.mean_return for each in made])
        lines[f"greedy on the way, mean of {len(made[0].returns)} episodes"] = [evaluated]
    panel = Panel("return", lines, levels)
    figure = draw([panel], title=title, is_needed=False)
    if greedy is not None:
        at, returns = greedy
        mean, low, high = returns.mean(), returns.min(), returns.max()
        figure.axes[0].errorbar(
            [at],
            [mean],
            yerr=[[mean - low], [high - mean]],
            fmt="o",
            capsize=4,
            color=palette.VERMILION,
            label=f"greedy policy, mean and range of {len(returns)} episodes",
        )
        name_lines(figure.axes, [title])
    write(figure, path)
