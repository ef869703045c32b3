"""MuJoCo's own loop over many simulations, a "batch" of its library, called by ctypes."""

from __future__ import annotations

import copy
import ctypes
import functools
import os
import weakref
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from rlcpu.envs.mujoco.library import INTEGRATION, PATH

Array = npt.NDArray[Any]

#: Types of the functions of batches: arguments, and result unless it is an int.
_POINTER, _INT, _TEXT = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
_SIGNATURES: dict[str, tuple[list[Any], Any]] = {
    # model, number of simulations, mjBatchConfig, memory for a message, and its bytes -> batch
    "mjb_makeBatch": ([_POINTER, _INT, _POINTER, _POINTER, _INT], _POINTER),
    # batch, name of a field, two that may be NULL
    "mjb_expand": ([_POINTER, _TEXT, _POINTER, _POINTER], _POINTER),
    # batch, which simulations and how many (NULL and 0 for all), function, its argument, whether to
    # save the states -> not 0 if a simulation failed
    "mjb_apply": ([_POINTER, _POINTER, _INT, _POINTER, _POINTER, _INT], _INT),
    # batch, simulation -> message
    "mjb_error": ([_POINTER, _INT], _TEXT),
    # batch -> memory
    "mjb_state": ([_POINTER], _POINTER),
    "mjb_status": ([_POINTER], _POINTER),
    "mjb_deleteBatch": ([_POINTER], None),
}


@functools.cache
def library() -> Any:
    """Return MuJoCo's library with its functions of batches; calls release Python's lock."""
    mujoco_library = ctypes.CDLL(PATH)
    for name, (arguments, result) in _SIGNATURES.items():
        function = getattr(mujoco_library, name)
        function.argtypes, function.restype = arguments, result
    return mujoco_library


def without_islands(model: mujoco.MjModel) -> mujoco.MjModel:
    """Return a copy of a model, without the search for islands if there can be only one.

    An island is a set of bodies that the constraint solver can treat by itself. If all moving
    bodies are one tree, they are one island, and results are the same bits: a step of Hopper,
    Walker2d or Ant takes 7 to 10 per cent less time, one of HalfCheetah 5. Models whose bodies may
    sleep need islands, which fall asleep one by one.
    """
    copied, sleep = copy.copy(model), mujoco.mjtEnableBit.mjENBL_SLEEP
    if copied.ntree == 1 and not copied.opt.enableflags & sleep:
        copied.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_ISLAND
    return copied


class Simulations:
    """MuJoCo's memory and threads for N simulations of a model: a "batch" of its library.

    Args:
        model: of the task.
        num_envs: N.
        num_threads: of MuJoCo's.
        expanded: a field that varies, which gives each thread a model of its own; None for one
            model.

    Attributes:
        address: of the batch.
        process: id of the process that made it, in which alone its threads are.
        state: (N, nstate) float64, MuJoCo's states; writable.

    Raises:
        RuntimeError: MuJoCo cannot make the batch.
    """

    def __init__(
        self, model: mujoco.MjModel, num_envs: int, num_threads: int, expanded: str | None
    ) -> None:
        model = without_islands(model)
        error = ctypes.create_string_buffer(1000)  # for a message
        config = np.array([num_threads, 0], np.int32)  # mjBatchConfig: nthread, persistent
        batch = library().mjb_makeBatch(
            model._address, num_envs, config.ctypes.data, error, len(error)
        )
        if not batch:
            raise RuntimeError(f"MuJoCo made no batch of {num_envs}: {error.value.decode()}")
        self.address, self.process = ctypes.c_void_p(batch), os.getpid()
        if expanded is not None:
            library().mjb_expand(batch, expanded.encode(), None, None)
        size = mujoco.mj_stateSize(model, INTEGRATION)
        # Views of MuJoCo's memory: states, and for each simulation whether it has failed.
        states = (ctypes.c_double * (num_envs * size)).from_address(library().mjb_state(batch))
        self.state: Array = np.ctypeslib.as_array(states).reshape(num_envs, size)
        self._status = (ctypes.c_int * num_envs).from_address(library().mjb_status(batch))
        self._model, self._apply = model, library().mjb_apply  # the model is kept alive
        self._finalizer = weakref.finalize(self, _delete, batch, self.process)

    def apply(self, function: int, job: int, *, save: bool = True) -> bool:
        """Call the compiled function at an address, with a job, for each simulation on its threads.

        `job` is an address. `save` says whether the simulations keep the states that it leaves.

        Returns:
            Whether MuJoCo raised an error in a simulation.
        """
        all_simulations = None, 0  # in the place of an array of their numbers, and how many
        return bool(self._apply(self.address, *all_simulations, function, job, save))

    def errors(self) -> dict[int, str]:
        """Return MuJoCo's error messages of the last call, by the number of the simulation."""
        failed = np.flatnonzero(np.ctypeslib.as_array(self._status))
        return {int(i): library().mjb_error(self.address, int(i)).decode() for i in failed}


def _delete(address: int, process: int) -> None:
    """Free a batch at an address, but not in a child of the process that made it.

    The batch's threads are not in a child, and would be waited for.
    """
    if os.getpid() == process:
        library().mjb_deleteBatch(address)
