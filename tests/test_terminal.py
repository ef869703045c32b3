"""What is shown while something goes on: on a terminal, in a notebook, in a file."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rlcpu import terminal
from tests.kernels.processes import output_of

CACHE = os.environ.get("NUMBA_CACHE_DIR", "")
BAR = """
import time
from rlcpu.terminal import Bar

with Bar("MinAtar/SpaceInvaders-v1", 1_000_000, "steps") as bar:
    bar.show(400_000, 0.25, "recent return -123.4, best -122.5, target -110.5")
    print("said meanwhile")
    time.sleep(0.6)
    bar.show(900_000, 0.5, "recent return 212.3, best 240.1, target 475")
"""


def frames(output: str) -> list[str]:
    """Lines of a terminal, in the order in which they were drawn, without colours."""
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", output)
    return [line.rstrip() for line in re.split(r"[\r\n]+", plain)]


def test_a_terminal_gets_a_bar_that_fits_70_columns() -> None:
    output = output_of(BAR, cache=CACHE, terminal=True, columns=70, TERM="xterm", NO_COLOR="")
    lines = frames(output)
    assert any(line.endswith("  400k of 1M steps, 1.6M steps/s, 0:00 left") for line in lines)
    title = "MinAtar/SpaceInvaders-v1: recent return "
    assert f"{title}-123.4, best -122.5, target -" in "\n".join(lines)
    assert "said meanwhile" in lines
    assert lines[-3].endswith("  900k steps, 1.8M steps/s")
    assert lines[-2] == f"{title}212.3, best 240.1, target 475"
    assert max(map(len, lines)) <= 70
    assert "\x1b[3" in output


def test_no_colour_where_none_is_wanted() -> None:
    output = output_of(BAR, cache=CACHE, terminal=True, TERM="xterm", NO_COLOR="1")
    assert "400k of 1M steps" in output
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", output)


def test_nobody_gets_a_bar_who_wants_none() -> None:
    output = output_of(BAR, cache=CACHE, terminal=True, RLCPU_PROGRESS="0")
    assert output.split() == ["said", "meanwhile"]


def test_a_file_gets_a_line_at_each_tenth_and_one_at_the_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with terminal.Bar("CartPole-v1", 1000, "steps") as bar:
        for done in range(0, 350, 50):
            bar.show(done, 2.0, "recent return 20")
    assert capsys.readouterr().err.splitlines() == [
        "CartPole-v1: 10%, 100 of 1k steps, 50 steps/s, 0:18 left; recent return 20",
        "CartPole-v1: 20%, 200 of 1k steps, 100 steps/s, 0:08 left; recent return 20",
        "CartPole-v1: 30%, 300 of 1k steps, 150 steps/s, 0:05 left; recent return 20",
        "CartPole-v1: 100%, 300 steps, 150 steps/s; recent return 20",
    ]


def test_a_bar_that_is_interrupted_does_not_say_that_it_is_done(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bar = terminal.Bar("CartPole-v1", 1000, "steps")
    with contextlib.suppress(KeyboardInterrupt), bar:
        bar.show(200)
        raise KeyboardInterrupt
    assert capsys.readouterr().err == "CartPole-v1: 20%, 200 of 1k steps\n"


def test_lines_on_a_terminal_have_their_colour() -> None:
    program = "from rlcpu.terminal import say; say('solved  [1] 480 >= 475', 'green')"
    shown = output_of(program, cache=CACHE, terminal=True, TERM="xterm", NO_COLOR="")
    assert "\x1b[32msolved  [1] 480 >= 475" in shown
    plain = output_of(program, cache=CACHE, terminal=True, TERM="xterm", NO_COLOR="1")
    assert plain.strip() == "solved  [1] 480 >= 475"
    assert output_of(program, cache=CACHE, terminal=False).strip() == "solved  [1] 480 >= 475"


def test_a_terminal_without_an_encoding_for_bars_gets_them_too() -> None:
    output = output_of(BAR, cache=CACHE, terminal=True, TERM="xterm", PYTHONIOENCODING="ascii")
    assert "400k of 1M steps" in output


def test_numbers_are_short() -> None:
    assert [terminal.short(x) for x in (0, 950, 999.6, 12_345, 999_950, 1e6, 2.5e9)] == [
        *("0", "950", "1k", "12.3k", "1M", "1M", "2.5G")
    ]
    assert terminal.short(float("nan")) == "?"
    assert [terminal.clock(x) for x in (0.4, 67, 3723)] == ["0:00", "1:07", "1:02:03"]


def test_rich_is_imported_by_what_draws_alone() -> None:
    code = "import sys, rlcpu.train, rlcpu.cli; assert 'rich' not in sys.modules"
    root = str(Path(__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": root}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
