"""Structs: what a compiled function is handed by address, declared once and read by name.

    class Job(Struct):
        num_steps = Whole()
        num_envs = Whole()
        gamma = Real()
        rewards = Array(np.float32, "num_steps", "num_envs")  # sizes are fields, or numbers
        policy = Reference(Policy)  # another struct, somewhere else
        place = Nested(Strided)  # another struct, inside of this one
        steps = Wholes(4)  # so many whole numbers, a tuple

Every field is a word of eight bytes, or some of them, so that Python writes a struct as an array of
int64, and a kernel knows one number of it: its address. Machine code depends on the declaration
alone, which is part of a kernel's fingerprint.

Python packs what lives long. `job = Job(num_steps=8, rewards=array, ...)` checks names, dtypes and
shapes, keeps the arrays alive, and has `job.address`; `job.gamma` reads a field again, and
`job.rewards = other` writes one. Sizes that are left out are those of the arrays. What changes from
call to call is packed by kernels, on their stack: `Tile(lanes=16, inputs=pointer, ...)` there is a
view of it, which `call_at` passes on, and whose `address` goes where numbers alone do, as into a
parallel loop.

A declaration may leave dtypes open: of `Array("real", "size")`, in a struct and in those that it
refers to, `Work.of(real=np.float32)` says which it is. A kernel that packs a `Work` has it from the
arrays.

In a kernel `job_at = Job.at` makes a view of an address, and `job.rewards` is a contiguous array of
the declared shape that nobody counts: whoever packed the struct keeps its memory alive. Nobody
writes a struct while a function that was given it runs: LLVM may keep a field that was read before
a loop, without which the loop would not become vectors. A word that other threads write meanwhile,
such as a gate, is no field; a field may be the pointer to it.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
from array import array
from collections.abc import Sequence
from struct import pack, unpack
from typing import Any, ClassVar, Self

import numpy as np
from llvmlite import ir
from numba import from_dtype, types
from numba.core import cgutils, errors
from numba.extending import (
    intrinsic,
    lower_builtin,
    lower_getattr_generic,
    models,
    register_model,
    typeof_impl,
)
from numba.np.arrayobj import make_array, populate_array
from numba.np.numpy_support import as_dtype

from rlcpu.kernels.compiler import hooks
from rlcpu.kernels.machine.memory import array_address
from rlcpu.kernels.machine.vectors import I64

# ---------------------------------------------------------------- kinds of fields


class StructField:
    """Base of the kinds of fields: words of a struct, which Python reads and writes by its name.

    Attributes:
        name: of the field.
        label: its name with that of the struct, for messages.
        place: number of its first word.
        size: how many words it has.
        is_whole: whether a whole number, or a flag, is its word.
    """

    name: str
    label: str
    place: int
    size: int = 1
    is_whole: ClassVar[bool] = True

    def __set_name__(self, struct: Any, name: str) -> None:
        self.name, self.label = name, f"{struct.__name__}.{name}"

    def __get__(self, struct: Any, kind: Any = None) -> Any:
        return self if struct is None else struct._kept[self.name]

    def __set__(self, struct: Any, value: Any) -> None:
        words = self.words(value, struct._kept)
        struct._words[self.place : self.place + self.size] = array("q", words)
        struct._kept[self.name] = value  # kept alive

    def words(self, value: Any, fields: dict[str, Any]) -> Sequence[int]:
        """Return the words of a value, checked; `fields` has all values, which are kept alive."""
        raise NotImplementedError

    def __repr__(self) -> str:
        """Return all that machine code depends on."""
        return f"{type(self).__name__}()"

    @property
    def numba(self) -> Any:
        """Return the type of the field in kernels."""
        raise NotImplementedError

    def packed_type(self, value: Any) -> Any:
        """Return the type to which a kernel converts a value to pack it; None for a wrong one.

        `value` is numba's type of it.
        """
        return None


class _NumberField(StructField):
    """Field that is one number; a class of it has its type in kernels."""

    kind: ClassVar[Any]
    allowed: ClassVar[Any]  # types of numba's that are converted to it

    @property
    def numba(self) -> Any:
        """Return the type of the field in kernels."""
        return self.kind

    def packed_type(self, value: Any) -> Any:
        """Return its type; see `StructField`."""
        return self.kind if isinstance(value, self.allowed) else None


class Whole(_NumberField):
    """Field that is a whole number."""

    kind, allowed = types.int64, types.Integer

    def words(self, value: Any, fields: dict[str, Any]) -> Sequence[int]:
        """Return the number."""
        return (value,)


class Real(_NumberField):
    """Field that is a real number, float64."""

    kind, allowed, is_whole = types.float64, (types.Integer, types.Float), False

    def words(self, value: Any, fields: dict[str, Any]) -> Sequence[int]:
        """Return the bits of the number."""
        return unpack("q", pack("d", value))


class Flag(_NumberField):
    """Field that is True or False."""

    kind, allowed = types.boolean, types.Boolean

    def words(self, value: Any, fields: dict[str, Any]) -> Sequence[int]:
        """Return 1 or 0."""
        return (1 if value else 0,)


class Wholes(StructField):
    """Field that is so many whole numbers: a tuple."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __repr__(self) -> str:
        return f"Wholes({self.size})"

    def words(self, value: Any, fields: dict[str, Any]) -> Sequence[int]:
        """Return the numbers."""
        if len(value) != self.size:
            raise TypeError(f"{self.label}: {len(value)} numbers, expected {self.size}")
        return tuple(value)

    @property
    def numba(self) -> Any:
        """Return the type of the field in kernels."""
        return types.UniTuple(types.int64, self.size)

    def packed_type(self, value: Any) -> Any:
        """Return its type; see `StructField`."""
        is_right = isinstance(value, types.BaseTuple) and len(value) == self.size
        return self.numba if is_right else None


class Array(StructField):
    """Field that is the address of a contiguous array.

    Args:
        dtype: of its numbers, or the name of one that `Struct.of` sets.
        shape: its sizes, numbers or names of `Whole` fields; none of them where the struct does not
            say how many numbers there are: in kernels such a field is a pointer.
    """

    def __init__(self, dtype: Any, *shape: int | str) -> None:
        self.dtype = dtype if isinstance(dtype, str) else np.dtype(dtype)
        self.shape = shape

    def __repr__(self) -> str:
        dtype = self.dtype if isinstance(self.dtype, str) else self.dtype.descr
        return f"Array({dtype}, {self.shape})"

    def words(self, value: Any, fields: dict[str, Any]) -> Sequence[int]:
        """Return the address of an array, or an address itself."""
        if not isinstance(value, np.ndarray):
            return (value,)
        # Names are keys of `fields`, numbers are not: they are the sizes themselves.
        sizes: Any = self.shape
        shape = tuple(map(fields.get, sizes, sizes))
        is_right = value.dtype == self.dtype and (not shape or value.shape == shape)
        if not is_right or not value.flags.c_contiguous:
            raise TypeError(
                f"{self.label}: {value.dtype} {value.shape}, expected "
                f"contiguous {self.dtype} {shape or ''}"
            )
        return (array_address(value),)

    @property
    def numba(self) -> Any:
        """Return the type of the field in kernels."""
        dtype = from_dtype(self.dtype)
        return types.Array(dtype, len(self.shape), "C") if self.shape else types.CPointer(dtype)

    def packed_type(self, value: Any) -> Any:
        """Return the type of a pointer or contiguous array; see `StructField`."""
        is_pointer = isinstance(value, types.CPointer)
        is_array = isinstance(value, types.Array) and value.layout == "C"
        is_right = (is_pointer or is_array) and value.dtype == from_dtype(self.dtype)
        return value if is_right else None


class Reference(StructField):
    """Field that is the address of another struct, which kernels read through it."""

    def __init__(self, struct: Any) -> None:
        self.struct = struct

    def __repr__(self) -> str:
        return f"Reference({self.struct.declaration})"

    def words(self, value: Any, fields: dict[str, Any]) -> Sequence[int]:
        """Return the address of a struct, or an address itself."""
        return (value.address if isinstance(value, Struct) else value,)

    @property
    def numba(self) -> Any:
        """Return the type of the field in kernels."""
        return self.struct.view

    def packed_type(self, value: Any) -> Any:
        """Return the type of an address or of a view; see `StructField`."""
        if isinstance(value, StructView):
            return value if value.struct is self.struct else None
        return types.int64 if isinstance(value, types.Integer) else None


class References(Array):
    """Field that is the address of an array of addresses of other structs, which it keeps alive."""

    def __init__(self) -> None:
        super().__init__(np.int64)

    def words(self, value: Any, fields: dict[str, Any]) -> Sequence[int]:
        """Return the address of an array of the structs' addresses."""
        addresses = np.array([each.address for each in value], np.int64)
        fields[f"{self.name}, addresses"] = addresses  # kept alive
        return super().words(addresses, fields)


class Nested(StructField):
    """Field that is another struct, inside of this one; Python may set it by a tuple of its words.

    Kernels read it as a view, and do not pack it.
    """

    def __init__(self, struct: Any) -> None:
        self.struct, self.size = struct, struct.num_words

    def __repr__(self) -> str:
        return f"Nested({self.struct.declaration})"

    def words(self, value: Any, fields: dict[str, Any]) -> Sequence[int]:
        """Return the words of a struct, or words themselves."""
        if isinstance(value, tuple) and len(value) == self.size:
            return value
        if not isinstance(value, self.struct):
            raise TypeError(f"{self.label}: {value!r}, expected {self.struct.__name__}")
        return value._words

    @property
    def numba(self) -> Any:
        """Return the type of the field in kernels."""
        return self.struct.view


# ---------------------------------------------------------------- declarations


class StructType(type):
    """The class of declarations, by which numba knows them from other classes."""

    def __new__(cls, name: str, bases: tuple[Any, ...], namespace: dict[str, Any]) -> Any:
        """Make a declaration, whose objects take no attributes but its fields."""
        return super().__new__(cls, name, bases, {"__slots__": (), **namespace})

    def __setattr__(cls, name: str, value: Any) -> None:
        raise AttributeError(f"{cls.__name__}.{name}: a declaration stays as it is")


class Struct(metaclass=StructType):
    """Base of declarations; see the module.

    Args:
        **fields: values of all fields: numbers, arrays, structs, or addresses of what others keep
            alive.

    Raises:
        TypeError: a field is missing or unknown, or an array has another dtype or shape, or is not
            contiguous.

    Attributes:
        address: of its memory, for kernels.
    """

    __slots__ = ("_kept", "_words", "address")

    #: The fields by name, in the order of their words.
    fields: ClassVar[dict[str, StructField]] = {}
    #: Where sizes are that are left out: (name of a size, field of an array, axis of it).
    _size_sources: ClassVar[list[tuple[str, str, int]]] = []
    #: How many words it has.
    num_words: ClassVar[int] = 0
    #: What machine code depends on, as text.
    declaration: ClassVar[str] = ""
    #: The declaration and its dtypes of what `of` returned.
    made_of: ClassVar[tuple[Any, dict[str, Any]] | None] = None
    #: Numba's type of a view of such a struct.
    view: ClassVar[Any]
    #: (address) -> view, in kernels.
    at: ClassVar[Any]

    address: int
    _words: array[int]  # its memory
    _kept: dict[str, Any]  # arrays and structs by their fields, kept alive

    def __init_subclass__(cls) -> None:
        """Number the fields, and make the view of kernels."""
        fields = {name: each for name, each in vars(cls).items() if isinstance(each, StructField)}
        num_words, size_sources = 0, []
        for name, field in fields.items():
            if name in vars(Struct):
                raise TypeError(f"{cls.__name__}.{name}: a field has another name than this")
            field.place = num_words
            num_words += field.size
            for axis, size in enumerate(field.shape if isinstance(field, Array) else ()):
                if isinstance(size, str):
                    size_sources.append((size, name, axis))
                    if not isinstance(fields.get(size), Whole):
                        text = f"{cls.__name__}.{name}: its size {size!r} is no Whole field"
                        raise TypeError(text)
        type.__setattr__(cls, "fields", fields)
        type.__setattr__(cls, "_size_sources", size_sources)
        type.__setattr__(cls, "num_words", num_words)
        type.__setattr__(cls, "declaration", f"{cls.__qualname__}({fields})")
        type.__setattr__(cls, "view", StructView(cls, is_constant=True))
        type.__setattr__(cls, "at", staticmethod(_make_at(cls.view)))

    @classmethod
    def of(cls, **dtypes: Any) -> type[Self]:
        """Return the struct whose fields have these dtypes where the declaration names them.

        So have the structs that it refers to, and its parts.
        """
        return _struct_of(cls, **dtypes)

    @classmethod
    def has_open_dtypes(cls) -> bool:
        """Tell whether the declaration names dtypes, its own or of other structs in it."""
        return any(
            field.struct.has_open_dtypes()
            if isinstance(field, Reference | Nested)
            else isinstance(getattr(field, "dtype", None), str)
            for field in cls.fields.values()
        )

    def __init__(self, **fields: Any) -> None:
        if fields.keys() != self.fields.keys():
            self._add_sizes(fields)
        words: list[int] = []
        for name, field in self.fields.items():
            value = fields[name]
            kind = type(value)
            # Most values are what `words` returns: to ask for it takes as long as all the rest.
            if field.is_whole and (kind is int or kind is bool):
                words.append(value)
            elif kind is tuple and len(value) == field.size:
                words += value
            else:
                words += field.words(value, fields)
        # Of Python, not of NumPy, whose array takes 3 us more, and would take 1.5 for 1.
        self._words, self._kept = array("q", words), fields  # kept alive
        self.address = self._words.buffer_info()[0]

    def _add_sizes(self, fields: dict[str, Any]) -> None:
        """Add sizes that are left out, those of arrays, and refuse fields that do not fit."""
        for size, name, axis in self._size_sources:
            if size not in fields and axis < getattr(fields.get(name), "ndim", 0):
                fields[size] = fields[name].shape[axis]
        if missing := self.fields.keys() - fields.keys():
            raise TypeError(f"{type(self).__name__}: {', '.join(sorted(missing))} missing")
        if unknown := fields.keys() - self.fields.keys():
            raise TypeError(f"{type(self).__name__}: {', '.join(sorted(unknown))} unknown")

    def __reduce__(self) -> Any:
        """Return the call that packs a copy in another process."""
        struct, dtypes = self.made_of or (type(self), {})
        return _remake, (struct, dtypes, {name: getattr(self, name) for name in self.fields})

    def replace(self, **fields: Any) -> Self:
        """Return a copy in memory of its own, with other values of some fields."""
        same = {name: getattr(self, name) for name in self.fields if name not in fields}
        return type(self)(**same, **fields)


def _remake(struct: Any, dtypes: dict[str, Any], fields: dict[str, Any]) -> Any:
    return (struct.of(**dtypes) if dtypes else struct)(**fields)


@functools.cache
def _struct_of(struct: Any, **dtypes: Any) -> Any:
    """Return `struct.of(**dtypes)`, the same declaration for equal dtypes."""
    if not all(isinstance(each, np.dtype) for each in dtypes.values()):
        return _struct_of(struct, **{name: np.dtype(each) for name, each in dtypes.items()})

    def closed(field: StructField) -> StructField:
        """Return a field without open dtypes."""
        if isinstance(field, Array) and isinstance(field.dtype, str):
            return Array(dtypes[field.dtype], *field.shape)
        if isinstance(field, Reference | Nested) and field.struct.has_open_dtypes():
            return type(field)(field.struct.of(**dtypes))
        return field

    if not struct.has_open_dtypes():
        return struct
    fields = {name: closed(field) for name, field in struct.fields.items()}
    return StructType(struct.__name__, (Struct,), {**fields, "made_of": (struct, dtypes)})


def _make_at(view: Any) -> Any:
    """Make `Struct.at` of a view."""

    @intrinsic
    def at(typing, address):
        """Return a view of the struct at an address."""

        def generate(context, builder, signature, args):
            return builder.inttoptr(args[0], I64.as_pointer())

        return view(types.int64), generate

    return at


# ---------------------------------------------------------------- in kernels


class StructView(types.Type):
    """Numba's type of a pointer to a struct.

    `is_constant` tells that nobody writes it while the function runs: of what a kernel packs on its
    own stack that is not so.
    """

    def __init__(self, struct: Any, is_constant: bool) -> None:
        self.struct, self.is_constant = struct, is_constant
        digest = hashlib.sha256(struct.declaration.encode()).hexdigest()[:16]
        kind = "View" if is_constant else "Packed"
        super().__init__(f"{kind}({struct.__qualname__}, {digest})")

    def __reduce__(self) -> Any:
        """Return the call that makes it in another process, where machine code is loaded."""
        struct, dtypes = self.struct.made_of or (self.struct, {})
        return _view_of, (struct, dtypes, self.is_constant)


def _view_of(struct: Any, dtypes: dict[str, Any], is_constant: bool) -> StructView:
    return StructView(struct.of(**dtypes) if dtypes else struct, is_constant)


@register_model(StructView)
class _StructViewModel(models.PrimitiveModel):
    """Memory of a view: a pointer to words."""

    def __init__(self, manager: Any, view: Any) -> None:
        super().__init__(manager, view, I64.as_pointer())


def _resolve_field(view: Any, name: str) -> Any:
    """Return numba's type of a field, or of the address; None where there is no such one."""
    if name == "address":
        return types.int64
    field = view.struct.fields.get(name)
    if isinstance(field, Nested):
        return StructView(field.struct, view.is_constant)
    return None if field is None else field.numba


hooks.resolve_attributes(StructView, _resolve_field)


@lower_getattr_generic(StructView)
def _read_field(context, builder, view, words, name):
    """Emit the read of a field, or of the address."""
    fields = view.struct.fields
    if name == "address":
        return builder.ptrtoint(words, I64)

    def place_of(name, number=0):
        return builder.gep(words, [I64(fields[name].place + number)], inbounds=True)

    def load(name, number=0):
        word = builder.load(place_of(name, number))
        if view.is_constant:
            word.set_metadata("invariant.load", builder.module.add_metadata([]))
        return word

    field = fields[name]
    if isinstance(field, Nested):
        return place_of(name)
    if isinstance(field, Wholes):
        numbers = [load(name, number) for number in range(field.size)]
        return context.make_tuple(builder, field.numba, numbers)
    word = load(name)
    if isinstance(field, Whole):
        return word
    if isinstance(field, Flag):
        return builder.icmp_signed("!=", word, I64(0))
    if isinstance(field, Real):
        return builder.bitcast(word, ir.DoubleType())
    if not isinstance(field, Array) or not field.shape:
        return builder.inttoptr(word, context.get_value_type(field.numba))
    view_of_array = make_array(field.numba)(context, builder)
    sizes = [load(size) if isinstance(size, str) else I64(size) for size in field.shape]
    itemsize = I64(np.dtype(field.dtype).itemsize)
    strides = [itemsize]
    for size in reversed(sizes[1:]):
        strides.insert(0, builder.mul(strides[0], size, flags=["nsw"]))
    data = builder.inttoptr(word, view_of_array.data.type)
    populate_array(view_of_array, data, sizes, strides, itemsize, meminfo=None, parent=None)
    return view_of_array._getvalue()


class StructClass(types.Callable, types.Opaque):
    """Numba's type of a declaration, which a kernel calls to pack a struct on its stack."""

    def __init__(self, struct: Any) -> None:
        self.struct = struct
        super().__init__(f"class({struct.view.name})")

    def get_call_type(self, context: Any, args: Any, kws: Any) -> Any:
        """Return the signature of a call: a value of each field, in order or by its name."""
        struct = self.struct
        by_name = dict(zip(struct.fields, args, strict=False)) | kws
        wrong = struct.fields.keys() ^ by_name.keys()
        if wrong or len(args) + len(kws) != len(struct.fields):
            text = ", ".join(sorted(wrong)) or "a field is given twice"
            raise errors.TypingError(f"{struct.__name__}: missing or unknown: {text}")
        kinds, dtypes = [], {}
        for name, field in struct.fields.items():
            if isinstance(field, Array) and isinstance(field.dtype, str):
                dtype = getattr(by_name[name], "dtype", None)
                dtypes[field.dtype] = None if dtype is None else as_dtype(dtype)
        struct = struct.of(**dtypes)
        for name, field in struct.fields.items():
            kinds.append(field.packed_type(types.unliteral(by_name[name])))
            if kinds[-1] is None:
                text = f"{struct.__name__}.{name}: {by_name[name]}, expected {field!r}"
                raise errors.TypingError(text)
        by_either = inspect.Parameter.POSITIONAL_OR_KEYWORD
        names = [inspect.Parameter(name, by_either) for name in struct.fields]
        packed = StructView(struct, is_constant=False)(*kinds)
        return packed.replace(pysig=inspect.Signature(names))

    def get_call_signatures(self) -> Any:
        """Return that any types of arguments may fit."""
        return (), True

    def get_impl_key(self, sig: Any) -> Any:
        """Return under what the code of a call is registered."""
        return type(self)


register_model(StructClass)(models.OpaqueModel)


@typeof_impl.register(StructType)
def _typeof_struct(struct: Any, context: Any) -> Any:
    return StructClass(struct)


@hooks.lower_constant(StructClass)
def _emit_class(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    return context.get_dummy_value()


@lower_builtin(StructClass, types.VarArg(types.Any))
def _pack(context, builder, sig, args):
    """Emit the words of a struct on the stack, and return the view of them."""
    struct = sig.return_type.struct
    fields, words = struct.fields, cgutils.alloca_once(builder, I64, size=struct.num_words)
    for field, kind, value in zip(fields.values(), sig.args, args, strict=True):
        if isinstance(kind, types.Array):
            value = make_array(kind)(context, builder, value).data
        if isinstance(field, Flag):
            values = [builder.zext(value, I64)]
        elif isinstance(field, Real):
            values = [builder.bitcast(value, I64)]
        elif isinstance(field, Wholes):
            values = cgutils.unpack_tuple(builder, value)
        else:
            is_pointer = isinstance(value.type, ir.PointerType)
            values = [builder.ptrtoint(value, I64) if is_pointer else value]
        for place, word in enumerate(values, field.place):
            builder.store(word, builder.gep(words, [I64(place)], inbounds=True))
    return words
