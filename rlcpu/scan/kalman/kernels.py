"""The kernels of the Kalman functions: one for all of them in a layout, and loops over models."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import prange, types

from rlcpu.kernels.compile import kernel
from rlcpu.kernels.simd import address
from rlcpu.kernels.threads import Kernels
from rlcpu.scan.kalman.passes import make_passes
from rlcpu.scan.kalman.plan import AT_RESULT, BACKWARD, BATCH, Layout
from rlcpu.scan.kalman.vectors import aligned, call_at, inlined, peek, pointer_to, read, write

#: m * m of all models and steps from which a second core is worth waking: 20 us of the smallest.
GRAIN = 2**14
#: What `run_block` is told: addresses of the table and of what `Machine` calls files, and of the
#: log-likelihoods.
(TABLE, OBSERVATIONS, MATRICES, PLACES, OUT, LOGLIKS) = range(6)


def make_run(layout: Layout) -> Any:
    """`run(cells, at, files, logliks, block)`: a register's models, or one; plain Python, too."""
    forward, backward = make_passes(layout)
    element = layout.element

    @inlined
    def run(cells: Any, at: Any, files: tuple[Any, ...], logliks: Any, block: int) -> None:
        first = block * element
        forward(cells, at, files, first)
        if peek(at, BACKWARD) != 0:
            backward(cells, at, files, first)
        for lane in range(min(element, peek(at, BATCH) - first)):
            write(logliks, first + lane, read(cells, peek(at, AT_RESULT) + lane))

    return run


@functools.cache
def _make_block(layout: Layout) -> Any:
    """Kernel of one block of models: `(workspace, orders, block)`, both addresses."""
    run, number = make_run(layout), np.dtype(layout.dtype).type

    @kernel
    def run_block(workspace, orders, block):  # type: ignore[no-untyped-def]
        order = pointer_to(np.int64, orders)
        files = (
            pointer_to(number, peek(order, OBSERVATIONS)),
            pointer_to(number, peek(order, MATRICES)),
            pointer_to(np.int64, peek(order, PLACES)),
            pointer_to(number, peek(order, OUT)),
        )
        at, logliks = pointer_to(np.int64, peek(order, TABLE)), peek(order, LOGLIKS)
        run(pointer_to(number, workspace), at, files, pointer_to(number, logliks), block)

    return run_block


@functools.cache
def block_address(layout: Layout) -> int:
    """Address of the compiled `run_block`, which is called as C calls it."""
    run_block = _make_block(layout)
    run_block.compile((types.int64,) * 3)
    (compiled,) = run_block.overloads.values()
    found: int = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_cfunc_wrapper_name)
    return found


@functools.cache
def drivers() -> Kernels:
    """Loops over blocks: `(function, orders, size, blocks)`.

    `function` is an address from `block_address`, `orders` what it is told, and `size` numbers of
    eight bytes are its workspace. One such loop serves all layouts, and links none of their code.
    """
    return Kernels(_make_driver(False), _make_driver(True), GRAIN)


def _make_driver(parallel: bool) -> Any:
    @kernel(parallel=parallel)
    def run_blocks(function, orders, size, blocks):  # type: ignore[no-untyped-def]
        for block in prange(blocks):
            memory = np.zeros(size, np.int64)
            call_at(function, aligned(memory), address(orders), block)
            memory[0] = 0  # keeps it alive until now: an address does not

    return run_blocks
