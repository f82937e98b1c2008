# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arrays on GPUs, and their exchange with other libraries; a stand-in for the driver has them on the host."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cuda_harness import FakeCuda, fake_device

from rlx_mlir import native
from rlx_mlir.errors import InputError
from rlx_mlir.runtime.device import DeviceArray, as_device_array, is_device_array

TYPES = [
    *(np.dtype(word) for word in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")),
    np.dtype(ml_dtypes.bfloat16),
    np.dtype(ml_dtypes.float8_e4m3fn),
    np.dtype(ml_dtypes.float8_e5m2),
]


@pytest.fixture
def cuda() -> Iterator[FakeCuda]:
    with fake_device(devices=2) as found:
        yield found


def sample(dtype: Any, shape: tuple[int, ...] = (2, 3)) -> np.ndarray:
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


class Interface:
    """An array of a library that has `__cuda_array_interface__`."""

    def __init__(self, array: DeviceArray, **changes: Any) -> None:
        self.owner = array
        self.__cuda_array_interface__ = {**array.__cuda_array_interface__, **changes}


class Dlpack:
    """An array of a library that has DLPack."""

    def __init__(self, array: DeviceArray) -> None:
        self.owner = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.owner.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        return self.owner.__dlpack__(**options)


# Contents -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shape", [(2, 3), (), (0,), (3, 0, 2), (1,)], ids=str)
@pytest.mark.quick(2)
def test_round_trip(cuda: FakeCuda, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    given = sample(dtype, shape)
    array = DeviceArray.from_numpy(given)
    assert (array.shape, array.dtype, array.ndim, array.size, array.nbytes) == (
        given.shape,
        given.dtype,
        given.ndim,
        given.size,
        given.nbytes,
    )
    assert array.address % 256 == 0
    for back in (array.numpy(), np.asarray(array)):
        assert back.dtype == given.dtype
        np.testing.assert_array_equal(back, given)


def test_making_and_writing(cuda: FakeCuda) -> None:
    zeros = DeviceArray.zeros((3, 4), np.int16)
    np.testing.assert_array_equal(zeros.numpy(), np.zeros((3, 4), np.int16))
    turned = np.arange(12, dtype=np.int16).reshape(4, 3).T
    zeros.write(turned)
    np.testing.assert_array_equal(zeros.numpy(), turned)
    other = DeviceArray.from_numpy(np.zeros((3, 4), np.int16))
    other.write(zeros)
    np.testing.assert_array_equal(other.numpy(), turned)
    assert repr(other) == "DeviceArray(3x4xint16 on GPU 0)"
    np.testing.assert_array_equal(np.asarray(other, dtype=np.float32), turned.astype(np.float32))
    for wrong in (np.zeros((4, 3), np.int16), np.zeros((3, 4), np.int32), DeviceArray.zeros((3, 5), np.int16)):
        with pytest.raises(InputError, match=r"an array of shape \[3, 4\] and element type int16 is expected, but got"):
            other.write(wrong)
    with pytest.raises(InputError, match="can't be written from one on GPU 1"):
        other.write(DeviceArray.zeros((3, 4), np.int16, device=1))
    with pytest.raises(InputError, match="has numbers for elements, but got object"):
        DeviceArray.empty((3,), object)


def test_memory_is_given_back(cuda: FakeCuda) -> None:
    before = native.CudaDevice(0).allocated_bytes
    arrays = [DeviceArray.zeros((1000,), np.float32) for _ in range(3)]
    assert native.CudaDevice(0).allocated_bytes == before + 12_000
    assert cuda.live["memory"] == 3
    del arrays
    assert native.CudaDevice(0).allocated_bytes == before
    assert cuda.live == {}


def test_what_a_gpu_is(cuda: FakeCuda) -> None:
    device = native.CudaDevice(1)
    assert (device.ordinal, device.name, device.compute_capability) == (1, "fake GPU 9.0", (9, 0))
    assert (device.multiprocessors, device.max_shared_bytes) == (132, 232448)
    assert device.total_bytes == device.memory()[1] == 8 << 30
    assert native.cuda_driver_version() == 12080


# Other libraries ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [dtype for dtype in TYPES if dtype.isbuiltin == 1], ids=str)
@pytest.mark.quick(1)
def test_cuda_array_interface(cuda: FakeCuda, dtype: np.dtype[Any]) -> None:
    array = DeviceArray.from_numpy(sample(dtype))
    assert array.__cuda_array_interface__ == {
        "shape": (2, 3),
        "typestr": dtype.str,
        "data": (array.address, False),
        "strides": None,
        "stream": None,
        "version": 3,
    }
    shared = DeviceArray.from_interface(Interface(array))
    assert shared.address == array.address
    address = array.address
    del array
    gc.collect()
    assert cuda.live["memory"] == 1  # the view keeps it
    np.testing.assert_array_equal(shared.numpy(), sample(dtype))
    assert as_device_array(Interface(shared), device=0).address == address


@pytest.mark.parametrize("dtype", [dtype for dtype in TYPES if dtype.isbuiltin != 1], ids=str)
@pytest.mark.quick(2)
def test_cuda_array_interface_of_types_that_numpy_has_not(cuda: FakeCuda, dtype: np.dtype[Any]) -> None:
    array = DeviceArray.zeros((3,), dtype)
    assert not hasattr(array, "__cuda_array_interface__")  # so that libraries ask for DLPack
    assert is_device_array(array)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"strides": (4, 8)}, r"is contiguous, but got shape \[2, 3\] and strides \[1, 2\]"),
        ({"mask": object()}, "with a mask"),
        ({"typestr": "nonsense"}, "__cuda_array_interface__ of Interface can't be read"),
        ({"data": None}, "can't be read"),
        ({"data": (4096, False)}, "0x1000, the address in __cuda_array_interface__, isn't memory of a GPU"),
        ({"data": (0, False)}, "0x0, the address in __cuda_array_interface__, isn't memory of a GPU"),
        ({"shape": (2, "x")}, "can't be read"),
    ],
)
@pytest.mark.quick(2)
def test_interfaces_that_do_not_fit(cuda: FakeCuda, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        DeviceArray.from_interface(Interface(DeviceArray.zeros((2, 3), np.float32), **changes))


def test_an_interface_does_not_say_which_gpu(cuda: FakeCuda) -> None:
    array = DeviceArray.from_numpy(sample(np.float32), device=1)
    assert DeviceArray.from_interface(Interface(array)).device == 1
    with pytest.raises(InputError, match="an array on GPU 0 is needed, but it is on GPU 1"):
        as_device_array(Interface(array), device=0)


def test_interfaces_that_fit(cuda: FakeCuda) -> None:
    array = DeviceArray.from_numpy(sample(np.float32))
    for changes in ({"strides": (12, 4)}, {"stream": 1}, {"stream": 2}, {"version": 2}):
        np.testing.assert_array_equal(
            DeviceArray.from_interface(Interface(array, **changes)).numpy(), sample(np.float32)
        )
    nothing = Interface(DeviceArray.zeros((0, 3), np.float32))
    assert nothing.__cuda_array_interface__["data"][0] == 0
    assert DeviceArray.from_interface(nothing).address != 0


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 4)], ids=str)
@pytest.mark.quick(1)
def test_dlpack(cuda: FakeCuda, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    given = sample(dtype, shape)
    array = DeviceArray.from_numpy(given, device=1)
    assert array.__dlpack_device__() == (2, 1)
    for shared in (DeviceArray.from_dlpack(array), as_device_array(Dlpack(array), device=1)):
        assert (shared.shape, shared.dtype, shared.device) == (given.shape, given.dtype, 1)
        assert shared.size == 0 or shared.address == array.address
    del array
    gc.collect()
    np.testing.assert_array_equal(shared.numpy(), given)


class DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int),
        ("device_id", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class DLManagedTensor(ctypes.Structure):
    _fields_ = (
        ("tensor", DLTensor),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    )


def test_a_capsule_as_a_consumer_reads_it(cuda: FakeCuda) -> None:
    capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    capsule_pointer.restype, capsule_pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    rename = ctypes.pythonapi.PyCapsule_SetName
    rename.argtypes = (ctypes.py_object, ctypes.c_char_p)

    array = DeviceArray.from_numpy(sample(ml_dtypes.bfloat16, (2, 3, 4)))
    address = array.address
    capsule = array.__dlpack__(stream=1)
    managed = DLManagedTensor.from_address(capsule_pointer(capsule, b"dltensor"))
    tensor = managed.tensor
    assert tensor.data + tensor.byte_offset == address
    assert (tensor.device_type, tensor.device_id, tensor.ndim) == (2, 0, 3)
    assert (tensor.code, tensor.bits, tensor.lanes) == (4, 16, 1)
    assert list(tensor.shape[:3]) == [2, 3, 4]
    assert not tensor.strides or list(tensor.strides[:3]) == [12, 4, 1]
    used = b"used_dltensor"
    rename(capsule, used)  # the consumer has it now
    del array, capsule
    gc.collect()
    assert cuda.live["memory"] == 1
    managed.deleter(ctypes.addressof(managed))
    gc.collect()
    assert cuda.live == {}


def test_other_libraries_are_asked_to_let_the_default_stream_wait(cuda: FakeCuda) -> None:
    array = DeviceArray.from_numpy(np.arange(4, dtype=np.float32))
    asked: list[object] = []

    class Foreign:
        """As PyTorch, which lets no stream wait unless it is asked."""

        def __dlpack_device__(self) -> tuple[int, int]:
            return array.__dlpack_device__()

        def __dlpack__(self, *, stream: object = -1, max_version: object = None) -> object:
            asked.append(stream)
            return array.__dlpack__(stream=stream)

    found = DeviceArray.from_dlpack(Foreign())
    assert asked == [1]
    assert found.address == array.address
    del found


def test_a_capsule_that_nobody_takes(cuda: FakeCuda) -> None:
    capsule = DeviceArray.zeros((3,), np.float32).__dlpack__()
    assert cuda.live["memory"] == 1
    del capsule
    gc.collect()
    assert cuda.live == {}


def test_dlpack_to_and_from_the_host(cuda: FakeCuda) -> None:
    given = sample(np.float32)
    array = DeviceArray.from_dlpack(given)  # a copy: numpy's is on the host
    assert isinstance(array, DeviceArray)
    np.testing.assert_array_equal(array.numpy(), given)
    np.testing.assert_array_equal(np.from_dlpack(array, device="cpu") if _numpy2() else array.numpy(), given)
    with pytest.raises(BufferError, match="without a copy"):
        array.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises(BufferError, match=r"can't be given to device \(2, 5\)"):
        array.__dlpack__(dl_device=(2, 5))
    with pytest.raises(InputError, match="without a copy"):
        np.array(array, copy=False) if _numpy2() else array.__array__(copy=False)
    with pytest.raises(BufferError, match="DLPack has no element type float8_e3m4"):
        DeviceArray.zeros((3,), ml_dtypes.float8_e3m4).__dlpack__()
    copied = array.__dlpack__(copy=True)
    assert cuda.live["memory"] == 2
    del copied


def _numpy2() -> bool:
    return int(np.__version__.split(".")[0]) >= 2


def test_what_is_not_an_array(cuda: FakeCuda) -> None:
    assert not is_device_array(np.zeros(3))
    assert not is_device_array([1, 2])
    assert is_device_array(Dlpack(DeviceArray.zeros((3,), np.float32)))
    with pytest.raises(InputError, match="cannot be read by DLPack"):
        DeviceArray.from_dlpack(3)
    with pytest.raises(InputError, match="needed, but it is on GPU 0"):
        as_device_array(DeviceArray.zeros((3,), np.float32), device=1)
