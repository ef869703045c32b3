"""Algorithms as functions of a batch: traced once, then run as instructions.

Read `tracing` (an algorithm becomes a tape), `tensors` (what it is called with meanwhile) and
`operations` (what it may write); then `program` (a tape as kernels read it) and `instructions`
(what kernels do).
"""
