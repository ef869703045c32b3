"""Gymnasium's small games, whose observation is one whole number."""
