"""Settings of agents: what they may be, and which ones an environment gets.

Read `base.py` first, the checks of every field by its name and how numbers change; then
`arguments.py`, what agents and `learn` are given, `presets.py`, which layers a name of a network
stands for, `tuned.py`, the algorithm and the steps of an environment, and `algorithms.py`, their
names. What is tuned for an algorithm stands in the algorithm's own file.
"""
