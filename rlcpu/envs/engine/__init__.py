"""The engine: what steps environments, and the loops in which policies act in them."""
