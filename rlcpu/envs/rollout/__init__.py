"""K steps of N environments and their policy in one call.

Read `collect` (what users call) and `results` (what they get); then `lane_runner` and `compiled` (a
block of environments runs all its steps), `recorders` (what is written of each step) and
`simulations` (where sums alone are kept). `repeat` makes rollouts without Python, `transitions`
says what replay buffers keep of them.
"""
