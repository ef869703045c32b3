"""What is kept of an agent: its progress, its curve, and files.

Read `history.py` first, what `learn` returns; then `files.py`, files that are there whole or not at
all, `checkpoint.py`, what a file of an agent holds, and `saved.py`, how an agent gets there and
back.
"""
