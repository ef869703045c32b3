"""Programs of a workspace: lists of operations on blocks, written once for every size of a problem.

A step of the filter is plain Python that calls methods of a `Program`, each of which appends one
instruction: whole numbers, the operation's code and where in the workspace it works. Kernels, and
plain Python, carry them out (`machine`). So one kernel is all of filter, gradient and smoother: it
compiles in 8 s, where two that held the steps of filter and gradient took 23 to 51.
"""

from __future__ import annotations

from rlcpu.scan.kalman.plan import (
    DESIGN,
    EXPONENT,
    HIDDEN,
    INNOVATION,
    INNOVATIONS,
    MANTISSA,
    MEANS,
    MISSING,
    OBSERVED,
    PRECISION,
    PROJECTED,
    SCORES,
    SQUARE,
    SQUARES,
    ZERO,
    Layout,
    Place,
)

#: Numbers of an instruction.
WORDS = 16
#: Codes of the operations.
(ADD, ADD_ROW, SUBTRACT, RECUR, DOTS, SUM_DOTS, COMBINE, SYMMETRISE) = range(8)
(MASK, UNMASK, INVERT, COPY, PACK, UNPACK) = range(8, 14)


class Program:
    """Instructions, in the order in which the methods are called.

    Blocks are numbers out of `plan`; `~block` is the transposed. The shapes of blocks say how much
    of them takes part. Where `out` is also an operand, it may only be `start`, `x` of `combine`, or
    the whole of it.

    Args:
        layout: of the workspace.
        places: of its blocks.
    """

    def __init__(self, layout: Layout, places: list[Place]) -> None:
        self.layout, self.places = layout, places
        self.words: list[int] = []

    def append(self, code: int, *operands: int) -> None:
        """An instruction."""
        rest = WORDS - 1 - len(operands)
        self.words += [code, *operands, *[0] * rest]

    # ------------------------------------------------------------ matrices

    def add(self, out: int, start: int, left: int, right: int) -> None:
        """Out = start + left @ right."""
        rows = self._shape(left)[0]
        self._product(ADD_ROW if rows == 1 else ADD, out, start, left, right)

    def subtract(self, out: int, start: int, left: int, right: int) -> None:
        """Out = start - left @ right."""
        self._product(SUBTRACT, out, start, left, right)

    def _product(self, code: int, out: int, start: int, left: int, right: int) -> None:
        rows, depth = self._shape(left)
        own, element = self.places[max(left, ~left)], self.layout.element
        down, along = (element, own.row) if left < 0 else (own.row, element)
        ends = [*self.places[out][:2], *self.places[start][:2]]
        factors = [own.at, down, along, *self.places[right][:2], depth]
        self.append(code, *ends, *factors, rows, self.places[out].row // self.layout.width)

    def _shape(self, block: int) -> tuple[int, int]:
        rows, columns = self.places[max(block, ~block)][2:]
        return (columns, rows) if block < 0 else (rows, columns)

    def add_dots(self, out: int, start: int, x: int, y: int, sign: int = 1) -> None:
        """Out = start + sign * x @ y', of two blocks with rows of one size.

        A `start` of `OBSERVED` is its row of the time step.
        """
        one, other = self.places[x], self.places[y]
        ends = [*self.places[out][:2], *self.places[start][:2]]
        pace = self.places[start].row if start == OBSERVED else 0
        sizes = one.rows, other.rows, one.row
        self.append(DOTS, *ends, *one[:2], *other[:2], *sizes, sign, pace)

    def combine(self, out: int, x: int, halves: int, y: int) -> None:
        """Out = x + halves / 2 * y."""
        own = self.places[out]
        operands = [*self.places[x][:2], *self.places[y][:2]]
        self.append(COMBINE, *own[:2], *operands, own.rows, own.row, halves)

    def symmetrise(self, block: int) -> None:
        """Block = (block + block') / 2."""
        self.append(SYMMETRISE, *self.places[block][:3])

    # ------------------------------------------------------------ many time steps at once

    def recur_means(self) -> None:
        """Row i + 1 of `MEANS` = row i @ `SQUARE` + row i + 1 of `OBSERVED` @ `PROJECTED`.

        For the rows up to k.
        """
        means, right, y, gain = (self.places[b] for b in (MEANS, SQUARE, OBSERVED, PROJECTED))
        element, registers = self.layout.element, means.row // self.layout.width
        own = means.at + means.row, means.row
        left = y.at + y.row, y.row, element
        self.append(ADD, *own, self.places[ZERO].at, 0, *left, *gain[:2], y.columns, -1, registers)
        self.append(RECUR, *means[:2], element, *right[:2], means.columns, registers)

    def square_innovations(self) -> None:
        """Add v' M v to `SQUARES` for the k rows from the second one of `OBSERVED` on.

        Their means are in `MEANS`, M in `PRECISION`.
        """
        names = (MEANS, OBSERVED, DESIGN, INNOVATIONS, SCORES, PRECISION, ZERO)
        means, y, design, innovations, scores, precision, zero = (self.places[b] for b in names)
        p, ends = y.columns, (*innovations[:2], y.at + y.row, y.row)
        self.append(DOTS, *ends, *means[:2], *design[:2], -1, p, means.row, -1)
        ends = (*scores[:2], zero.at, 0)
        self.append(DOTS, *ends, *innovations[:2], *precision[:2], -1, p, innovations.row, 1)
        self.append(
            SUM_DOTS, self.places[SQUARES].at, *innovations[:2], *scores[:2], innovations.row
        )

    # ------------------------------------------------------------ observations

    def mask(self) -> None:
        """Missing observations out of `INNOVATION`, `PROJECTED` and, not yet inverted, `PRECISION`.

        Where `INNOVATION` is NaN it becomes 0, and `HIDDEN` 1.
        """
        names = (INNOVATION, HIDDEN, PROJECTED, PRECISION)
        innovation, hidden, projected, precision = (self.places[name] for name in names)
        lines = innovation.at, hidden.at, hidden.columns
        self.append(MASK, *lines, *projected[:2], *precision[:2])

    def unmask(self) -> None:
        """`HIDDEN` ones out of `PRECISION`, inverted, and added to `MISSING`."""
        hidden, precision = self.places[HIDDEN], self.places[PRECISION]
        self.append(UNMASK, hidden.at, hidden.columns, self.places[MISSING].at, *precision[:2])

    def invert(self) -> None:
        """`PRECISION` becomes its inverse, NaN if it is not positive definite.

        The pivots' product times `MANTISSA` and two to the `EXPONENT` replaces these two.
        """
        sums = self.places[MANTISSA].at, self.places[EXPONENT].at
        self.append(INVERT, *self.places[PRECISION][:3], *sums)

    # ------------------------------------------------------------ copies

    def copy(self, to: int, begin: int, size: int, pace: tuple[int, int] = (0, 0)) -> None:
        """Whole registers, by position; step k of a chunk moves both positions by its pace."""
        self.append(COPY, to, begin, size, *pace)

    def pack(self, block: int, which: int, pace: int) -> None:
        """Read the part of input `which` that belongs to a time step, `pace` numbers after another.

        Args:
            block: to be read, `~block` if transposed.
            which: one of `IN_TRANSITION` and so on.
            pace: 0 for an input that does not vary.
        """
        own, element = self.places[max(block, ~block)], self.layout.element
        strides = (element, own.row) if block < 0 else (own.row, element)
        self.append(PACK, own.at, *strides, *self._shape(block), which, pace)

    def unpack(self, block: int, begin: int, pace: int, pitch: int) -> None:
        """Write a block of each model to the output.

        Args:
            block: to be written.
            begin: where in the output that of the first model and time step begins.
            pace: numbers from one time step to the next.
            pitch: numbers from one model to the next.
        """
        self.append(UNPACK, *self.places[block], begin, pace, pitch)
