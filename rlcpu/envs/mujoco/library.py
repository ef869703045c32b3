"""MuJoCo's C library: its functions, and where the fields of its structs are, as kernels see them.

Kernels call MuJoCo's functions by their names, which LLVM finds because the library is loaded here:
machine code that names a symbol can be kept on disk, code that holds an address cannot. Kernels
take structs by their addresses, integers: `m` of a mjModel, `d` of a mjData.
"""

from __future__ import annotations

import collections
import ctypes
import functools
import glob
import logging
import os
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numba import types

from rlcpu.kernels.compile import define, inline
from rlcpu.kernels.memory import array_at

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

_both = types.void(types.intp, types.intp)
mj_step, mj_step1, mj_forward, mj_reset_data, mj_set_const, mj_rne_post_constraint = (
    types.ExternalFunction(name, _both)
    for name in (
        *("mj_step", "mj_step1", "mj_forward", "mj_resetData", "mj_setConst"),
        "mj_rnePostConstraint",
    )
)


@functools.cache
def library() -> Any:
    """Return MuJoCo's library with its functions of batches; calls release Python's lock."""
    mujoco_library, pointer, integer = ctypes.CDLL(PATH), ctypes.c_void_p, ctypes.c_int
    mujoco_library.mjb_makeBatch.argtypes = [pointer, integer, pointer, pointer, integer]
    mujoco_library.mjb_apply.argtypes = [pointer, pointer, integer, pointer, pointer, integer]
    mujoco_library.mjb_error.argtypes = [pointer, integer]
    mujoco_library.mjb_expand.argtypes = [pointer, ctypes.c_char_p, pointer, pointer]
    for name in ("mjb_makeBatch", "mjb_state", "mjb_status", "mjb_expand"):
        getattr(mujoco_library, name).restype = pointer
    mujoco_library.mjb_error.restype = ctypes.c_char_p
    for name in ("mjb_state", "mjb_status", "mjb_deleteBatch"):
        getattr(mujoco_library, name).argtypes = [pointer]
    return mujoco_library


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


def warnings_offset(model: mujoco.MjModel) -> tuple[int, int]:
    """Return the bytes from mjData's start to its first count of warnings, and to the next one."""
    data = mujoco.MjData(model)
    numbers = data.warning.number
    return numbers.ctypes.data - data._address, numbers.strides[0]


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


def make_view(model: mujoco.MjModel, fields: tuple[str, ...], constants: dict[str, Any]) -> Any:
    """Make the functions that show a simulation to a task's functions, in kernels and in Python.

    Both return a NamedTuple with an array over each field of mjData or mjModel, and the constants.

    Returns:
        An inlinable function (m, d) of addresses, and a plain one of (MjModel, MjData).
    """
    data, other_data, items = mujoco.MjData(model), mujoco.MjData(model), []
    names: dict[str, Any] = {"array_at": array_at, "f64": f64, "i64": i64}
    for name in fields:
        owner = owner_of(model, data, name)
        offset = find_offset(owner, name)
        if owner is data and offset != find_offset(other_data, name):
            raise RuntimeError(f"fields: {name!r} was not found in mjData: please report this")
        shape = tuple(map(int, getattr(owner, name).shape))
        pointer = f"{'d' if owner is data else 'm'} + {offset}"
        items.append(f"array_at(array_at({pointer}, (1,), i64)[0], {shape}, f64)")
    data_class: Any = collections.namedtuple("Data", (*fields, *constants))  # type: ignore[misc]
    names |= {"Data": data_class, **{f"c_{name}": value for name, value in constants.items()}}
    items += [f"c_{name}" for name in constants]
    source = f"def view_in_kernels(m, d): return Data({', '.join(items)})"

    def view_in_python(model: mujoco.MjModel, data: mujoco.MjData) -> Any:
        arrays = (getattr(owner_of(model, data, name), name) for name in fields)
        return data_class(*arrays, *constants.values())

    return inline(define(source, **names), exact=True), view_in_python
