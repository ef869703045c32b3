"""Register tiles: the matrix products of the Kalman filter.

LLVM keeps no block of a product in registers across the contraction by itself; a tile does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import types

from rlcpu.scan.kalman.vectors import (
    Register,
    cgutils,
    intrinsic,
    multiply_add,
    read_register,
    splat,
    write_register,
)

_I64 = ir.IntType(64)


def make_tile(rows: int, vectors: int, across: bool, sign: int) -> Any:
    """Intrinsic: out = start + sign * left @ right, for `rows` x `vectors` registers of `out`.

    `tile(cells, (out, row), (start, row), (left, row, column), (right, row), depth, last_row,
    last_register)`: matrices are positions and strides; rows and registers beyond the last are
    computed as the last. `left` is read number by number, a register each with `across`, spread
    without; all others in whole registers, one after the other.
    """
    build = _Tile(rows, vectors, across, sign)

    @intrinsic
    def tile(typing, cells, out, start, left, right, depth, last_row, last_register):  # type: ignore[no-untyped-def]
        ints = (types.intp,) * 3
        return types.void(cells, out, start, left, right, *ints), build

    return tile


class _Tile(NamedTuple):
    """Code of a tile; see `make_tile`."""

    rows: int
    registers: int
    across: bool
    sign: int

    def __call__(self, context: Any, builder: Any, signature: Any, args: Any) -> Any:
        cells, out, start, left, right, depth, last_row, last_register = args
        register = Register(signature.args[0].dtype)
        width = ir.Constant(_I64, register.count)

        def places(matrix: Any) -> list[Any]:
            at, row = cgutils.unpack_tuple(builder, matrix)
            return [
                builder.gep(cells, [builder.add(builder.add(at, i), j)])
                for i in _multiples(builder, self.rows, last_row, row)
                for j in _multiples(builder, self.registers, last_register, width)
            ]

        sums = [
            cgutils.alloca_once_value(builder, read_register(builder, pointer, register))
            for pointer in places(start)
        ]
        at, row, column = cgutils.unpack_tuple(builder, left)
        lefts = [builder.add(at, i) for i in _multiples(builder, self.rows, last_row, row)]
        at, row = cgutils.unpack_tuple(builder, right)
        steps = _multiples(builder, self.registers, last_register, width)
        rights = [builder.add(at, j) for j in steps]
        with _loop(builder, depth, [column, row]) as (along, down):
            columns = [self._cell(builder, cells, at, down, True, register) for at in rights]
            factors = [self._cell(builder, cells, at, along, self.across, register) for at in lefts]
            if self.sign < 0:
                factors = [builder.fneg(factor) for factor in factors]
            pairs = [(factor, column) for factor in factors for column in columns]
            for pair, cell in zip(pairs, sums, strict=True):
                builder.store(multiply_add(builder, register, *pair, builder.load(cell)), cell)
        for pointer, cell in zip(places(out), sums, strict=True):
            write_register(builder, builder.load(cell), pointer, register)
        return context.get_dummy_value()

    @staticmethod
    def _cell(builder: Any, cells: Any, at: Any, by: Any, whole: bool, register: Register) -> Any:
        pointer = builder.gep(cells, [builder.add(at, by)])
        if whole:
            return read_register(builder, pointer, register)
        return splat(builder, builder.load(pointer), register)


@contextmanager
def _loop(builder: Any, count: Any, strides: list[Any]) -> Iterator[list[Any]]:
    """Loop of at least one pass; yields 0, 1, ... times each stride.

    LLVM may not unroll the loop: unrolled, a product of 2 x 2 takes 26 ns instead of 12.
    """
    before, body = builder.block, builder.append_basic_block("product")
    builder.branch(body)
    builder.position_at_end(body)
    indices = [builder.phi(_I64) for _ in range(1 + len(strides))]
    yield indices[1:]
    ones = [ir.Constant(_I64, 1), *strides]
    following = [builder.add(index, by) for index, by in zip(indices, ones, strict=True)]
    for index, after in zip(indices, following, strict=True):
        index.add_incoming(ir.Constant(_I64, 0), before)
        index.add_incoming(after, builder.block)
    after = builder.append_basic_block("product.end")
    branch = builder.cbranch(builder.icmp_signed("<", following[0], count), body, after)
    hint = builder.module.add_metadata(["llvm.loop.unroll.disable"])
    label = builder.module.add_metadata([hint, body.name])
    label.operands = (label, hint)  # LLVM wants the list of a loop's hints to begin with itself
    branch.set_metadata("llvm.loop", label)
    builder.position_at_end(after)


def _multiples(builder: Any, count: int, last: Any, stride: Any) -> list[Any]:
    """0, 1, ... times the stride, up to the last and then that again."""
    found = []
    for number in (ir.Constant(_I64, n) for n in range(count)):
        clamped = builder.select(builder.icmp_signed("<", number, last), number, last)
        found.append(builder.mul(clamped, stride))
    return found
