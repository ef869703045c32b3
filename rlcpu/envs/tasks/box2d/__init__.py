"""Gymnasium's tasks of Box2D, without Box2D."""
