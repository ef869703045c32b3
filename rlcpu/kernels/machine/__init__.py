"""What kernels are written with: vectors, memory, random numbers, threads, structs.

Each file stands alone. `structs` is how a compiled function is handed its arguments, `stages` how
kernels and Python call one after the other, `rows` and `memory` how it reads and writes, `vectors`
and `matmul` how it computes, `random`, `random_methods` and `distributions` how it draws, `boards`
and `tuples` how states hold more than numbers, `threads` and `processors` how work is divided.
"""
