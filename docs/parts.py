"""Tables and facts that stand in pages, made from the program and from saved results.

A page has `<!-- study -->what a clone shows<!-- end -->`, and the site has the table in its place.
Facts, such as `<!-- fact: first run -->21 s<!-- end -->`, stand in the files themselves:
`python docs/parts.py` writes them, and a test fails where one is stale. `python docs/parts.py
study` prints a table, `python docs/parts.py settings ppo` one of several.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import made  # noqa: E402
import rooms  # noqa: E402

from asv_benches import study  # noqa: E402
from asv_benches.peers import readme  # noqa: E402
from asv_benches.untuned import scores  # noqa: E402
from rlcpu import catalogue  # noqa: E402

#: A part: its name, an argument, and what the file shows.
MARK = re.compile(r"<!-- (\w[\w ]*?)(?:: ([\w ]+))? -->((?:(?!<!--).)*)<!-- end -->", re.DOTALL)


def text(name: str, argument: str | None) -> str:
    """What stands in the place of a part on the site."""
    return PARTS[name](*filter(None, (argument,)))


def main(words: list[str]) -> None:
    """Print a part, or write the facts into README and pages."""
    if words:
        print(text(words[0], " ".join(words[1:])))
        return
    for page in pages():
        before = page.read_text("utf-8")
        after = MARK.sub(with_fact, before)
        if after != before:
            page.write_text(after, encoding="utf-8")
            print(page.relative_to(ROOT))


def pages() -> list[Path]:
    """The files that may have parts."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def with_fact(found: re.Match[str]) -> str:
    """A part with the fact of today between its marks; any other part as it is."""
    if found[1] != "fact":
        return found[0]
    return f"<!-- fact: {found[2]} -->{fact(found[2])}<!-- end -->"


# ---------------------------------------------------------------- facts


def fact(name: str) -> str:
    """A number or some words of `FACTS`."""
    return FACTS[name]()


@functools.cache
def figures() -> dict[str, Any]:
    """The newest measurement of each row, by table and name."""
    tables = readme.newest()
    return {f"{what}/{row['name']}": row for what in tables for row in tables[what]["rows"]}


def seconds(name: str, side: str = "ours") -> str:
    """A time of a row; whole seconds where they are ten or more."""
    value = figures()[name][side]
    return f"{value:.0f} s" if value >= 10 else f"{value:.2g} s"


def ratios(table: str, end: str) -> str:
    """The smallest and the largest ratio of the rows of a table whose names have an end."""
    found = [
        row["ratio"]
        for name, row in figures().items()
        if name.startswith(f"{table}/") and name.endswith(end) and row["ratio"]
    ]
    return f"{min(found):.1f} to {max(found):.1f} times"


def longer(name: str, than: str) -> str:
    """How much longer a job takes than another one, of two rates."""
    share = figures()[than]["ours"] / figures()[name]["ours"] - 1
    return f"{100 * share:.0f} % longer"


def study_in_words() -> str:
    """How many pairs of the study have how many seeds."""
    lines = study.summary(study.load())
    seeds = Counter(min(line.seeds, 10) for line in lines)
    return (
        f"of {len(lines)} pairs of an environment and an algorithm, {seeds[10]} have ten seeds or "
        f"more and {seeds[1]} have one; other environments have no run"
    )


def reached(env_id: str, algorithm: str) -> str:
    """What a pair of the study reaches, such as "-19.8 over 4 seeds"."""
    pairs = {(line.env, line.algorithm): line for line in study.summary(study.load())}
    line = pairs[env_id, algorithm]
    return f"{line.mean:.1f} over {line.seeds} seeds"


def cards_in_words() -> str:
    """The GPUs that were measured, such as "an H100 and an H200"."""
    files = sorted((ROOT / "asv_benches" / "results").glob("nvidia-*-cuda.json"))
    return " and ".join(f"an {file.name.split('-')[1].upper()}" for file in files)


#: What pages quote.
FACTS: dict[str, Callable[[], str]] = {
    "first run": lambda: seconds("train/cold"),
    "next run": lambda: seconds("train/process"),
    "learning alone": lambda: seconds("train/zoo"),
    "learning alone there": lambda: seconds("train/zoo", "peer"),
    "envpool": lambda: ratios("mujoco", "-envpool"),
    "sync": lambda: ratios("mujoco", "-sync"),
    "tanh": lambda: longer("collect/tanh-jax", "collect/relu-jax"),
    "rows": lambda: str(sum(row["ratio"] is not None for row in figures().values())),
    "study": study_in_words,
    "bits": lambda: reached("BitFlip-v0", "dqn"),
    "maze": lambda: reached("PointMaze-v0", "sac"),
    "cards": cards_in_words,
}


# ---------------------------------------------------------------- tables


@functools.cache
def entries() -> list[catalogue.Entry]:
    """All environments."""
    return catalogue.entries()


def every_figure() -> str:
    """The tables of all comparisons with other libraries, with a field that filters them."""
    return readme.appendix(readme.newest())


def card_figures() -> str:
    """The table of a GPU, without the rows of the paper's Figure 8."""
    lines = ["| What | Card | rlcpu | Against | Other | Ratio |", "|---|---|---|---|---|---|"]
    for row in readme.newest(names=["cuda"])["cuda"]["rows"]:
        if not row["name"].startswith("figure8"):
            what, against, ratio, ours, theirs = readme.told(row)
            card = row["machine"].removeprefix("nvidia-").partition("-")[0].upper()
            lines.append(f"| {what} | {card} | {ours} | {against} | {theirs} | {ratio} |")
    return "\n".join(lines)


def ten_figures() -> str:
    """The README's table."""
    page = (ROOT / "README.md").read_text("utf-8")
    return page.partition("<!-- figures:begin -->")[2].partition("<!-- figures:end -->")[0]


def command_line() -> str:
    """What `--help` prints, command by command."""
    from rlcpu.cli import build_parser

    os.environ |= {"COLUMNS": "90", "NO_COLOR": "1"}
    parser = build_parser()
    (commands,) = (action.choices for action in parser._actions if isinstance(action.choices, dict))
    parts = [f"```text\n{parser.format_help()}```"]
    for name, command in commands.items():
        parts.append(f"### rlcpu {name}\n\n```text\n{command.format_help()}```")
    return "\n\n".join(parts)


#: What stands in the place of a part of this name.
PARTS: dict[str, Callable[..., str]] = {
    "fact": fact,
    "help": command_line,
    "every figure": every_figure,
    "ten figures": ten_figures,
    "card figures": card_figures,
    "study": study.markdown,
    "catalogue": lambda: made.overview(entries()),
    "choice": lambda: made.choice_table(entries()),
    "facts": made.facts_table,
    "functions": made.functions,
    "settings": made.config_table,
    "tuned": made.tuned_table,
    "untuned": lambda: scores.markdown(scores.load()),
    "rooms": lambda: f"<div>{rooms.picture()}</div>",
}

if __name__ == "__main__":
    main(sys.argv[1:])
