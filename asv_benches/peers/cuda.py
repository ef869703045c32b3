"""Us on an NVIDIA GPU: `python -m asv_benches.peers cuda`.

Every figure is a median in one process, beside the copy bandwidth and the float32 peak that the
same process measures; peers (torch, jax, CuPy, torchrl) take part where they are installed with
CUDA. Under eight minutes on an H100, results in `asv_benches/results/<device>-cuda.json`.

For a machine without a network, where one has it:

    pip download -d wheels . -r asv_benches/peers/requirements-cuda.txt
    pip install --no-index --find-links wheels rlcpu[cuda] pytest    # there
"""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from asv_benches.peers import cuda_rows, machine, report
from asv_benches.peers.cuda_timing import Card, Figure, Sizes, measure_card

BUDGET_S = 420.0  # no row begins later: a row takes up to a minute where kernels are compiled


def main(arguments: list[str] | None = None) -> None:
    """Measures, prints and saves the table; without a GPU, says what is missing."""
    parser = argparse.ArgumentParser(prog="python -m asv_benches.peers cuda", description=__doc__)
    parser.add_argument("--only", metavar="NAME", default="", help="rows whose name contains NAME")
    parser.add_argument("--quick", action="store_true", help="small sizes: figures mean nothing")
    parser.add_argument("--json", metavar="FILE", type=Path, help="where to save the figures")
    options = parser.parse_args([] if arguments is None else arguments)
    from rlcpu.cuda import provider

    if not provider.is_available():
        print(f"no GPU figures: {provider.describe()}; {provider.HINT}")
        return
    sizes = cuda_rows.QUICK if options.quick else cuda_rows.FULL
    card = measure_card(sizes)
    print(f"{card.name}: copies {card.bandwidth / 1e9:,.0f} GB/s, {card.flops / 1e12:.1f} TFLOP/s")
    results = list(measure(sizes, card, options.only))
    path = options.json
    if path is None and not (options.quick or options.only):
        path = report.RESULTS / f"{slug(card.name)}-cuda.json"
    if path is not None:
        save(path, card, results)
        print(f"saved {os.path.relpath(path)}")


def measure(sizes: Sizes, card: Card, only: str = "") -> Iterator[dict[str, Any]]:
    """The rows one by one, printed; a row that cannot be measured says why."""
    begin = time.perf_counter()
    for row in cuda_rows.rows(sizes):
        if only not in row.name:
            continue
        if time.perf_counter() - begin > BUDGET_S:
            figure = Figure(note=f"left out: {BUDGET_S:.0f} s are over")
        else:
            figure = attempt(row, card)
        result = {"name": row.name, "what": row.what, "target": row.target, **figure.as_dict()}
        print(line(result), flush=True)
        yield result


def attempt(row: cuda_rows.Row, card: Card) -> Figure:
    """A row's figure, or the reason why there is none."""
    try:
        return row.measure(card)
    except Exception as error:  # a peer's or a kernel's: the other rows go on
        return Figure(note=f"{type(error).__name__}: {error}"[:300])


def line(result: dict[str, Any]) -> str:
    """One row as it is printed."""
    parts = [f"{result['name']:<34}"]
    if result["seconds"] is not None:
        parts.append(f"{1e6 * result['seconds']:>12,.1f} us")
    if result["rate"] is not None:
        parts.append(f"{result['rate'] / 1e9:>8,.2f} G/s")
    if result["share"] is not None:
        parts.append(f"{100 * result['share']:>4.0f} % of {result['share_of']}")
    parts += [f"{ratio:,.1f}x {peer}" for peer, ratio in result["ratios"].items()]
    parts += [f"(wanted: {result['target']})"] if result["target"] else []
    return "  ".join([*parts, result["note"]]).rstrip()


def slug(name: str) -> str:
    """A name for files, such as "nvidia-h100-80gb-hbm3"."""
    return "-".join(re.findall(r"[a-z0-9.]+", name.lower()))


def save(path: Path, card: Card, results: list[dict[str, Any]]) -> None:
    """Writes the table with the device, what it can do, and versions, as JSON."""
    from rlcpu.cuda import provider

    content = {
        "what": "cuda",
        "device": card._asdict(),
        "provider": provider.describe(),
        "machine": machine.describe(),
        "rows": results,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
