"""From plain Python functions to machine code on disk.

Read `functions` (what a function reaches, and its hash), then `compile` (a scalar function becomes
one of a dtype, a loop a kernel), `cache` (files of machine code) and `announce`. `maths` has what
takes the place of `math.*`. Behind them: `linking` and `user_compiler`, which compile users' own
functions, `guard`, `statements` and `source`, which keep their mistakes from becoming crashes, and
`hooks`, what we use of numba that is not made for users.
"""
