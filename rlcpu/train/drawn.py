"""Columns of the learner, made of a batch that was drawn from the buffer.

Compiled functions make them, which rounds in Python and those of a kernel call. Their arrays stay
the same from draw to draw, as those of the batch do: the learner finds them where they were.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcpu.envs.engine.observations import WORDS
from rlcpu.kernels.machine.boards import append_cells
from rlcpu.kernels.machine.memory import array_address
from rlcpu.kernels.machine.stages import Stage
from rlcpu.kernels.machine.structs import Array, Flag, Struct, Whole
from rlcpu.nn.layers.embedding import Ones
from rlcpu.nn.learning.learner import Learner

Numbers = npt.NDArray[Any]


# ---------------------------------------------------------------- compiled functions


class Singles(Struct):
    """Argument of `write_singles`."""

    size = Whole()
    are_flags = Flag()
    numbers = Array(np.int64)  #: (size,), unless they are flags
    flags = Array(np.uint8)  #: (size,), if they are
    singles = Array(np.float32, "size")  #: overwritten


def write_singles(converted):
    """Write whole numbers, or flags, as float32."""
    size, singles = converted.size, converted.singles
    if converted.are_flags:
        for i in range(size):
            singles[i] = converted.flags[i]
    else:
        for i in range(size):
            singles[i] = converted.numbers[i]


class Choices(Struct):
    """Argument of `place_choices`: choices, of each of which one input of a network is one."""

    size = Whole()
    least = Whole()  #: the smallest choice
    choices = Array(np.int32, "size")
    places = Array(np.int32, "size")  #: `Ones.columns`, overwritten


def place_choices(drawn):
    """Write which input each choice makes one."""
    for i in range(drawn.size):
        drawn.places[i] = drawn.choices[i] - drawn.least


class Boards(Struct):
    """Argument of `place_cells`: boards, whose cells are inputs of a network."""

    samples = Whole()
    planes = Whole()
    cells = Whole()  #: of a plane
    size = Whole()
    words = Array(np.uint32, "size")  #: bits of cells, `WORDS` words of a plane
    num_starts = Whole()
    starts = Array(np.int64, "num_starts")  #: `Ones.starts`, overwritten
    num_places = Whole()
    places = Array(np.int32, "num_places")  #: `Ones.columns`, overwritten


def place_cells(boards):
    """Write which cells of boards are set, in the form of `Ones`."""
    planes, starts, stride, count = boards.planes, boards.starts, 1, 0
    for i in range(boards.samples):
        starts[i] = count
        begin = i * planes * WORDS
        count = append_cells(
            boards.words, begin, stride, planes, boards.cells, boards.places, count
        )
    starts[boards.samples] = count


# ---------------------------------------------------------------- columns


@functools.lru_cache(maxsize=16)  # the learner reads the same arrays faster again
def _constant_columns(size: int, gamma: float) -> tuple[Numbers, Numbers]:
    """Return weights and discounts of a batch that has none."""
    weights = np.ones(size, np.float32)
    return weights, weights * np.float32(gamma)


class DrawnColumns:
    """Columns of the learner of an agent, of batches that are drawn into the same memory.

    Args:
        agent: an `OffPolicy`, whose settings stay as they are meanwhile.
        batch: of S samples.

    Attributes:
        batch, config: the batch, and the agent's settings.
        stages: what makes columns of the fields of the batch, compiled.
        arrays: columns by name, the batch's own arrays and those that stages write.
        starts: `Ones.starts` of choices and boards by name; `arrays` has room for their columns.
        others: names of columns that Python makes: observations that are neither numbers nor ones.
    """

    def __init__(self, agent: Any, batch: Any) -> None:
        self.batch, self.config, view = batch, agent.config, agent.env.view
        self.stages: list[Stage] = []
        self.arrays: dict[str, Numbers] = {}
        self.starts: dict[str, Numbers] = {}
        self._num_inputs = view.num_inputs
        takes_ones = agent.learner.takes_ones("observation")
        names = ["observation", "next_observation"]
        is_read_as_is = view.kind == "floats"
        is_made_of_ones = takes_ones and view.kind in ("choice", "planes")
        self.others = [] if is_read_as_is or is_made_of_ones else names
        for name in () if self.others else names:
            if is_read_as_is:
                self.arrays[name] = batch[name]
            elif view.kind == "choice":
                self._add_choices(name, batch[name], view.start[0])
            else:
                self._add_boards(name, batch[name], math.prod(view.size[1:]))
        self._add_rewards(agent, batch["reward"])
        has_masks = agent.env.dynamics.num_masked > 0
        for name in ("action", "terminated", *(("next_action_mask",) if has_masks else ())):
            if batch[name].dtype == np.float32:
                self.arrays[name] = batch[name]
            else:
                self._add_singles(name, batch[name])
        for name in agent.column_sizes():
            self.arrays[name] = batch[name]

    def _add_rewards(self, agent: Any, drawn: Numbers) -> None:
        config = self.config
        factor = getattr(config, "reward_scale", 1.0)
        self.arrays["reward"] = drawn
        if config.normalize_rewards or factor != 1.0:
            stage, self.arrays["reward"] = agent.rewards.scaling(
                drawn, config.normalize_rewards, config.n_step, factor
            )
            self.stages.append(stage)

    def _add_singles(self, name: str, drawn: Numbers) -> None:
        singles = self.arrays[name] = np.empty(drawn.shape, np.float32)
        are_flags = drawn.dtype == np.bool_
        converted = Singles(
            size=drawn.size,
            are_flags=are_flags,
            numbers=0 if are_flags else drawn,
            flags=drawn.view(np.uint8) if are_flags else 0,
            singles=singles.reshape(-1),
        )
        self.stages.append(Stage(write_singles, converted))

    def _add_choices(self, name: str, drawn: Numbers, least: int) -> None:
        places = self.arrays[name] = np.empty(len(drawn), np.int32)
        self.starts[name] = np.arange(len(drawn) + 1)  # of each choice one input is one
        choices = Choices(size=len(drawn), least=least, choices=drawn, places=places)
        self.stages.append(Stage(place_choices, choices))

    def _add_boards(self, name: str, drawn: Numbers, cells: int) -> None:
        planes = drawn.shape[1]
        starts = self.starts[name] = np.empty(len(drawn) + 1, np.int64)
        # Room for all cells, most of which is never written, and takes no memory.
        places = self.arrays[name] = np.empty(len(drawn) * planes * cells, np.int32)
        boards = Boards(
            samples=len(drawn),
            planes=planes,
            cells=cells,
            words=drawn.reshape(-1),
            starts=starts,
            places=places,
        )
        self.stages.append(Stage(place_cells, boards))

    def read(self) -> dict[str, Any]:
        """Make columns of what the batch has now, and return them by name, without `others`."""
        for stage in self.stages:
            stage()
        columns: dict[str, Any] = dict(self.arrays)
        for name, starts in self.starts.items():
            columns[name] = Ones(starts, self.arrays[name][: starts[-1]], self._num_inputs)
        batch = self.batch
        weights, discounts = _constant_columns(len(batch), self.config.gamma)
        columns["weight"] = weights if batch.weights is None else batch.weights
        columns["discount"] = discounts if batch.discounts is None else batch.discounts
        return columns

    def are_read(self, learner: Learner) -> bool:
        """Tell whether compiled functions make all columns, where a learner reads them.

        It reads others where it had to make copies, as of too many ones.
        """
        last_call: Any = learner.last_call
        columns, batch = last_call.columns, self.batch
        arrays = {**self.arrays, "weight": batch.weights, "discount": batch.discounts}
        return not self.others and all(
            array_address(columns[name].array) == array_address(array)
            for name, array in arrays.items()
            if array is not None and name in columns
        )
