"""Algorithms as functions of a batch: traced once into a program, a list of instructions.

Read `tracing` (an algorithm becomes a tape), `tensors` (what it is called with meanwhile) and
`operations` (what it may write); then `program`, a tape as kernels read it. `refusals` has what
tensors refuse.
"""
