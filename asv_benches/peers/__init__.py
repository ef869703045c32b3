"""Us beside the peers: `python -m asv_benches.peers all`, `report`, `readme`, or one table by name.

Each row of a table is a duel between ours and one peer, interleaved in one process of its own: a
peer that hangs, crashes or is not installed costs its own row and nothing else. Training runs take
a process each, the agents in turn. `all` measures whatever is not measured yet, within a time, and
writes one HTML report; the same command goes on where it stopped.

The tables: `simulate`, `collect`, `train`, `replay`, `scan`, `sources` (scripts of the reports that
the library answers) and `paper` (the figures of a paper); `printed` holds what those sources
printed. The contenders: `ours`, `stepping` (every vector environment's `step`), `exact`, `cpp`,
`jax_simulate`, `jax_collect`, `torch_simulate`, `torch_collect`, `gymnax_simulate`, `solve`
(training runs), `user_cartpole`, `factors` (CartPole made heavier); of `replay`, on `replay_calls`:
`replay_ours`, `replay_flashbax`, `replay_trees`, `replay_buffers`, `replay_held` (memory),
`replay_post` (weighted sampling as NumPy and torch do it); of `scan`, on `scan_problems`:
`scan_ours`, `scan_tridiagonal` (and the machine's limit), `scan_jax`, `scan_returns`,
`scan_logcumsumexp`, `scan_kalman`; its rows on tridiagonal systems are in `scan_solves`; of
`paper`, `paper_calls` and `paper_factors`. `cuda` is a table of its own, of a GPU. The tools:
`timing` (interleaving), `duel` (ratios, best settings), `panel` (many contenders, one point of
every curve), `isolate` (a process under a time limit), `report` (rows, tables, JSON), `suite`
(`all`), `machine`; of the report `page`, `chapters`, `chapter_paper`, `pictures`, `saved`; and
`readme` (the figures in README.md).
"""
