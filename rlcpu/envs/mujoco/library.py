"""MuJoCo's C library: its functions, and where the fields of its structs are, as kernels see them.

Kernels call MuJoCo's functions by their names, which LLVM finds because the library is loaded here:
machine code that names a symbol can be kept on disk, code that holds an address cannot. Kernels
take structs by their addresses, integers: `m` of a mjModel, `d` of a mjData.
"""

from __future__ import annotations

import collections
import ctypes
import glob
import logging
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import numpy as np
from numba import types

from rlcpu.kernels.compiler.compile import define, inline
from rlcpu.kernels.machine.memory import array_at

try:
    import mujoco
except ImportError as error:
    raise ImportError("MuJoCo is missing: pip install mujoco") from error

#: Oldest release whose library runs batches: `mjb_apply`.
OLDEST = (3, 17)
if tuple(map(int, mujoco.__version__.split(".")[:2])) < OLDEST:
    raise ImportError(
        f"MuJoCo {mujoco.__version__} is too old, rlcpu needs {OLDEST[0]}.{OLDEST[1]} or later: "
        "pip install --upgrade mujoco"
    )

#: The library is a .so, .dylib or .dll.
_PATTERN = os.path.join(os.path.dirname(mujoco.__file__), "*mujoco*.[sd][oyl]*")
PATH = sorted(glob.glob(_PATTERN))[0]
llvm.load_library_permanently(PATH)


def _report(text: str) -> None:
    """Log a warning of MuJoCo's, from any of its threads."""
    logging.getLogger("rlcpu.mujoco").warning("MuJoCo: %s", text)


# Without a handler MuJoCo writes each warning into MUJOCO_LOG.TXT in the present folder.
if mujoco.get_mju_user_warning() is None:
    mujoco.set_mju_user_warning(_report)

#: The parts of a simulation's state on which its next step depends.
INTEGRATION = int(mujoco.mjtState.mjSTATE_INTEGRATION)
#: Fields of mjData that `mj_rnePostConstraint` computes, and `mj_step` alone does not.
AFTER_CONSTRAINTS = ("cacc", "cfrc_ext", "cfrc_int")

_signature = types.void(types.intp, types.intp)  # (m, d) -> nothing
mj_step = types.ExternalFunction("mj_step", _signature)
mj_step1 = types.ExternalFunction("mj_step1", _signature)
mj_forward = types.ExternalFunction("mj_forward", _signature)
mj_reset_data = types.ExternalFunction("mj_resetData", _signature)
mj_set_const = types.ExternalFunction("mj_setConst", _signature)
mj_rne_post_constraint = types.ExternalFunction("mj_rnePostConstraint", _signature)


# ---------------------------------------------------------------- fields of structs

#: Examples of numbers, from which `array_at` reads its dtype.
f64 = np.float64(0)
i64 = np.int64(0)


def find_offset(struct: Any, name: str) -> int:
    """Return the bytes from the start of a struct of MuJoCo's to its pointer to the array `name`.

    The struct's memory is searched for the array's address, which MuJoCo's bindings report: so no
    release's layout is written down here. The address of an empty field is in no struct.
    """
    array_address, offset = getattr(struct, name).ctypes.data, 0
    while ctypes.c_uint64.from_address(struct._address + offset).value != array_address:
        offset += 8
    return offset


class WarningCounts(NamedTuple):
    """Places in mjData of its counts of warnings, one int32 for each kind."""

    first: int  # bytes from mjData's start to the first count
    stride: int  # bytes from one count to the next


def find_warnings(model: mujoco.MjModel) -> WarningCounts:
    """Return where mjData counts its warnings."""
    data = mujoco.MjData(model)
    counts = data.warning.number
    return WarningCounts(counts.ctypes.data - data._address, counts.strides[0])


def owner_of(model: mujoco.MjModel, data: mujoco.MjData, name: str) -> Any:
    """Return the struct that has a field: the mjData, or else the mjModel.

    Raises ValueError if none has it, or its numbers are not float64, or there are none of them.
    """
    for struct in (data, model):
        field = getattr(struct, name, None)
        if isinstance(field, np.ndarray):
            if field.dtype != np.float64 or field.size == 0:
                raise ValueError(
                    f"fields: {name!r} has {field.size} numbers of {field.dtype}: expected at "
                    "least one, of float64"
                )
            return struct
    raise ValueError(f"fields: {name!r} is no array of mjData or mjModel")


class Views(NamedTuple):
    """Functions that show a simulation to a task's functions.

    They return a NamedTuple: an array over each field of mjData or mjModel, and constants.
    """

    view_in_kernels: Callable[..., Any]  # inlinable, of the addresses (m, d)
    view_in_python: Callable[..., Any]  # of (MjModel, MjData)


def make_views(model: mujoco.MjModel, fields: tuple[str, ...], constants: dict[str, Any]) -> Views:
    """Make the functions that show fields of a simulation, and constants, by their names.

    The source for kernels is, for the fields ("qpos", "body_mass") and a constant `dt`,

        def view_in_kernels(m, d):
            return Data(
                array_at(array_at(d + 112, (1,), i64)[0], (9,), f64),
                array_at(array_at(m + 904, (1,), i64)[0], (8,), f64),
                c_dt,
            )

    where an inner `array_at` reads the field's address in the struct.
    """
    data, other_data, items = mujoco.MjData(model), mujoco.MjData(model), []
    for name in fields:
        owner = owner_of(model, data, name)
        offset = find_offset(owner, name)
        # Chance may put the same number elsewhere, too: then another mjData has another offset.
        if owner is data and offset != find_offset(other_data, name):
            raise RuntimeError(f"fields: {name!r} was not found in mjData: please report this")
        shape = tuple(map(int, getattr(owner, name).shape))
        struct = "d" if owner is data else "m"
        items.append(f"array_at(array_at({struct} + {offset}, (1,), i64)[0], {shape}, f64)")
    items += [f"c_{name}" for name in constants]
    data_class: Any = collections.namedtuple("Data", (*fields, *constants))  # type: ignore[misc]
    names: dict[str, Any] = {f"c_{name}": value for name, value in constants.items()}
    names |= {"array_at": array_at, "f64": f64, "i64": i64, "Data": data_class}
    view_in_kernels = define(f"def view_in_kernels(m, d): return Data({', '.join(items)})", **names)

    def view_in_python(model: mujoco.MjModel, data: mujoco.MjData) -> Any:
        arrays = (getattr(owner_of(model, data, name), name) for name in fields)
        return data_class(*arrays, *constants.values())

    return Views(inline(view_in_kernels, exact=True), view_in_python)
