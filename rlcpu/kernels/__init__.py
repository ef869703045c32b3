"""How a scalar function becomes machine code: compilation, maths, random numbers, threads."""
