"""The tables by name, in the order in which `all` measures them."""

from __future__ import annotations

from asv_benches.peers import collect, paper, replay, scan, simulate, sources, train

TABLES = {
    "simulate": simulate.rows,
    "collect": collect.rows,
    "replay": replay.rows,
    "scan": scan.rows,
    "train": train.rows,
    "sources": sources.rows,
    "paper": paper.rows,
}
