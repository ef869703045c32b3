"""A set of up to 128 cells, such as the bricks on a board: an int in Python, two words in kernels.

Kernels hold a board as two uint64, on which every operation is a handful of instructions without a
branch, so that loops over environments vectorise.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import (
    intrinsic,
    make_attribute_wrapper,
    models,
    overload,
    overload_method,
    register_model,
    typeof_impl,
)

from rlcpu.kernels.compiler import hooks
from rlcpu.kernels.compiler.compile import INLINE, inline
from rlcpu.kernels.machine.memory import pointer_at
from rlcpu.kernels.machine.vectors import lowest_bit

#: Cells of a board.
CELLS = 128
_ALL = (1 << CELLS) - 1


class Board(int):
    """A set of cells 0 to 127, which never changes: every operation gives a new board.

    Cell k is bit k of a whole number, so that `&`, `|`, `^`, `~`, `<<` and `>>` work on all cells
    at once; what a shift moves beyond the last cell is lost. A board is true if it has a cell.

    In plain Python a cell that is not in 0 to 127 raises ValueError; in kernels nothing is raised,
    and such a cell is in no board.

    Example:
        >>> board = Board().set(3).set(100)
        >>> board.count(), board.test(100), (board >> 3).test(0), board.clear(3).count()
        (2, True, True, 1)
    """

    def __new__(cls, bits: int = 0) -> Board:
        """Return the board of a whole number.

        Args:
            bits: below 2**128; bit k says whether cell k is in the set.

        Raises:
            TypeError: bits is no whole number.
            ValueError: bits is negative or has more than 128 bits.
        """
        if isinstance(bits, float) or not hasattr(bits, "__index__"):
            raise TypeError(f"bits={bits!r}: expected a whole number")
        if not 0 <= bits <= _ALL:
            raise ValueError(f"bits={bits}: expected 0 to 2**128 - 1")
        return super().__new__(cls, int(bits))

    def set(self, cell: int) -> Board:
        """Return this board with one more cell."""
        return self | _board_of(cell)

    def clear(self, cell: int) -> Board:
        """Return this board without one cell."""
        return self & ~_board_of(cell)

    def test(self, cell: int) -> bool:
        """Tell whether a cell is in the set."""
        return bool(self & _board_of(cell))

    def count(self) -> int:
        """Return the number of cells in the set."""
        return self.bit_count()

    def lowest(self) -> int:
        """Return the lowest cell in the set; -1 of no cells."""
        return (int(self) & -int(self)).bit_length() - 1

    def nth(self, k: int) -> int:
        """Return the cell of the set that has k cells below it in the set; -1 if there is none.

        `free.nth(rng.integers(free.count()))` is a random one.
        """
        bits = int(self)
        for _ in range(k):
            bits &= bits - 1
        return Board(bits).lowest() if k >= 0 and bits else -1

    def __and__(self, other: int) -> Board:
        return Board(int(self) & int(other))

    def __or__(self, other: int) -> Board:
        return Board(int(self) | int(other))

    def __xor__(self, other: int) -> Board:
        return Board(int(self) ^ int(other))

    def __invert__(self) -> Board:
        return Board(int(self) ^ _ALL)

    def __lshift__(self, cells: int) -> Board:
        return Board((int(self) << int(cells)) & _ALL) if cells < CELLS else Board()

    def __rshift__(self, cells: int) -> Board:
        return Board(int(self) >> int(cells))

    def __repr__(self) -> str:
        return f"Board({int(self):#x})"


def _board_of(cell: int) -> Board:
    if not 0 <= cell < CELLS:
        raise ValueError(f"cell={cell}: a Board has the cells 0 to {CELLS - 1}")
    return Board(1 << int(cell))  # NumPy's integers have 64 bits


# ---------------------------------------------------------------- what numba is taught


class BoardType(types.Type):
    """Numba's type of a board."""

    def __init__(self) -> None:
        super().__init__(name="Board")


BOARD = BoardType()
_u64, _ZERO, _ONE = np.uint64, np.uint64(0), np.uint64(1)
_HALVES = tuple(map(np.uint64, (32, 16, 8, 4, 2, 1)))
_SIX, _LAST = np.uint64(6), np.uint64(63)


@register_model(BoardType)
class _BoardModel(models.StructModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, [("low", types.uint64), ("high", types.uint64)])


make_attribute_wrapper(BoardType, "low", "low")
make_attribute_wrapper(BoardType, "high", "high")


@typeof_impl.register(Board)
def _typeof(value: Board, context: Any) -> BoardType:
    return BOARD


@hooks.lower_constant(BoardType)
def _constant(context: Any, builder: Any, kind: Any, value: int) -> Any:
    words = divmod(int(value), 2**64)[::-1]
    return ir.Constant.literal_struct([ir.Constant(ir.IntType(64), word) for word in words])


@intrinsic
def board_of_words(typing, low, high):
    """Return the board of two uint64."""

    def generate(context, builder, signature, args):
        board = cgutils.create_struct_proxy(BOARD)(context, builder)
        board.low, board.high = args
        return board._getvalue()

    return BOARD(types.uint64, types.uint64), generate


@intrinsic
def _count_bits(typing, word):
    """Return how many bits of a uint64 are set, as int64."""
    return types.int64(types.uint64), lambda _, builder, __, args: builder.ctpop(args[0])


@overload(Board, jit_options=INLINE)
def _make_board(bits=None):
    """Teach numba `Board(bits)`, of a whole number of 64 bits or of a board."""
    if bits is None:
        return lambda bits=None: board_of_words(_ZERO, _ZERO)
    if isinstance(bits, BoardType):
        return lambda bits=None: bits
    is_whole = isinstance(bits, types.Integer)
    return (lambda bits=None: board_of_words(_u64(bits), _ZERO)) if is_whole else None


@overload(_board_of, jit_options=INLINE)
def _make_cell(cell):
    """Teach numba the board of one cell, and of none where the cell is not in 0 to 127."""

    def board_of(cell):
        n = _u64(cell)  # of a negative cell a large number
        bit, word = _u64(_ONE << (n & _LAST)), n >> _SIX  # cell n is bit n % 64 of word n // 64
        return board_of_words(bit if word == _ZERO else _ZERO, bit if word == _ONE else _ZERO)

    return board_of


def _shift_left(board, other):
    """Return `board << other`: cells move to higher numbers.

    They move by whole words, and by 0 to 63 bits. A processor's shift by 64 is one by 0: what goes
    from the low word to the high one, `low >> (64 - by)`, is shifted in two steps of at most 63.
    """
    n = _u64(other)
    by, words = n & _LAST, n >> _SIX
    low = _u64(board.low << by)
    high = _u64(board.high << by) | _u64((board.low >> _ONE) >> (_LAST - by))
    return board_of_words(
        low if words == _ZERO else _ZERO,
        high if words == _ZERO else (low if words == _ONE else _ZERO),
    )


def _shift_right(board, other):
    """Return `board >> other`: cells move to lower numbers, as in `_shift_left`."""
    n = _u64(other)
    by, words = n & _LAST, n >> _SIX
    high = _u64(board.high >> by)
    low = _u64(board.low >> by) | _u64((board.high << _ONE) << (_LAST - by))
    return board_of_words(
        low if words == _ZERO else (high if words == _ONE else _ZERO),
        high if words == _ZERO else _ZERO,
    )


def _teach(operation: Any, code: Callable[..., Any], other: type | None = None) -> None:
    """Teach numba an operation on a board, and on an operand of the class `other` if that is given.

    `code` is what numba compiles for it.
    """

    # Not annotated, as the implementations are not: numba compares all of the signatures.
    def choose_for_one(board):
        return code if isinstance(board, BoardType) else None

    def choose_for_two(board, other):
        return code if isinstance(board, BoardType) and isinstance(other, kind) else None

    kind: Any = other  # in the function above, `other` is an argument
    overload(operation, jit_options=INLINE)(choose_for_two if other else choose_for_one)


def _teach_method(name: str) -> None:
    """Teach numba a method that takes a cell, by compiling its Python code."""
    code = getattr(Board, name)

    def choose(self, cell):
        return code if isinstance(cell, types.Integer) else None

    choose.__annotations__ = code.__annotations__  # numba compares all of the signatures
    overload_method(BoardType, name, jit_options=INLINE)(choose)


def _teach_bits(operation: Any) -> None:
    """Teach numba an operation on two boards that works on each bit."""

    def combine(board, other):
        return board_of_words(operation(board.low, other.low), operation(board.high, other.high))

    _teach(operation, combine, BoardType)


def _teach_comparison(operation: Any, with_empty: Any) -> None:
    """Teach numba to compare two boards, and by `with_empty` a board with the one of no cells."""

    def compare(board, other):
        return operation((board.low ^ other.low) | (board.high ^ other.high), _ZERO)

    _teach(operation, compare, BoardType)
    _teach(with_empty, lambda board: operation(board.low | board.high, _ZERO))


for _name in ("set", "clear", "test"):
    _teach_method(_name)
for _operation in (operator.and_, operator.or_, operator.xor):
    _teach_bits(_operation)
_teach_comparison(operator.ne, bool)
_teach_comparison(operator.eq, operator.not_)
_teach(operator.invert, lambda board: board_of_words(~board.low, ~board.high))
_teach(operator.lshift, _shift_left, types.Integer)
_teach(operator.rshift, _shift_right, types.Integer)


@overload_method(BoardType, "count", jit_options=INLINE)
def _count(self):
    """Teach numba `Board.count`."""
    return lambda self: _count_bits(self.low) + _count_bits(self.high)


@overload_method(BoardType, "lowest", jit_options=INLINE)
def _lowest(self):
    """Teach numba `Board.lowest`: the lowest cell that is set, -1 if none is."""

    def lowest(self):
        low = np.int64(lowest_bit(self.low))
        high = np.int64(64) + lowest_bit(self.high) if self.high != _ZERO else np.int64(-1)
        return low if self.low != _ZERO else high

    return lowest


@overload_method(BoardType, "nth", jit_options=INLINE)
def _nth(self, k):
    """Teach numba `Board.nth`: the number of the k-th cell that is set, -1 if there are fewer."""
    if not isinstance(k, types.Integer):
        return None

    def nth(self, k):
        """Search for the cell by halves, without a branch.

        Of 64 cells go to the upper half, 32 cells, if k or fewer are set in the lower one, and so
        on; k then counts from the half's begin.
        """
        remaining, in_lower = np.int64(k), _count_bits(self.low)
        is_upper = remaining >= in_lower
        word = self.high if is_upper else self.low
        remaining -= in_lower if is_upper else 0
        cell = np.int64(64) if is_upper else np.int64(0)
        for half in _HALVES:
            lower = word & ((_ONE << half) - _ONE)
            in_lower = _count_bits(lower)
            is_upper = remaining >= in_lower
            remaining -= in_lower if is_upper else 0
            word = word >> half if is_upper else word
            cell += np.int64(half) if is_upper else 0
        # One cell is left: it is set, and the k-th, unless there are fewer.
        return cell if (k >= 0) & (remaining == 0) & ((word & _ONE) != _ZERO) else np.int64(-1)

    return nth


# ---------------------------------------------------------------- cells as numbers


_HALF = CELLS // 2  # cells of a word of 64 bits


@inline
def append_cells(words, at, stride, planes, cells, columns, count):
    """Append to `columns` the numbers of the cells that are set, plane after plane.

    Args:
        words: array of words of 32 cells each, four words to a plane.
        at: index of the first word.
        stride: distance between words.
        planes: number of planes.
        cells: of a plane; cell c of plane p has the number p * cells + c.
        columns: written from position `count` on.
        count: how many numbers are in `columns` before.

    Returns:
        How many numbers are in `columns` afterwards.
    """
    word_bits, all_bits = _u64(32), ~_ZERO
    for p in range(planes):
        for begin in range(0, 2 * _HALF, _HALF):  # first cell of a half of the plane
            half = _u64(words[at]) | _u64(words[at + stride]) << word_bits
            size = min(cells - begin, _HALF)
            half &= all_bits >> _u64(_HALF - size) if size > 0 else _ZERO  # its cells alone
            while half != _ZERO:
                columns[count] = p * cells + begin + lowest_bit(half)
                half &= half - _ONE  # without its lowest cell
                count += 1
            at += 2 * stride
    return count


@functools.cache
def make_store_bits(count: int) -> Any:
    """Make an intrinsic (array, index, word) that stores bits of a uint64 as numbers 0 and 1.

    Bits 0 to `count` - 1 go to array[index] and on. The array is flat, of any type of numbers.
    Parts of 64, 32, ... bits, whose sum is `count`, are one store each: LLVM takes the bits of a
    part as a vector of flags, and converts it. A loop over single bits takes seven times as long.
    """
    sizes = [size for size in (64, 32, 16, 8, 4, 2, 1) if count & size]

    @intrinsic
    def store_bits(typing, array, index, word):
        """Write bits of `word` to `array` from `index` on, as numbers 0 and 1."""

        def generate(context, builder, signature, args):
            start, first, bits = args
            number, bytes_of_number = context.get_data_type(array.dtype), array.dtype.bitwidth // 8
            convert = builder.uitofp if isinstance(array.dtype, types.Float) else builder.zext
            begin = 0
            for size in sizes:
                part = builder.lshr(bits, ir.Constant(ir.IntType(64), begin))
                part = part if size == 64 else builder.trunc(part, ir.IntType(size))
                flags = builder.bitcast(part, ir.VectorType(ir.IntType(1), size))
                values = convert(flags, ir.VectorType(number, size))
                place = builder.add(first, first.type(begin))
                pointer = pointer_at(context, builder, array, start, place, to=values.type)
                builder.store(values, pointer, align=bytes_of_number)
                begin += size
            return context.get_dummy_value()

        return types.void(array, types.intp, types.uint64), generate

    return store_bits
