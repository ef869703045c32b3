"""The history of our own kernels: `asv run` in the folder of `asv.conf.json`.

What is compiled is compiled in `setup` (asv's own warm-up lasts 0.1 s), and every benchmark carries
a version of its own, so that editing its text does not end its history.
"""
