"""Networks: layers in a graph, where their numbers lie, and how samples pass through them.

Read `graph` (a network as users have it), `plan` (a graph becomes a table of instructions) and
`passes` (samples forward and backward); then `packed` and `acting`, networks inside of rollouts,
and `heads`, by which actions are drawn from their outputs. `scaling` is what stands in front of a
network, `flat` a vector of parameters that is seen as arrays.
"""
