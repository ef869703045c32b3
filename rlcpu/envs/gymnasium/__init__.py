"""Gymnasium's environments that are not ours, stepped in Python."""
