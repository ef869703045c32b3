"""Register tiles: the matrix products of the Kalman filter.

LLVM keeps no block of a product in registers across the contraction by itself; a tile does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import types

from rlcpu.kernels.vectors import call, cgutils, splat, suffix
from rlcpu.scan.kalman.vectors import read_register, register_of, teach, write_register

_I64 = ir.IntType(64)


def make_tile(rows: int, registers: int, across: bool, sign: int) -> Any:
    """`tile`: out = start + sign * left @ right, for `rows` x `registers` registers of `out`.

    `tile(cells, out, out_row, start, start_row, left, down, along, right, right_row, depth,
    last_row, last_register)`: matrices are positions and strides; rows and registers beyond the
    last are computed as the last. `left` is read number by number, a register each with `across`,
    spread without; all others in whole registers, one after the other.
    """
    tile = _make_plain(rows, registers, sign)
    teach(tile, _type_tile, _Tile(rows, registers, across, sign).build)
    return tile


def _make_plain(rows: int, registers: int, sign: int) -> Any:
    """The tile in plain Python, on registers of one number."""

    def tile(
        cells: Any,
        out: int,
        out_row: int,
        start: int,
        start_row: int,
        left: int,
        down: int,
        along: int,
        right: int,
        right_row: int,
        depth: int,
        last_row: int,
        last_register: int,
    ) -> None:
        places = [(i, j) for i in range(rows) for j in range(registers)]
        places = [(i, j) for i, j in places if i <= last_row and j <= last_register]
        found = [
            cells[start + i * start_row + j]
            + sign
            * sum(
                cells[left + i * down + k * along] * cells[right + j + k * right_row]
                for k in range(depth)
            )
            for i, j in places
        ]
        for (i, j), value in zip(places, found, strict=True):
            cells[out + i * out_row + j] = value

    return tile


def _type_tile(
    cells: Any,
    out: Any,
    out_row: Any,
    start: Any,
    start_row: Any,
    left: Any,
    down: Any,
    along: Any,
    right: Any,
    right_row: Any,
    depth: Any,
    last_row: Any,
    last_register: Any,
) -> Any:
    return types.void


class _Tile(NamedTuple):
    """Code of a tile; see `make_tile`."""

    rows: int
    registers: int
    across: bool
    sign: int

    def build(self, builder: Any, kinds: Any, cells: Any, *numbers: Any) -> None:
        out, out_row, start, start_row, *rest = numbers
        left, down, along, right, right_row, depth, last_row, last_register = rest
        dtype = kinds[0].dtype
        width = ir.Constant(_I64, register_of(dtype).count)

        def places(at: Any, row: Any) -> list[Any]:
            return [
                builder.gep(cells, [builder.add(builder.add(at, i), j)])
                for i in _multiples(builder, self.rows, last_row, row)
                for j in _multiples(builder, self.registers, last_register, width)
            ]

        sums = [
            cgutils.alloca_once_value(builder, read_register(builder, pointer, dtype))
            for pointer in places(start, start_row)
        ]
        lefts = [builder.add(left, i) for i in _multiples(builder, self.rows, last_row, down)]
        steps = _multiples(builder, self.registers, last_register, width)
        rights = [builder.add(right, j) for j in steps]
        with _loop(builder, depth, [along, right_row]) as (across, ahead):
            columns = [self._cell(builder, cells, at, ahead, True, dtype) for at in rights]
            factors = [self._cell(builder, cells, at, across, self.across, dtype) for at in lefts]
            if self.sign < 0:
                factors = [builder.fneg(factor) for factor in factors]
            pairs = [(factor, column) for factor in factors for column in columns]
            for pair, cell in zip(pairs, sums, strict=True):
                operands = [*pair, builder.load(cell)]
                kind = operands[0].type
                total = call(builder, f"llvm.fma.{suffix(kind)}", kind, operands)
                builder.store(total, cell)
        for pointer, cell in zip(places(out, out_row), sums, strict=True):
            write_register(builder, builder.load(cell), pointer, dtype)

    @staticmethod
    def _cell(builder: Any, cells: Any, at: Any, by: Any, whole: bool, dtype: Any) -> Any:
        pointer = builder.gep(cells, [builder.add(at, by)])
        if whole:
            return read_register(builder, pointer, dtype)
        return splat(builder, builder.load(pointer), register_of(dtype).count)


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
