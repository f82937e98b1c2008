// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// GPUs in the Python module rlx_mlir._runtime.
#include "runtime/bindings.h"

#include "plan.h"

#include <cstring>
#include <memory>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>

namespace nb = nanobind;

namespace rlx::runtime::cuda {
namespace {

using Released = nb::call_guard<nb::gil_scoped_release>;

//===----------------------------------------------------------------------===//
// Errors
//===----------------------------------------------------------------------===//

const char *className(DeviceError::Kind kind) {
  switch (kind) {
  case DeviceError::Kind::Other:
    break;
  case DeviceError::Kind::DriverMissing:
    return "DriverMissingError";
  case DeviceError::Kind::NoDevice:
    return "NoDeviceError";
  case DeviceError::Kind::DriverTooOld:
    return "DriverTooOldError";
  case DeviceError::Kind::WrongDevice:
    return "WrongDeviceError";
  case DeviceError::Kind::Memory:
    return "DeviceMemoryError";
  case DeviceError::Kind::Fault:
    return "DeviceFaultError";
  }
  return "DeviceError";
}

void translateError(const std::exception_ptr &error, void *) {
  try {
    std::rethrow_exception(error);
  } catch (const DeviceError &cause) {
    nb::dict attributes;
    attributes["code"] = cause.code;
    if (cause.kind == DeviceError::Kind::Memory) {
      attributes["requested"] = cause.requested;
      attributes["free"] = cause.free;
      attributes["total"] = cause.total;
    }
    raiseError(className(cause.kind), cause, attributes);
  }
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// A GPU as Python has it; the object that it names lives as long as the process.
struct DeviceHandle {
  Device *device;
};

/// The bytes of a contiguous object, such as an array of numpy, while this lives.
class Bytes {
public:
  Bytes(nb::handle object, bool writable) {
    if (PyObject_GetBuffer(object.ptr(), &view,
                           PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0)) != 0)
      throw nb::python_error();
  }
  ~Bytes() { PyBuffer_Release(&view); }
  Bytes(const Bytes &) = delete;
  Bytes &operator=(const Bytes &) = delete;
  void *data() const { return view.buf; }
  size_t size() const { return size_t(view.len); }

private:
  Py_buffer view;
};

void writeMemory(const DeviceHandle &self, Address to, nb::handle source) {
  Bytes bytes(source, /*writable=*/false);
  nb::gil_scoped_release released;
  self.device->write(to, bytes.data(), bytes.size());
}

void readMemory(const DeviceHandle &self, Address from, nb::handle target) {
  Bytes bytes(target, /*writable=*/true);
  nb::gil_scoped_release released;
  self.device->read(bytes.data(), from, bytes.size());
}

//===----------------------------------------------------------------------===//
// Plans
//===----------------------------------------------------------------------===//

using ArgumentTuple = std::tuple<uintptr_t, int64_t, bool, uintptr_t, int>;

std::vector<Argument> parseArguments(const std::vector<ArgumentTuple> &list) {
  std::vector<Argument> arguments;
  for (const auto &[address, bytes, onDevice, known, tied] : list)
    arguments.push_back({address, bytes, onDevice, known, tied});
  return arguments;
}

void makeArguments(Arguments *self, const std::vector<ArgumentTuple> &inputs,
                   const std::vector<ArgumentTuple> &outputs, std::vector<uintptr_t> params,
                   std::vector<uintptr_t> paramValues, std::vector<int64_t> sizes) {
  new (self) Arguments{parseArguments(inputs), parseArguments(outputs), std::move(params),
                       std::move(paramValues), std::move(sizes)};
}

void makePlan(CudaPlan *self, std::shared_ptr<ObjectCode> hostCode,
              std::shared_ptr<DeviceCode> deviceCode, std::string name, nb::object symbols,
              nb::object arenaBytes, nb::object slots, nb::object kernels, nb::object inputs,
              std::vector<int64_t> inputBytes, nb::object params, nb::object outputs,
              std::vector<int64_t> outputBytes, nb::object calls, nb::object blocks,
              nb::object positions, size_t graphs, bool wait) {
  PlanSpec spec = parsePlanSpec({symbols, arenaBytes, slots, kernels, inputs, params, outputs,
                                 calls, blocks, positions, nb::none()});
  nb::gil_scoped_release released;
  new (self)
      CudaPlan(std::move(hostCode), std::move(deviceCode), std::move(spec),
               {std::move(name), std::move(inputBytes), std::move(outputBytes), graphs, wait});
}

} // namespace

void bind(nb::module_ &m) {
  nb::register_exception_translator(translateError);

  m.def("cuda_device_count", [] { return Driver::open().deviceCount(); }, Released());
  m.def("cuda_driver_version", [] { return Driver::open().version; }, Released());

  nb::class_<DeviceHandle>(m, "CudaDevice")
      .def(
          "__init__",
          [](DeviceHandle *self, int ordinal) { new (self) DeviceHandle{&Device::open(ordinal)}; },
          nb::arg("ordinal") = 0, Released())
      .def_prop_ro("ordinal", [](const DeviceHandle &self) { return self.device->ordinal; })
      .def_prop_ro("name", [](const DeviceHandle &self) { return self.device->name; })
      .def_prop_ro("compute_capability",
                   [](const DeviceHandle &self) {
                     return nb::make_tuple(self.device->major, self.device->minor);
                   })
      .def_prop_ro("multiprocessors",
                   [](const DeviceHandle &self) { return self.device->multiprocessors; })
      .def_prop_ro("max_shared_bytes",
                   [](const DeviceHandle &self) { return self.device->maxSharedBytes; })
      .def_prop_ro("total_bytes", [](const DeviceHandle &self) { return self.device->totalBytes; })
      .def(
          "memory", [](const DeviceHandle &self) { return self.device->memory(); }, Released())
      .def_prop_ro("allocated_bytes",
                   [](const DeviceHandle &self) { return self.device->allocatedBytes.load(); })
      .def_prop_ro("pinned_bytes",
                   [](const DeviceHandle &self) { return self.device->pinnedBytes.load(); })
      .def("write", &writeMemory, nb::arg("address"), nb::arg("source"))
      .def("read", &readMemory, nb::arg("address"), nb::arg("target"))
      .def(
          "copy",
          [](const DeviceHandle &self, Address target, Address source, size_t bytes) {
            self.device->copy(target, source, bytes);
          },
          nb::arg("target"), nb::arg("source"), nb::arg("bytes"), Released())
      .def(
          "clear",
          [](const DeviceHandle &self, Address address, size_t bytes) {
            self.device->clear(address, bytes);
          },
          nb::arg("address"), nb::arg("bytes"), Released())
      .def(
          "synchronize",
          [](const DeviceHandle &self, uintptr_t stream) {
            self.device->synchronize(reinterpret_cast<StreamHandle>(stream));
          },
          nb::arg("stream") = 0, Released())
      .def(
          "check_outside_capture",
          [](const DeviceHandle &self, uintptr_t stream) {
            self.device->checkOutsideCapture(reinterpret_cast<StreamHandle>(stream));
          },
          nb::arg("stream"), Released())
      .def(
          "ordinal_of",
          [](const DeviceHandle &self, Address address) -> std::optional<int> {
            const int found = self.device->ordinalOf(address);
            return found < 0 ? std::nullopt : std::optional<int>(found);
          },
          nb::arg("address"), Released())
      .def(
          "order",
          [](const DeviceHandle &self, uintptr_t before, uintptr_t after) {
            self.device->order(reinterpret_cast<StreamHandle>(before),
                               reinterpret_cast<StreamHandle>(after));
          },
          nb::arg("before"), nb::arg("after"), Released());

  nb::class_<DeviceMemory>(m, "CudaMemory")
      .def(
          "__init__",
          [](DeviceMemory *self, const DeviceHandle &device, size_t bytes,
             const std::string &what) { new (self) DeviceMemory(*device.device, bytes, what); },
          nb::arg("device"), nb::arg("bytes"), nb::arg("what"), Released())
      .def_prop_ro("address", &DeviceMemory::address)
      .def_prop_ro("bytes", &DeviceMemory::bytes);

  nb::class_<DeviceCode>(m, "CudaCode")
      .def(
          "__init__",
          [](DeviceCode *self, const DeviceHandle &device, nb::bytes image,
             const std::vector<std::string> &kernels) {
            const std::string_view text(static_cast<const char *>(image.data()), image.size());
            nb::gil_scoped_release released;
            new (self) DeviceCode(*device.device, text, kernels);
          },
          nb::arg("device"), nb::arg("image"), nb::arg("kernels"));

  nb::class_<Arguments>(m, "CudaArguments")
      .def("__init__", &makeArguments, nb::kw_only(), nb::arg("inputs"), nb::arg("outputs"),
           nb::arg("params"), nb::arg("param_values"), nb::arg("sizes"));

  nb::class_<CudaRun>(m, "CudaRun")
      .def("wait", &CudaRun::wait, Released())
      .def_prop_ro("done",
                   [](CudaRun &self) {
                     nb::gil_scoped_release released;
                     return self.isDone();
                   })
      .def(
          "hold",
          [](CudaRun &self, uintptr_t stream) {
            self.checkOutsideCapture(reinterpret_cast<StreamHandle>(stream));
            self.hold(reinterpret_cast<StreamHandle>(stream));
          },
          nb::arg("stream"), Released())
      .def_ro("number", &CudaRun::number);

  nb::class_<CudaPlan>(m, "CudaPlan")
      .def("__init__", &makePlan, nb::arg("host_code"), nb::arg("device_code"), nb::kw_only(),
           nb::arg("name"), nb::arg("symbols"), nb::arg("arena_bytes"), nb::arg("slots"),
           nb::arg("kernels"), nb::arg("inputs"), nb::arg("input_bytes"), nb::arg("params"),
           nb::arg("outputs"), nb::arg("output_bytes"), nb::arg("calls"),
           nb::arg("blocks") = nb::tuple(), nb::arg("positions") = nb::tuple(),
           nb::arg("graphs") = 16, nb::arg("wait") = false)
      .def(
          "run",
          [](CudaPlan &self, const Arguments &arguments, bool wait, std::optional<uintptr_t> stream,
             std::vector<std::shared_ptr<CudaRun>> after) {
            Order order{wait, std::nullopt, std::move(after), asking()};
            if (stream)
              order.stream = reinterpret_cast<StreamHandle>(*stream);
            return self.run(arguments, order);
          },
          nb::arg("arguments"), nb::arg("wait") = true, nb::arg("stream") = nb::none(),
          nb::arg("after") = nb::tuple(), Released())
      .def(
          "repeat",
          [](CudaPlan &self, const std::vector<const Arguments *> &turns, size_t first,
             int64_t count, bool joined, std::vector<std::shared_ptr<CudaRun>> after) {
            return self.repeat(turns, first, count, joined,
                               {/*wait=*/false, std::nullopt, std::move(after), asking()});
          },
          nb::arg("turns"), nb::kw_only(), nb::arg("first"), nb::arg("count"), nb::arg("joined"),
          nb::arg("after") = nb::tuple(), Released())
      .def("synchronize", &CudaPlan::synchronize, Released())
      .def("profile", &CudaPlan::profile, nb::arg("enabled"), Released())
      .def("timings",
           [](CudaPlan &self) {
             CudaPlan::Timings timings = [&] {
               nb::gil_scoped_release released;
               return self.timings();
             }();
             return nb::make_tuple(timings.runs, timings.nanoseconds);
           })
      .def_prop_ro("graph_counts",
                   [](CudaPlan &self) {
                     CudaPlan::GraphCounts counts = [&] {
                       nb::gil_scoped_release released;
                       return self.graphCounts();
                     }();
                     return nb::make_tuple(counts.kept, counts.captured, counts.launched);
                   })
      .def_prop_ro("calls",
                   [](const CudaPlan &self) {
                     std::vector<std::string> names;
                     for (size_t i = 0; i < self.callCount(); ++i)
                       names.push_back(self.kernelOf(i));
                     return names;
                   })
      .def_prop_ro("arena_bytes", &CudaPlan::arenaBytes)
      .def_prop_ro("scratch_bytes", &CudaPlan::scratchBytes);
}

} // namespace rlx::runtime::cuda
