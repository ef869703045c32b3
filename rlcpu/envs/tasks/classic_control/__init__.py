"""Gymnasium's classic control, ported."""
