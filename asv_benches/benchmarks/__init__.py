"""The history of our own kernels: `asv run` in the folder of `asv.conf.json`.

What is compiled is compiled in `setup` (asv's own warm-up is too short for it), and every benchmark
carries a version of its own, so that editing its text does not end its history. A commit that lacks
what a benchmark measures shows "n/a". `milestones` is the short list for `asv_benches.history`.
"""
