"""Between flat arrays and workspaces: matrices of one model, or of a register full of models."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from rlcpu.kernels.compile import inline
from rlcpu.scan.kalman.blocks import make_algebra, outline, peek, place, stride
from rlcpu.scan.kalman.plan import (
    BATCH,
    DESIGN,
    IN_DESIGN,
    IN_OBSERVATION_COV,
    IN_OBSERVATIONS,
    IN_TRANSITION,
    IN_TRANSITION_COV,
    OBSERVATION,
    OBSERVATION_COV,
    OBSERVED,
    PACES,
    STATE,
    TRANSITION,
    TRANSITION_COV,
    TURNED,
    Layout,
)
from rlcpu.scan.kalman.vectors import read, stay_outside, write


class Moves(NamedTuple):
    """Functions of one layout.

    `inputs` are pointers to all observations, to all matrices, and to where each model's part of
    each input begins, (batch, 7); `first` is the model of the workspace's first lane. Lanes beyond
    the last model repeat it, and are not written.

    Attributes:
        pack: `(cells, at, block, rows, columns, inputs, first, which, shift)`: reads one
            matrix of each model, `shift` after its begin; `~block` is transposed.
        unpack: `(cells, at, block, rows, columns, array, first, begin, pitch)`: writes them, the
            model's number times `pitch` after `begin`.
        load_models: `(cells, at, inputs, first, t, whole)`: all matrices of a time step,
            or only those that vary.
        observe: `(cells, at, inputs, first, begin, count)`: observations of some time
            steps; returns whether some are missing.
    """

    pack: Any
    unpack: Any
    load_models: Any
    observe: Any


@functools.cache
def make_moves(layout: Layout) -> Moves:
    """The moves of one layout."""
    element = make_algebra(layout).element

    @outline
    def pack(cells, at, block, rows, columns, inputs, first, which, shift):  # type: ignore[no-untyped-def]
        stay_outside()
        array = inputs[0] if which == IN_OBSERVATIONS else inputs[1]
        turn = block < 0
        block = ~block if turn else block
        row = stride(at, block)
        down, along = (element, row) if turn else (row, element)
        for lane in range(element):
            model = min(first + lane, peek(at, BATCH) - 1)
            begin = peek(inputs[2], 7 * model + which) + shift
            for i in range(rows):
                to = place(at, block) + i * down + lane
                for j in range(columns):
                    write(cells, to + j * along, read(array, begin + i * columns + j))

    @outline
    def unpack(cells, at, block, rows, columns, array, first, begin, pitch):  # type: ignore[no-untyped-def]
        stay_outside()
        for lane in range(min(element, peek(at, BATCH) - first)):
            to = begin + (first + lane) * pitch
            for i in range(rows):
                source = place(at, block) + i * stride(at, block) + lane
                for j in range(columns):
                    write(array, to + i * columns + j, read(cells, source + j * element))

    @outline
    def load_models(cells, at, inputs, first, t, whole):  # type: ignore[no-untyped-def]
        stay_outside()
        m, p = peek(at, STATE), peek(at, OBSERVATION)
        for which, block, rows, columns in (
            (IN_TRANSITION, TRANSITION, m, m),
            (IN_TRANSITION, ~TURNED, m, m),
            (IN_TRANSITION_COV, TRANSITION_COV, m, m),
            (IN_DESIGN, DESIGN, p, m),
            (IN_OBSERVATION_COV, OBSERVATION_COV, p, p),
        ):
            pace = peek(at, PACES + which)
            if whole or pace != 0:
                shift = t * pace
                pack(cells, at, block, rows, columns, inputs, first, which, shift)

    @inline
    def observe(cells, at, inputs, first, begin, count):  # type: ignore[no-untyped-def]
        p = peek(at, OBSERVATION)
        shift = begin * p
        pack(cells, at, OBSERVED, count, p, inputs, first, IN_OBSERVATIONS, shift)
        gaps = False
        for k in range(count * stride(at, OBSERVED)):
            y = read(cells, place(at, OBSERVED) + k)
            gaps |= y != y
        return gaps

    return Moves(pack, unpack, load_models, observe)
