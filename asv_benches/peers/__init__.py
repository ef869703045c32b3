"""Us beside the peers: `python -m asv_benches.peers simulate|collect|train|replay|scan|readme`.

Each row of a table is a duel between ours and one peer, interleaved in one process of its own: a
peer that hangs, crashes or is not installed costs its own row and nothing else. Training runs take
a process each, the agents in turn.

The tables: `simulate`, `collect`, `train`, `replay`, `scan`. The contenders: `ours`, `stepping`
(every vector environment's `step`), `exact`, `cpp`, `jax_simulate`, `jax_collect`, `torch_collect`,
`solve` (training runs), `user_cartpole`; of `replay`, on `replay_calls`: `replay_ours`,
`replay_flashbax`, `replay_trees`, `replay_buffers`, `replay_held` (memory), `replay_post` (weighted
sampling as NumPy and torch do it); of `scan`, on `scan_problems`: `scan_ours`, `scan_tridiagonal`
(and the machine's limit), `scan_jax`, `scan_returns`, `scan_logcumsumexp`, `scan_kalman`; its rows
on tridiagonal systems are in `scan_solves`. The tools: `timing` (interleaving), `duel` (ratios,
best settings), `isolate` (a process under a time limit), `report` (rows, tables, JSON), `readme`
(the figures in README.md), `machine`.
"""
