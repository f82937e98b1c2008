// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Arrays of other libraries, and ours for them.
#include "bindings.h"
#include "error.h"

#include <nanobind/ndarray.h>

namespace rlx::runtime {
namespace {

namespace nb = nanobind;

/// A capsule of DLPack for an array on a GPU, which keeps `owner`.
nb::object exportDevice(nb::object owner, uintptr_t address, const std::vector<size_t> &shape,
                        int code, int bits, int ordinal) {
  nb::ndarray<> array(reinterpret_cast<void *>(address), shape.size(), shape.data(), owner,
                      /*strides=*/nullptr, nb::dlpack::dtype{uint8_t(code), uint8_t(bits), 1},
                      nb::device::cuda::value, ordinal);
  return nb::cast(array);
}

/// An object with DLPack for an array on the host, which keeps `owner`.
nb::object exportHost(nb::object owner, uintptr_t address, const std::vector<size_t> &shape,
                      const std::vector<int64_t> &strides, int code, int bits, bool writable) {
  nb::dlpack::dtype type{uint8_t(code), uint8_t(bits), 1};
  auto *data = reinterpret_cast<void *>(address);
  if (writable)
    return nb::cast(nb::ndarray<nb::array_api>(data, shape.size(), shape.data(), owner,
                                               strides.data(), type, nb::device::cpu::value));
  return nb::cast(nb::ndarray<nb::array_api, nb::ro>(data, shape.size(), shape.data(), owner,
                                                     strides.data(), type, nb::device::cpu::value));
}

template <typename Array> nb::tuple describe(const Array &array, bool writable) {
  std::vector<int64_t> shape, strides;
  for (size_t i = 0; i < array.ndim(); ++i) {
    shape.push_back(int64_t(array.shape(i)));
    strides.push_back(array.stride(i));
  }
  const nb::dlpack::dtype type = array.dtype();
  auto *kept = new Array(array);
  nb::capsule owner(kept, [](void *own) noexcept { delete static_cast<Array *>(own); });
  return nb::make_tuple(reinterpret_cast<uintptr_t>(array.data()), nb::tuple(nb::cast(shape)),
                        nb::tuple(nb::cast(strides)), int(type.code), type.bits * type.lanes,
                        array.device_type(), array.device_id(), writable, owner);
}

/// What an object with DLPack, or a capsule of it, has: (address, shape, strides in elements, type
/// code, bits, kind of device, its number, whether its memory may be written, what keeps it).
nb::tuple importDlpack(nb::object object) {
  // Only capsules of version 1 and later say whether their memory may be written.
  if (PyCapsule_IsValid(object.ptr(), "dltensor_versioned"))
    if (nb::ndarray<> array; nb::try_cast(object, array))
      return describe(array, true);
  if (nb::ndarray<nb::ro> array; nb::try_cast(object, array))
    return describe(array, false);
  throw InputError("an array cannot be read by DLPack: " + nb::cast<std::string>(nb::repr(object)));
}

} // namespace

void bindDlpack(nb::module_ &m) {
  m.def("dlpack_export", &exportDevice, nb::arg("owner"), nb::arg("address"), nb::arg("shape"),
        nb::arg("code"), nb::arg("bits"), nb::arg("ordinal"));
  m.def("dlpack_export_host", &exportHost, nb::arg("owner"), nb::arg("address"), nb::arg("shape"),
        nb::arg("strides"), nb::arg("code"), nb::arg("bits"), nb::arg("writable"));
  m.def("dlpack_import", &importDlpack, nb::arg("object"));
}

} // namespace rlx::runtime
