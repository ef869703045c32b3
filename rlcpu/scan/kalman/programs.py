"""The table of a workspace: its sizes and programs, for one kind of problem."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rlcpu.scan.kalman import plan
from rlcpu.scan.kalman.adjoint import retreat, smooth
from rlcpu.scan.kalman.plan import Layout, Place, Sizes, make_places
from rlcpu.scan.kalman.program import Program
from rlcpu.scan.kalman.update import drift, drift_on, freeze, glide, predict, update

#: Jobs: log-likelihoods alone; with all states; smoothed states; gradients.
VALUE, STATES, SMOOTH, GRADIENT = "value", "states", "smooth", "gradient"

#: Programs. A step forward: of any chunk; of one with gaps; in one where the covariance stands
#: still, the first and all others.
(ANY, GAPS, FIRST, GLIDE) = range(4)
#: The same with records, from here on; a step backward; what comes before and after all.
RECORDED = 4
(BACK, BEGIN, FINISH, COUNT) = range(8, 12)


class Job(NamedTuple):
    """What programs depend on, but for the layout.

    Attributes:
        kind: `VALUE`, `STATES`, `SMOOTH` or `GRADIENT`.
        sizes: see there.
        paces: numbers between two time steps of F, Q, H and R; 0 where they are constant.
        joseph: whether to update in Joseph's form.
    """

    kind: str
    sizes: Sizes
    paces: tuple[int, ...]
    joseph: bool

    @property
    def backward(self) -> bool:
        """Whether a backward pass follows."""
        return self.kind in (SMOOTH, GRADIENT)

    @property
    def at_once(self) -> bool:
        """Whether `GLIDE` without records is all steps of a chunk but the first."""
        return self.kind != STATES


@functools.lru_cache(maxsize=64)
def make_table(layout: Layout, job: Job) -> npt.NDArray[np.int64]:
    """The table of a workspace. Not to be written to.

    Args:
        layout: see there.
        job: see there.

    Returns:
        (size,) int64: the sizes, where each program begins, and the programs.
    """
    places = make_places(layout, job.sizes)
    head = np.zeros(plan.PROGRAMS + COUNT + 1, np.int64)
    records = _fill_head(head, layout, job, places)
    maker = _Maker(layout, places, job, records)
    programs = [maker.make(number) for number in range(COUNT)]
    ends = head.size + np.cumsum([0, *(len(program.words) for program in programs)])
    head[plan.PROGRAMS :] = ends
    words = [word for program in programs for word in program.words]
    return np.concatenate([head, np.array(words, np.int64)])


def _fill_head(head: npt.NDArray[np.int64], layout: Layout, job: Job, places: list[Place]) -> int:
    """The sizes; returns where the records of a chunk begin."""
    sizes, end = job.sizes, places[-1].at + places[-1].row * places[-1].rows
    chunks = -(-sizes.steps // sizes.chunk)
    own = sizes.batch, sizes.steps, sizes.chunk, chunks
    head[[plan.BATCH, plan.STEPS, plan.CHUNK, plan.CHUNKS]] = own
    head[[plan.STATE, plan.OBSERVATION]] = sizes.state, sizes.observation
    head[[plan.VARIES, plan.BACKWARD]] = any(job.paces), job.backward
    head[plan.AT_ONCE] = job.at_once
    pace = places[plan.FILTERED].at - places[plan.MEAN].at
    records = end
    starts = records + (sizes.chunk * _record_size(places) if job.backward else 0)
    flags = starts + (chunks if job.backward else 1) * pace
    head[[plan.PACE, plan.STARTS, plan.FLAGS]] = pace, starts, flags
    head[plan.BETWEEN] = pace if job.backward else 0
    head[plan.END] = flags + chunks
    head[plan.AT_STATE] = places[plan.MEAN].at
    head[[plan.AT_COV, plan.COV_ROW]] = places[plan.COV][:2]
    head[plan.AT_IDENTITY] = places[plan.IDENTITY].at
    head[[plan.AT_OBSERVED, plan.OBSERVED_ROW]] = places[plan.OBSERVED][:2]
    head[plan.AT_SUMS], head[plan.AT_RESULT] = places[plan.SQUARES].at, places[plan.RESULT].at
    return records


def _record_size(places: list[Place]) -> int:
    return places[plan.OBSERVED].at - places[plan.FILTERED].at


class _Maker(NamedTuple):
    """Writes the programs of a job; `records` is where the records of a chunk begin."""

    layout: Layout
    places: list[Place]
    job: Job
    records: int

    def make(self, number: int) -> Program:
        """The program of a number."""
        on = Program(self.layout, self.places)
        if number == BEGIN:
            self._load(on, whole=True)
            on.pack(plan.MEAN, plan.IN_MEAN, 0)
            on.pack(plan.COV, plan.IN_COV, 0)
        elif number == BACK and self.job.backward:
            self._back(on)
        elif number == FINISH and self.job.kind == GRADIENT:
            self._finish(on)
        elif number < RECORDED or (number < BACK and self.job.backward):
            self._forward(on, number % RECORDED, number >= RECORDED)
        return on

    def _load(self, on: Program, whole: bool) -> None:
        """All matrices, or those that vary."""
        for which, block in (
            (plan.IN_TRANSITION, plan.TRANSITION),
            (plan.IN_TRANSITION, ~plan.TURNED),
            (plan.IN_TRANSITION_COV, plan.TRANSITION_COV),
            (plan.IN_DESIGN, plan.DESIGN),
            (plan.IN_OBSERVATION_COV, plan.OBSERVATION_COV),
        ):
            pace = self.job.paces[which - plan.IN_TRANSITION]
            if whole or pace:
                on.pack(block, which, pace)

    def _forward(self, on: Program, kind: int, recorded: bool) -> None:
        if kind == GLIDE and not recorded and self.job.at_once:
            drift_on(on)
            return
        self._load(on, whole=False)
        if kind == GLIDE:
            glide(on, recorded or self.job.kind == STATES)
        else:
            update(on, kind == GAPS, self.job.joseph)
        if self.job.kind == STATES:
            self._keep(on)
        if recorded:
            size = _record_size(self.places)
            on.copy(self.records, self.places[plan.FILTERED].at, size, (size, 0))
        if kind in (ANY, GAPS):
            predict(on)
            return
        if kind == FIRST:
            freeze(on)
        (to, *_), (begin, row, *_) = self.places[plan.CURRENT], self.places[plan.OBSERVED]
        on.copy(to, begin, row, (0, row))
        drift(on)

    def _keep(self, on: Program) -> None:
        """Means before and after the observation, (batch, steps, m), then covariances."""
        m, rows = self.job.sizes.state, self.job.sizes.steps
        begin = 0
        for block, size in (
            (plan.MEAN, m),
            (plan.FILTERED, m),
            (plan.COV, m * m),
            (plan.FILTERED_COV, m * m),
        ):
            on.unpack(block, begin, size, rows * size)
            begin += self.job.sizes.batch * rows * size

    def _back(self, on: Program) -> None:
        """A step backward from its record; means (batch, steps, m) and covariances, or slopes."""
        size = _record_size(self.places)
        on.copy(self.places[plan.FILTERED].at, self.records, size, (0, size))
        self._load(on, whole=False)
        _, rows, m, p, _ = sizes = self.job.sizes
        if self.job.kind == SMOOTH:
            smooth(on)
            on.unpack(plan.FILTERED, 0, m, rows * m)
            on.unpack(plan.OTHER, sizes.batch * rows * m, m * m, rows * m * m)
        else:
            retreat(on)
            on.unpack(plan.INNOVATION, 0, p, rows * p)
            self._hand_out(on, varying=True)

    def _finish(self, on: Program) -> None:
        """Slopes of what does not vary, and of the initial state."""
        m, batch = self.job.sizes.state, self.job.sizes.batch
        begin = self._hand_out(on, varying=False)
        on.unpack(plan.MEAN_SLOPE, begin, 0, m)
        on.combine(plan.COV_SLOPE, plan.ZERO, 1, plan.COV_SLOPE)
        on.unpack(plan.COV_SLOPE, begin + batch * m, 0, m * m)

    def _hand_out(self, on: Program, varying: bool) -> int:
        """Slopes of the matrices that vary, or of those that do not; where the next ones begin.

        Those of the observations, of F, Q, H and R and of the initial mean and covariance follow
        one another, each (batch, ...), with a time axis where they vary.
        """
        batch, rows, m, p, _ = self.job.sizes
        begin = batch * rows * p
        blocks = (
            (plan.TRANSITION_SLOPE, m * m),
            (plan.TRANSITION_COV_SLOPE, m * m),
            (plan.DESIGN_SLOPE, p * m),
            (plan.OBSERVATION_COV_SLOPE, p * p),
        )
        for (block, size), pace in zip(blocks, self.job.paces, strict=True):
            pitch = rows * size if pace else size
            if varying == bool(pace):
                on.unpack(block, begin, pace, pitch)
            if varying and pace:
                on.combine(block, plan.ZERO, 0, plan.ZERO)
            begin += batch * pitch
        return begin
