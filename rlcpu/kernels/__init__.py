"""How a scalar function becomes machine code.

`compiler` makes it, `machine` is what kernels are written with, `checks` are for arguments.
"""
