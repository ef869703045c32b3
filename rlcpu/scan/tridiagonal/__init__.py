"""Batched tridiagonal systems: solved, factored, differentiated."""
