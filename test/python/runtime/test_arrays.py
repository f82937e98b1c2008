# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What may be given as an array, and where: one rule for inputs, parameters, constants and the interpreter."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import pytest

import rlx_mlir as rlx
from rlx_mlir import GraphModule, formats
from rlx_mlir.arrays import DLPACK_TYPES, as_array
from rlx_mlir.errors import BuildError, InputError, RlxError


class _Tensor(ctypes.Structure):
    _fields_ = (  # DLTensor
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint32 * 2),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
#: Of a versioned capsule: its memory may only be read.
_READ_ONLY = 1


class Foreign:
    """An array of a library with types that numpy lacks: DLPack, as PyTorch gives it, by hand."""

    #: What consumers may hold: it lives on, whoever else has forgotten it. The deleter can't free its own code.
    exported: ClassVar[list[Foreign]] = []

    def __init__(
        self, array: np.ndarray, *, code: int | None = None, device: int = 1, flags: int | None = None
    ) -> None:
        """`flags` are those of DLPack's version 1; None is a library from before it."""
        self._array, self._device, self._flags = array, device, flags
        own, bits = DLPACK_TYPES[array.dtype]
        self._shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        steps = [stride // array.itemsize for stride in array.strides]
        self._strides = (ctypes.c_int64 * array.ndim)(*steps)
        tensor = _Tensor(
            array.ctypes.data,
            (device, 0),
            array.ndim,
            own if code is None else code,
            bits,
            1,
            self._shape,
            self._strides,
        )
        self.deleted = 0
        self._deleter = _DELETER(self._delete)
        deleter = ctypes.cast(self._deleter, ctypes.c_void_p)
        self._managed = _Managed(tensor, None, deleter)
        self._versioned = _Versioned((1, 0), None, deleter, flags or 0, tensor)

    def _delete(self, _: Any) -> None:
        self.deleted += 1

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device, 0

    def __dlpack__(self, **wanted: Any) -> Any:
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        self.exported.append(self)
        if self._flags is None and wanted:
            raise TypeError("unexpected keywords")
        if self._flags is not None and wanted.get("max_version", (0, 0))[0] >= 1:
            return make(ctypes.addressof(self._versioned), b"dltensor_versioned", None)
        return make(ctypes.addressof(self._managed), b"dltensor", None)


def module(dtype: str) -> GraphModule:
    m = GraphModule.hir("f")
    x = m.input("x", ["rows", 4], dtype)
    m.set_outputs({"y": m.add(m.cast(x, "f32"), m.cast(m.param("w", [4], dtype), "f32"))})
    return m


VALUES = np.array([[1.0, -2.5, 0.5, 3.0], [0.25, 448.0, -0.0, 1.75]], np.float32)


@pytest.mark.parametrize("turned", [False, True], ids=["contiguous", "transposed"])
@pytest.mark.parametrize(
    ("word", "dtype"),
    [("bf16", ml_dtypes.bfloat16), ("f16", np.float16), ("f32", np.float32), ("f8E4M3FN", ml_dtypes.float8_e4m3fn)],
)
@pytest.mark.quick(3)
def test_tensors_of_other_libraries(word: str, dtype: Any, turned: bool) -> None:
    x = VALUES.astype(dtype)
    x = np.asfortranarray(x) if turned else x
    given, w = Foreign(x), Foreign(x[0].copy())
    expected = x.astype(np.float32) + x[0].astype(np.float32)
    m = module(word)
    assert np.array_equal(rlx.interpret(m, {"x": given, "w": w})["y"], expected)
    compiled = rlx.compile(m)
    compiled.set_params({"w": w})
    assert np.array_equal(compiled(given), expected)
    if word.startswith("f8"):  # which constants don't have
        return
    constant = GraphModule.hir("g")
    constant.set_outputs({"y": constant.constant(given)})
    assert rlx.interpret(constant, {})["y"].tobytes() == x.tobytes()


def test_memory_of_other_libraries_is_kept_and_given_back() -> None:
    given = Foreign(np.arange(4, dtype=np.float32))
    array = as_array("it", given)
    assert not array.flags.writeable
    view = array[1:]
    del array
    assert given.deleted == 0
    assert view.tolist() == [1, 2, 3]
    del view
    assert given.deleted == 1


@pytest.mark.parametrize("flags", [None, 0, _READ_ONLY], ids=["unversioned", "writeable", "read-only"])
def test_memory_of_other_libraries_is_written_where_they_say_so(flags: int | None) -> None:
    own = np.arange(4, dtype=np.float32)
    assert as_array("it", Foreign(own, flags=flags)).flags.writeable == (flags == 0)

    compiled = rlx.compile(module("bf16"))
    compiled.set_params({"w": np.ones(4, ml_dtypes.bfloat16)})
    x, into = Foreign(VALUES.astype(ml_dtypes.bfloat16)), np.zeros((2, 4), np.float32)
    target = Foreign(into, flags=flags)
    if flags != 0:
        with pytest.raises(InputError, match="output 'y' goes to a contiguous, aligned, writeable array, but got"):
            compiled.run({"x": x}, outputs={"y": target})
        assert not into.any()
        return
    results = compiled.run({"x": x}, outputs={"y": target})
    assert results["y"] is target
    expected = VALUES.astype(ml_dtypes.bfloat16).astype(np.float32) + 1
    assert np.array_equal(into, expected)
    into[:] = 0
    bound = compiled.bind({"x": x}, outputs={"y": target})
    bound()
    assert np.array_equal(into, expected)


def test_memory_of_other_libraries_is_donated_where_they_say_so() -> None:
    m = GraphModule.hir("update")
    cache = m.input("cache", ["n", 4], "f32")
    m.set_outputs({"new": m.add(cache, m.input("x", ["n", 4], "f32"))}, tied={"new": "cache"})
    compiled = rlx.compile(m)
    own, x = np.zeros((2, 4), np.float32), np.ones((2, 4), np.float32)
    compiled.run({"cache": Foreign(own, flags=0), "x": x}, donate=("cache",))
    assert np.array_equal(own, x)
    with pytest.raises(InputError, match="input 'cache' can't be donated: only a contiguous, writeable array can"):
        compiled.run({"cache": Foreign(own), "x": x}, donate=("cache",))
    assert np.array_equal(own, x)


@pytest.mark.parametrize("word", sorted(str(dtype) for dtype in DLPACK_TYPES))
@pytest.mark.quick(4)
def test_results_go_to_other_libraries_without_a_copy(word: str) -> None:
    own = np.arange(12).reshape(3, 4).astype(np.dtype(word))
    for array in (own, own[:, ::2], own.T, own[:0]):
        given = rlx.as_dlpack(array)
        back = as_array("it", given)
        assert back.dtype == own.dtype
        assert back.tobytes() == array.tobytes()
        assert back.flags.writeable or not array.size
        assert np.shares_memory(back, own) == bool(array.size)
    own.flags.writeable = False
    assert not as_array("it", rlx.as_dlpack(own)).flags.writeable
    assert repr(rlx.as_dlpack(own)) == f"HostArray(3x4x{own.dtype})"


def test_numpy_reads_what_other_libraries_get() -> None:
    own = np.arange(6, dtype=np.float32)
    back = np.from_dlpack(rlx.as_dlpack(own))
    assert np.shares_memory(back, own)
    del own
    assert back.tolist() == [0, 1, 2, 3, 4, 5]


def test_what_dlpack_does_not_have() -> None:
    with pytest.raises(InputError, match=r"'array' has element type float32 with its bytes in the other order"):
        rlx.as_dlpack(np.zeros(3, np.dtype("f4").newbyteorder()))
    with pytest.raises(InputError, match="'array' has element type <U3, which DLPack doesn't have"):
        rlx.as_dlpack(np.array(["abc"]))
    fields = np.zeros(3, np.dtype([("a", "f4"), ("b", "i1")]))
    with pytest.raises(InputError, match=r"'array' has strides of \[5\] bytes, but DLPack's are multiples of .* 4"):
        rlx.as_dlpack(fields["a"])


def test_what_other_libraries_have_that_we_do_not() -> None:
    x = np.zeros((2, 4), np.float32)
    with pytest.raises(InputError, match="it has an element type that is not supported: DLPack's code 5, 32 bits"):
        as_array("it", Foreign(x, code=5))
    with pytest.raises(InputError, match=r"it is on another device \(of DLPack's type 8\)"):
        as_array("it", Foreign(x, device=8))


class Failing:
    """Says that it is an array, and fails with what isn't an `Exception`."""

    class Panic(BaseException):
        pass

    def __dlpack__(self, **_: Any) -> Any:
        raise self.Panic("poisoned")


def _compiled() -> Any:
    compiled = rlx.compile(module("f32"))
    compiled.set_params({"w": VALUES[0]})
    return compiled


def _plus(x: Any) -> Any:
    m = module("f32")
    return m.add(m.value("x"), x)


DOORS: dict[str, Callable[[Any], Any]] = {
    "run": lambda x: _compiled().run({"x": x}),
    "set_params": lambda x: rlx.compile(module("f32")).set_params({"w": x}),
    "interpret": lambda x: rlx.interpret(module("f32"), {"x": x, "w": VALUES[0]}),
    "constant": lambda x: GraphModule.hir("f").constant(x),
    "operand": _plus,
    "encode": lambda x: formats.encode("f32", x),
    "range_report": lambda x: module("f32").range_report(inputs={"x": x}),
}


@pytest.mark.parametrize("door", DOORS)
def test_every_door_has_the_same_rule(door: str) -> None:
    """Masked arrays, and those of the other byte order, are refused by name wherever arrays come in."""
    masked = np.ma.masked_array(VALUES, VALUES > 1)
    with pytest.raises(RlxError, match="masked"):
        DOORS[door](masked)
    with pytest.raises(RlxError, match=r"bytes in the other order \(>f4\)"):
        DOORS[door](VALUES.astype(">f4"))
    if door != "operand":  # whose operands are values, numbers and arrays of numpy
        with pytest.raises(RlxError, match="Panic: poisoned"):
            DOORS[door](Failing())


def test_constants_say_what_they_are_not() -> None:
    m = GraphModule.hir("f")
    with pytest.raises(BuildError, match="constant: unknown element type object"):
        m.constant(object())
    with pytest.raises(BuildError, match="constant: <U1 doesn't become f32"):
        m.constant(["a"], "f32")
