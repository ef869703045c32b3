"""Us beside the peers: `python -m asv_benches.peers all report readme`, or some tables by name.

Each row of a table is a duel between ours and one peer, interleaved in one process of its own: a
peer that hangs, crashes or is not installed costs its own row and nothing else. Every row is merged
into the saved figures as it comes; the page and README.md's figures are written from those.

`harness` measures, `rows` judges, prints and saves, `suite` lists the tables. A table is a chapter:
its rows, then everybody's way to do the work: `simulate`, `collect`, `games`, `arrays`, `mujoco`
(all on `stepping`), `replay` (with `reports` on replay buffers), `scan` (with `recurrences`),
`train`, `agents` (with `weighted`), `distributed`, `paper` and, on a GPU, `cuda`. `report` makes
the page and `pictures` what it shows, and `readme` the figures in README.md; `report.toml` has
their words.
"""
