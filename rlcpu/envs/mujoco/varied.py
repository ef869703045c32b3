"""Fields of mjModel that differ from simulation to simulation, or are drawn anew at each reset.

MuJoCo's threads share one model, unless one of its fields is "expanded": then each thread has a
model of its own. Each simulation has a row of numbers: those of the fields that vary, and of all
fields that `mj_setConst` derives from them. Before anything is done with a simulation, its row is
copied into the thread's model.

Functions of kernels take addresses as integers: `m` is that of a mjModel.
"""

from __future__ import annotations

import copy
import ctypes
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import mujoco
import numpy as np
import numpy.typing as npt

from rlcpu.envs.mujoco.library import f64, find_offset, i64
from rlcpu.kernels.checks import as_numbers
from rlcpu.kernels.compiler.compile import define, inline
from rlcpu.kernels.machine.memory import array_at

#: Fields that decide which computations MuJoCo does, and the clock, which is a constant of kernels.
_REFUSED = ("body_gravcomp", "geom_surfacevel", "geom_adhesion", "pair_adhesion", "timestep")
#: Fields with which MuJoCo computes nonsense if they are negative, without an error that names
#: them.
_NOT_NEGATIVE = ("body_mass", "body_inertia", "dof_armature")


class ModelField(NamedTuple):
    """Place of a field's numbers in the memory of mjModel."""

    name: str  # as in mjModel or mjOption
    offset: int  # bytes from the start of mjModel to the numbers, or to a pointer to them
    is_pointer: bool  # whether it is the offset of a pointer
    shape: tuple[int, ...]  # of the field; a lone number has shape (1,)

    @property
    def size(self) -> int:
        """Return how many numbers the field has."""
        return int(np.prod(self.shape))


class VariedFields(NamedTuple):
    """The fields whose numbers are in a simulation's row, in this order."""

    fields: tuple[ModelField, ...] = ()  # that users set or `randomize` draws
    derived: tuple[ModelField, ...] = ()  # that `mj_setConst` computes from these
    drawn: tuple[str, ...] = ()  # names of the fields that `randomize` draws

    @property
    def size(self) -> int:
        """Return how many numbers a row has."""
        return sum(field.size for field in (*self.fields, *self.derived))

    def places(self) -> dict[str, slice]:
        """Return where the numbers of each field are in a row, by its name."""
        fields = (*self.fields, *self.derived)
        ends = np.cumsum([field.size for field in fields]).tolist()
        return {
            field.name: slice(end - field.size, end)
            for field, end in zip(fields, ends, strict=True)
        }

    @property
    def expanded(self) -> str | None:
        """Return the name of a field for `mjb_expand`, or None if nothing varies."""
        if not self.fields:
            return None
        first = self.fields[0]
        return first.name if first.is_pointer else f"opt.{first.name}"


# ---------------------------------------------------------------- fields of a model


def field_numbers(model: mujoco.MjModel, name: str) -> npt.NDArray[np.float64]:
    """Return the numbers of a field of mjModel or, if there is none, of mjOption.

    They are a view of the model's memory; of a lone number of mjOption, a copy (1,). Raises
    ValueError if neither has such a field of float64, or the field cannot vary.
    """
    field = getattr(model, name, None)
    if not isinstance(field, np.ndarray):
        field = getattr(model.opt, name, None)
    field = np.full(1, field) if isinstance(field, float) else field
    if not isinstance(field, np.ndarray) or field.dtype != np.float64 or field.size == 0:
        raise ValueError(f"{name} is no field of mjModel or mjOption that holds float64")
    if name in _REFUSED:
        raise ValueError(f"{name} is a constant of MuJoCo's code: expected another field")
    return field


def write_field(model: mujoco.MjModel, name: str, values: Any) -> None:
    """Overwrite the numbers of a model's field."""
    target = field_numbers(model, name)
    target[...] = values
    if isinstance(getattr(model.opt, name, None), float):
        setattr(model.opt, name, float(target[0]))


def check_values(model: mujoco.MjModel, name: str, values: Any) -> npt.NDArray[np.float64]:
    """Return values of a field as float64, (*shape,) or (num_envs, *shape), after checks.

    A lone number of mjOption, of shape (1,), may also be a float or (num_envs,).
    """
    shape = field_numbers(model, name).shape
    array = np.asarray(as_numbers(name, values), np.float64)
    is_lone = isinstance(getattr(model.opt, name, None), float)
    if is_lone and array.ndim < 2:  # () or (num_envs,)
        array = array[..., None]
    is_of_each = array.ndim == len(shape) + 1 and array.shape[1:] == shape
    if array.shape != shape and not is_of_each:
        raise ValueError(
            f"{name} has shape {array.shape}: expected {shape}, or (num_envs, "
            f"{', '.join(map(str, shape))}) for one of each environment"
        )
    if fault := describe_fault(name, array):
        raise ValueError(f"{name} holds {fault}")
    return array


def describe_fault(name: str, values: npt.NDArray[np.float64]) -> str:
    """Return why values cannot be those of a field and what is expected; "" if they can."""
    if not np.isfinite(values).all():
        return "NaN or infinity: expected finite numbers"
    if name in _NOT_NEGATIVE and (values < 0.0).any():
        return f"{values[values < 0.0][0]}: expected numbers that are not negative"
    return ""


def _locate(model: mujoco.MjModel, name: str) -> ModelField:
    """Return where the numbers of a field are: in an array of mjModel, or in or behind its options.

    MuJoCo does not tell the address of a lone number: a copy of the model gets a mark there, for
    which its memory is searched.
    """
    values = field_numbers(model, name)
    if isinstance(getattr(model, name, None), np.ndarray):
        return ModelField(name, find_offset(model, name), True, values.shape)
    if isinstance(getattr(model.opt, name), np.ndarray):
        return ModelField(name, values.ctypes.data - model._address, False, values.shape)
    changed, mark, offset = copy.copy(model), 0.7236512348761251, 0
    setattr(changed.opt, name, mark)
    while ctypes.c_double.from_address(changed._address + offset).value != mark:
        offset += 8
    return ModelField(name, offset, False, (1,))


def _copy_arrays(model: mujoco.MjModel) -> dict[str, Any]:
    """Return copies of all arrays of a model, by name."""
    names = [name for name in dir(model) if not name.startswith("_")]
    values = {name: getattr(model, name, None) for name in names}
    return {name: v.copy() for name, v in values.items() if isinstance(v, np.ndarray)}


def find_varied(
    model: mujoco.MjModel, values: Mapping[str, Any], drawn: tuple[str, ...]
) -> VariedFields:
    """Return the fields that vary, and those that `mj_setConst` derives from them.

    Those that vary are in `values`, which users set, or in `drawn`, which `randomize` draws. The
    others are found by a trial: each field is changed, and fields that `mj_setConst` then changes
    are derived. Raises ValueError if a field is unknown, or other things than numbers depend on it.
    """
    names = tuple(dict.fromkeys((*values, *drawn)))
    derived: dict[str, None] = {}  # a set that keeps the order
    rng = np.random.default_rng(0)
    for name in names:
        trial = copy.copy(model)
        numbers = field_numbers(trial, name)
        write_field(trial, name, numbers * rng.uniform(0.9, 1.1, numbers.shape))
        before = _copy_arrays(trial)
        mujoco.mj_setConst(trial, mujoco.MjData(trial))
        for other_name, after in _copy_arrays(trial).items():
            if np.array_equal(after, before[other_name], equal_nan=after.dtype.kind == "f"):
                continue
            if after.dtype != np.float64:
                raise ValueError(
                    f"{name} decides {other_name}, which holds no float64: it cannot vary between "
                    "simulations of one model"
                )
            derived[other_name] = None
    return VariedFields(
        fields=tuple(_locate(model, name) for name in names),
        derived=tuple(_locate(model, name) for name in derived if name not in names),
        drawn=tuple(drawn),
    )


def make_rows(
    model: mujoco.MjModel, varied: VariedFields, values: Mapping[str, Any], num_envs: int
) -> npt.NDArray[np.float64]:
    """Return the rows of all simulations, (num_envs, varied.size).

    `values` are those of fields that users set for each simulation, (num_envs, *shape) by name; the
    model has the others.
    """
    rows = np.empty((num_envs, varied.size))
    if not varied.fields:
        return rows
    places, data = varied.places(), mujoco.MjData(model)
    for i in range(num_envs if values else 1):
        copied = copy.copy(model)
        for name, of_each in values.items():
            write_field(copied, name, of_each[i])
        if varied.derived:
            mujoco.mj_setConst(copied, data)
        for name, place in places.items():
            rows[i, place] = field_numbers(copied, name).ravel()
    if not values:  # all rows are alike
        rows[1:] = rows[0]
    return rows


def split_rows(
    varied: VariedFields, rows: npt.NDArray[np.float64]
) -> dict[str, npt.NDArray[np.float64]]:
    """Return the numbers of each field in rows (num_envs, size): views (num_envs, *shape), by name.

    The view of a lone number of mjOption is (num_envs,).
    """
    by_name, places = {}, varied.places()
    for field in varied.fields:
        shape = field.shape if field.is_pointer or field.shape != (1,) else ()
        by_name[field.name] = rows[:, places[field.name]].reshape(-1, *shape)
    return by_name


def find_bad_draw(varied: VariedFields, rows: npt.NDArray[np.float64]) -> tuple[int, str] | None:
    """Return the first simulation into whose row `randomize` drew bad numbers, or None.

    Returns:
        Its number, and a description of the numbers.
    """
    drawn = split_rows(varied, rows)
    if all(not describe_fault(name, drawn[name]) for name in varied.drawn):
        return None
    for i in range(len(rows)):
        for name in varied.drawn:
            if fault := describe_fault(name, drawn[name][i]):
                return i, f"{name} that holds {fault}"
    return None


def drawn_fields(model: mujoco.MjModel, varied: VariedFields) -> Any:
    """Return a NamedTuple of a model's fields that `randomize` draws, for plain Python."""
    return _model_class(varied)(*(field_numbers(model, name) for name in varied.drawn))


def _model_class(varied: VariedFields) -> Any:
    """Return the NamedTuple that `randomize` gets as its model."""
    return NamedTuple("Model", [(name, Any) for name in varied.drawn])


# ---------------------------------------------------------------- in kernels


def _source_of_array(field: ModelField, shape: tuple[int, ...]) -> str:
    """Return the source of an array over a field of the model at address `m`, in a shape."""
    start = f"m + {field.offset}"
    start = f"array_at({start}, (1,), i64)[0]" if field.is_pointer else start
    return f"array_at({start}, {shape}, f64)"


def make_row_copiers(varied: VariedFields) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Make inlinable functions (m, row): one sets the model by the row, one the row by the model.

    Their source has for each field an array over its numbers in the model, and a loop over these.
    """
    names: dict[str, Any] = {"array_at": array_at, "f64": f64, "i64": i64}
    places, copiers = varied.places(), []
    for assignment in ("array[k] = row[{begin} + k]", "row[{begin} + k] = array[k]"):
        lines = ["def copy(m, row):", "    pass"]
        for field in (*varied.fields, *varied.derived):
            lines += [
                f"    array = {_source_of_array(field, (field.size,))}",
                f"    for k in range({field.size}):",
                "        " + assignment.format(begin=places[field.name].start),
            ]
        copiers.append(inline(define("\n".join(lines), **names), exact=True))
    load_row, store_row = copiers
    return load_row, store_row


def make_is_bad(varied: VariedFields) -> Callable[..., Any]:
    """Make an inlinable function (row,) -> whether `randomize` drew bad numbers into the row."""
    lines, places = ["def is_bad(row):", "    bad = False"], varied.places()
    for name in varied.drawn:
        or_negative = " or row[k] < 0.0" if name in _NOT_NEGATIVE else ""
        lines += [f"    for k in range({places[name].start}, {places[name].stop}):"]
        lines += [f"        bad = bad or not isfinite(row[k]){or_negative}"]
    return inline(define("\n".join([*lines, "    return bad"]), isfinite=math.isfinite), exact=True)


def make_drawn_view(varied: VariedFields) -> Callable[..., Any]:
    """Make an inlinable function (m,) -> arrays of the fields that `randomize` draws, by name."""
    fields = {field.name: field for field in varied.fields}
    sources = [_source_of_array(fields[name], fields[name].shape) for name in varied.drawn]
    names = {"array_at": array_at, "f64": f64, "i64": i64, "Model": _model_class(varied)}
    arrays = "".join(f"{source}, " for source in sources)
    return inline(define(f"def drawn_view(m): return Model({arrays})", **names), exact=True)
