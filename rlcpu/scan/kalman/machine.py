"""Carries out programs: compiled for all models and sizes of a layout, and in plain Python."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from rlcpu.scan.kalman import program as codes
from rlcpu.scan.kalman.operations import make_operations
from rlcpu.scan.kalman.plan import (
    AT_OBSERVED,
    BATCH,
    IN_OBSERVATIONS,
    OBSERVATION,
    OBSERVED_ROW,
    PROGRAMS,
    Layout,
)
from rlcpu.scan.kalman.vectors import called, inlined, load, peek, read, store, write


class Machine(NamedTuple):
    """What passes over time are made of, in one layout.

    `files` are pointers, in plain Python flat arrays: all observations, all matrices, where each
    model's part of each input begins (batch * 7,), and the output. `first` is the model of the
    workspace's first lane. Lanes beyond the last model repeat it, and are not written.

    Attributes:
        execute: `(cells, at, number, files, first, t, k)`: the program of that number, at time step
            t, which is number k of its chunk.
        observe: `(cells, at, count, files, first, begin)`: reads the observations of `count` time
            steps, those of a chunk.
        copy: `(cells, to, begin, size)`: whole registers, by position.
    """

    execute: Any
    observe: Any
    copy: Any


@functools.cache
def make_machine(layout: Layout) -> Machine:
    """The machine of one layout."""
    copy = _make_copy(layout)
    execute = _make_execute(layout, copy, _make_pack(layout), _make_unpack(layout))
    return Machine(execute, _make_observe(layout), copy)


def _make_execute(layout: Layout, copy: Any, pack: Any, unpack: Any) -> Any:
    words = codes.WORDS
    compute = _make_compute(layout)

    @called
    def execute(
        cells: Any, at: Any, number: int, files: tuple[Any, ...], first: int, t: int, k: int
    ) -> None:
        code, end = peek(at, PROGRAMS + number), peek(at, PROGRAMS + number + 1)
        while code < end:
            kind = peek(at, code)
            if kind == codes.COPY:
                to = peek(at, code + 1) + k * peek(at, code + 4)
                begin = peek(at, code + 2) + k * peek(at, code + 5)
                copy(cells, to, begin, peek(at, code + 3))
            elif kind == codes.PACK:
                pack(cells, at, code, files, first, t)
            elif kind == codes.UNPACK:
                unpack(cells, at, code, files[3], first, t)
            else:
                compute(cells, at, code, kind, k)
            code += words

    return execute


def _make_compute(layout: Layout) -> Any:
    """The operations on matrices."""
    own = make_operations(layout)
    add, add_row, subtract, recur = own.add, own.add_row, own.subtract, own.recur
    dots, sum_dots, combine, symmetrise = own.dots, own.sum_dots, own.combine, own.symmetrise
    mask, unmask, invert = own.mask, own.unmask, own.invert

    @inlined
    def compute(cells: Any, at: Any, code: int, kind: int, k: int) -> None:
        if kind == codes.ADD:
            add(cells, at, code, k)
        elif kind == codes.ADD_ROW:
            add_row(cells, at, code, k)
        elif kind == codes.SUBTRACT:
            subtract(cells, at, code, k)
        elif kind == codes.RECUR:
            recur(cells, at, code, k)
        elif kind == codes.DOTS:
            dots(cells, at, code, k)
        elif kind == codes.SUM_DOTS:
            sum_dots(cells, at, code, k)
        elif kind == codes.COMBINE:
            combine(cells, at, code, k)
        elif kind == codes.SYMMETRISE:
            symmetrise(cells, at, code, k)
        elif kind == codes.MASK:
            mask(cells, at, code, k)
        elif kind == codes.UNMASK:
            unmask(cells, at, code, k)
        else:
            invert(cells, at, code, k)

    return compute


def _make_copy(layout: Layout) -> Any:
    width = layout.width

    @inlined
    def copy(cells: Any, to: int, begin: int, size: int) -> None:
        for k in range(0, size, width):
            store(cells, to + k, load(cells, begin + k))

    return copy


def _make_pack_lane(layout: Layout) -> Any:
    """Reads one model's matrix, from `begin` on, into its lane of a block."""

    @inlined
    def pack_lane(
        cells: Any,
        to: int,
        strides: tuple[int, int],
        shape: tuple[int, int],
        array: Any,
        begin: int,
    ) -> None:
        for i in range(shape[0]):
            for j in range(shape[1]):
                number = read(array, begin + i * shape[1] + j)
                write(cells, to + i * strides[0] + j * strides[1], number)

    return pack_lane


def _make_pack(layout: Layout) -> Any:
    element, pack_lane = layout.element, _make_pack_lane(layout)

    @inlined
    def pack(cells: Any, at: Any, code: int, files: tuple[Any, ...], first: int, t: int) -> None:
        strides = peek(at, code + 2), peek(at, code + 3)
        shape = peek(at, code + 4), peek(at, code + 5)
        which, shift = peek(at, code + 6), t * peek(at, code + 7)
        for lane in range(element):
            model = min(first + lane, peek(at, BATCH) - 1)
            begin = peek(files[2], 7 * model + which) + shift
            pack_lane(cells, peek(at, code + 1) + lane, strides, shape, files[1], begin)

    return pack


def _make_observe(layout: Layout) -> Any:
    element, pack_lane = layout.element, _make_pack_lane(layout)

    @inlined
    def observe(
        cells: Any, at: Any, count: int, files: tuple[Any, ...], first: int, begin: int
    ) -> None:
        to, row, p = peek(at, AT_OBSERVED), peek(at, OBSERVED_ROW), peek(at, OBSERVATION)
        for lane in range(element):
            model = min(first + lane, peek(at, BATCH) - 1)
            source = peek(files[2], 7 * model + IN_OBSERVATIONS) + begin * p
            pack_lane(cells, to + lane, (row, element), (count, p), files[0], source)

    return observe


def _make_unpack(layout: Layout) -> Any:
    element = layout.element

    @inlined
    def unpack(cells: Any, at: Any, code: int, array: Any, first: int, t: int) -> None:
        begin, row = peek(at, code + 1), peek(at, code + 2)
        rows, columns = peek(at, code + 3), peek(at, code + 4)
        to = peek(at, code + 5) + t * peek(at, code + 6)
        for lane in range(min(element, peek(at, BATCH) - first)):
            own = to + (first + lane) * peek(at, code + 7)
            for i in range(rows):
                source = begin + i * row + lane
                for j in range(columns):
                    write(array, own + i * columns + j, read(cells, source + j * element))

    return unpack
