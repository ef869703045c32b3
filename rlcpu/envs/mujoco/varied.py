"""Fields of mjModel that differ from simulation to simulation, or are drawn anew at each reset.

MuJoCo's threads have a model each once one of its fields is expanded. Before anything is done with
a simulation, its own numbers are copied from its row of `physics` into the thread's model: those of
the fields that vary, and of all that `mj_setConst` derives from them.
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
from rlcpu.kernels.compile import define, inline
from rlcpu.kernels.memory import array_at

#: Fields that decide which computations MuJoCo does, and the clock, which is a constant of kernels.
_REFUSED = ("body_gravcomp", "geom_surfacevel", "geom_adhesion", "pair_adhesion", "timestep")
#: Fields with which MuJoCo computes nonsense where they are negative, and says so of what follows.
_NOT_NEGATIVE = ("body_mass", "body_inertia", "dof_armature")


class ModelField(NamedTuple):
    """Place of a field in mjModel.

    Attributes:
        name: as in mjModel or mjOption.
        offset: bytes from the start of mjModel to the numbers, or to their address.
        is_address: which of the two.
        shape: of the field; a number has shape (1,).
    """

    name: str
    offset: int
    is_address: bool
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Return how many numbers the field has."""
        return int(np.prod(self.shape))


class Varied(NamedTuple):
    """The numbers of a row of `physics`, in this order.

    Attributes:
        fields: those that are given or drawn.
        derived: what `mj_setConst` makes of them.
        drawn: names of those that `randomize` writes.
    """

    fields: tuple[ModelField, ...] = ()
    derived: tuple[ModelField, ...] = ()
    drawn: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Return how many numbers a row has."""
        return sum(place.size for place in (*self.fields, *self.derived))

    @property
    def expanded(self) -> str | None:
        """Return a field as `mjb_expand` knows it, if anything varies; else None."""
        if not self.fields:
            return None
        first = self.fields[0]
        return first.name if first.is_address else f"opt.{first.name}"


# ---------------------------------------------------------------- fields of a model


def numbers_of(model: mujoco.MjModel, name: str) -> npt.NDArray[np.float64]:
    """Return the numbers of a field of mjModel, else of mjOption: a view, or a copy of one.

    Raises:
        ValueError: there is no such field of float64, or it cannot vary.
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


def write(model: mujoco.MjModel, name: str, values: Any) -> None:
    """Set the numbers of a field."""
    target = numbers_of(model, name)
    target[...] = values
    if isinstance(getattr(model.opt, name, None), float):
        setattr(model.opt, name, float(target[0]))


def check_values(model: mujoco.MjModel, name: str, values: Any) -> npt.NDArray[np.float64]:
    """Return a field's values, of its shape, or (num_envs, *shape) for one of each simulation.

    Raises:
        TypeError, ValueError: naming the field and what was expected.
    """
    shape = numbers_of(model, name).shape
    array = np.asarray(as_numbers(name, values), np.float64)
    if shape == (1,) and array.ndim < 2 and getattr(model, name, None) is None:
        array = array.reshape(-1, 1) if array.ndim == 1 else array.reshape(1)
    if array.shape != shape and (array.ndim != len(shape) + 1 or array.shape[1:] != shape):
        raise ValueError(
            f"{name} has shape {array.shape}: expected {shape}, or (num_envs, "
            f"{', '.join(map(str, shape))}) for one of each environment"
        )
    if fault := describe_fault(name, array):
        raise ValueError(f"{name} holds {fault}")
    return array


def describe_fault(name: str, values: npt.NDArray[np.float64]) -> str:
    """Describe a number that the field cannot hold and what is expected; "" if all are well."""
    if not np.isfinite(values).all():
        return "NaN or infinity: expected finite numbers"
    if name in _NOT_NEGATIVE and (values < 0.0).any():
        return f"{values[values < 0.0][0]}: expected numbers that are not negative"
    return ""


def _place(model: mujoco.MjModel, name: str) -> ModelField:
    """Return where a field lies: an array of the model, an array or a number of its options.

    MuJoCo does not tell the address of a number: a copy gets a mark there, which is searched for.
    """
    values = numbers_of(model, name)
    if isinstance(getattr(model, name, None), np.ndarray):
        return ModelField(name, find_offset(model, name), True, values.shape)
    if isinstance(getattr(model.opt, name), np.ndarray):
        return ModelField(name, values.ctypes.data - model._address, False, values.shape)
    changed, mark, offset = copy.copy(model), 0.7236512348761251, 0
    setattr(changed.opt, name, mark)
    while ctypes.c_double.from_address(changed._address + offset).value != mark:
        offset += 8
    return ModelField(name, offset, False, (1,))


def _arrays(model: mujoco.MjModel) -> dict[str, Any]:
    names = [name for name in dir(model) if not name.startswith("_")]
    values = {name: getattr(model, name, None) for name in names}
    return {name: v.copy() for name, v in values.items() if isinstance(v, np.ndarray)}


def find_varied(model: mujoco.MjModel, given: Mapping[str, Any], drawn: tuple[str, ...]) -> Varied:
    """Return the fields that vary, and those that depend on them, which are tried.

    Raises:
        ValueError: a field is unknown, or decides more than numbers.
    """
    names, derived = tuple(dict.fromkeys((*given, *drawn))), dict[str, None]()
    fields = tuple(_place(model, name) for name in names)
    rng = np.random.default_rng(0)
    for name in names:
        other = copy.copy(model)
        values = numbers_of(other, name)
        write(other, name, values * rng.uniform(0.9, 1.1, values.shape))
        before = _arrays(other)
        mujoco.mj_setConst(other, mujoco.MjData(other))
        for changed, now in _arrays(other).items():
            if np.array_equal(now, before[changed], equal_nan=now.dtype.kind == "f"):
                continue
            if now.dtype != np.float64:
                raise ValueError(
                    f"{name} decides {changed}, which holds no float64: it cannot vary between "
                    "simulations of one model"
                )
            derived[changed] = None
    others = tuple(_place(model, name) for name in derived if name not in names)
    return Varied(fields, others, tuple(drawn))


def rows_of(
    model: mujoco.MjModel, varied: Varied, given: Mapping[str, Any], num_envs: int
) -> npt.NDArray[np.float64]:
    """Return the row of each simulation, (num_envs, size), with what `given` has for it."""
    rows, data = np.empty((num_envs, varied.size)), None
    if not varied.fields:
        return rows
    for i in range(num_envs if given else 1):
        copied = copy.copy(model)
        for name, values in given.items():
            write(copied, name, values[i])
        if varied.derived:
            data = data or mujoco.MjData(copied)
            mujoco.mj_setConst(copied, data)
        places = (*varied.fields, *varied.derived)
        rows[i] = np.concatenate([numbers_of(copied, p.name).ravel() for p in places])
    if not given:
        rows[1:] = rows[0]
    return rows


def split(varied: Varied, rows: npt.NDArray[np.float64]) -> dict[str, npt.NDArray[np.float64]]:
    """Return the fields of `rows`, (num_envs, size), by name: views (num_envs, *shape).

    Of a number of mjOption it is (num_envs,).
    """
    fields, begin = {}, 0
    for place in varied.fields:
        shape = place.shape if place.is_address or place.shape != (1,) else ()
        fields[place.name] = rows[:, begin : begin + place.size].reshape(-1, *shape)
        begin += place.size
    return fields


def find_bad_draw(varied: Varied, rows: npt.NDArray[np.float64]) -> tuple[int, str] | None:
    """Return the first simulation whose drawn numbers its model cannot hold, and a description."""
    drawn = split(varied, rows)
    if all(not describe_fault(name, drawn[name]) for name in varied.drawn):
        return None
    for i in range(len(rows)):
        for name in varied.drawn:
            if fault := describe_fault(name, drawn[name][i]):
                return i, f"{name} that holds {fault}"
    return None


def look_at(model: mujoco.MjModel, varied: Varied) -> Any:
    """Return the fields that `randomize` writes, by name, in plain Python."""
    return _kind(varied)(*(numbers_of(model, name) for name in varied.drawn))


def _kind(varied: Varied) -> Any:
    return NamedTuple("Model", [(name, Any) for name in varied.drawn])


# ---------------------------------------------------------------- in kernels


def _array(place: ModelField, shape: tuple[int, ...]) -> str:
    """Return the source of the array of a field of the model at address `m`."""
    start = f"m + {place.offset}"
    start = f"array_at({start}, (1,), i64)[0]" if place.is_address else start
    return f"array_at({start}, {shape}, f64)"


def make_copies(varied: Varied) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Make functions (address of mjModel, row) that set the model by the row, and back."""
    space: dict[str, Any] = {"array_at": array_at, "f64": f64, "i64": i64}
    made = []
    for line in ("a[k] = row[{begin} + k]", "row[{begin} + k] = a[k]"):
        lines, begin = ["def copy(m, row):", "    pass"], 0
        for place in (*varied.fields, *varied.derived):
            lines += [
                f"    a = {_array(place, (place.size,))}",
                f"    for k in range({place.size}):",
            ]
            lines += ["        " + line.format(begin=begin)]
            begin += place.size
        made.append(inline(define("\n".join(lines), **space), exact=True))
    return made[0], made[1]


def make_is_bad(varied: Varied) -> Callable[..., Any]:
    """Make an inlinable function (row) -> whether `find_bad_draw` finds one in it."""
    lines, begin = ["def is_bad(row):", "    bad = False"], 0
    for place in varied.fields:
        bad = " or row[k] < 0.0" if place.name in _NOT_NEGATIVE else ""
        if place.name in varied.drawn:
            lines += [f"    for k in range({begin}, {begin + place.size}):"]
            lines += [f"        bad = bad or not isfinite(row[k]){bad}"]
        begin += place.size
    return inline(define("\n".join([*lines, "    return bad"]), isfinite=math.isfinite), exact=True)


def make_look(varied: Varied) -> Callable[..., Any]:
    """Make an inlinable function (address of mjModel) -> the fields that `randomize` writes."""
    places = [place for place in varied.fields if place.name in varied.drawn]
    places.sort(key=lambda place: varied.drawn.index(place.name))
    space = {"array_at": array_at, "f64": f64, "i64": i64, "Model": _kind(varied)}
    items = "".join(f"{_array(place, place.shape)}, " for place in places)
    return inline(define(f"def look(m): return Model({items})", **space), exact=True)
