"""What agents with replay keep and draw.

Read `buffers.py` first, the buffer of transitions; then `replayed.py`, sequences for networks with
memory. `rlcpu.train.from_buffer` learns from both.
"""
