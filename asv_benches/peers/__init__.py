"""Us beside the peers: `python -m asv_benches.peers all`, `report`, `readme`, or one table by name.

Each row of a table is a duel between ours and one peer, interleaved in one process of its own: a
peer that hangs, crashes or is not installed costs its own row and nothing else. Training runs take
a process each, the agents in turn. `all` measures whatever is not measured yet, within a time, and
writes one HTML report; the same command goes on where it stopped.

`harness` measures, `rows` judges, prints and saves, `suite` lists the tables. A table is a chapter:
its rows, then everybody's way to do the work: `simulate`, `collect`, `replay` (with `reports` on
replay buffers), `scan` (with `recurrences`), `train` (with `solve`, one training run), `paper` and,
on a GPU, `cuda`. `report` makes the page and `pictures` what it shows, and `readme` the figures in
README.md.
"""
