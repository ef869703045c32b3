"""What happens while agents run: they act, are evaluated, watched, interrupted and diagnosed.

Read `actors.py` first, the policies that explore, and `sequences.py`, how rollouts become
sequences; then `evaluate.py`, `evaluations.py` and `upkeep.py`, episodes on the way and what
follows from them; `advice.py` and `diagnosis.py` look at what is learnt from; `interrupts.py` lets
Ctrl-C wait, and `precompile.py` compiles in a second process.
"""
