// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The Python module rlx_mlir._runtime; python/rlx_mlir/_runtime.pyi is its documentation.
#include "bindings.h"
#include "cuda/code.h"
#include "error.h"
#include "features.h"
#include "loader.h"
#include "plan.h"
#include "plan_reader.h"
#include "pool.h"
#include "processor.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unordered_map.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;
using namespace rlx::runtime;

namespace {

//===----------------------------------------------------------------------===//
// Python objects -> PlanSpec
//===----------------------------------------------------------------------===//

/// Numbers, texts, lists and tuples as they are; whatever else there is, as it shows itself.
Value valueOf(nb::handle object, int depth = 0) {
  if (object.is_none())
    return {};
  int64_t number = 0;
  if (nb::try_cast<int64_t>(object, number))
    return Value::integer(number);
  if (nb::isinstance<nb::str>(object))
    return Value::of(Value::Kind::Text, nb::cast<std::string>(object));
  if (!nb::isinstance<nb::list>(object) && !nb::isinstance<nb::tuple>(object))
    return Value::of(Value::Kind::Other, nb::cast<std::string>(nb::repr(object)));
  if (depth >= Value::kDepth)
    throw InputError("lists may be in each other at most " + std::to_string(Value::kDepth) +
                     " deep");
  std::vector<Value> items;
  for (nb::handle item : object)
    items.push_back(valueOf(item, depth + 1));
  return Value::list(std::move(items));
}

} // namespace

PlanSpec rlx::runtime::parsePlanSpec(const std::vector<nb::object> &parts) {
  std::vector<Value> values;
  for (const nb::object &part : parts)
    values.push_back(valueOf(part));
  return readPlanSpec(Value::list(std::move(values)));
}

namespace {

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

std::vector<std::string_view> viewsOf(const std::vector<nb::bytes> &objects) {
  std::vector<std::string_view> views;
  for (const nb::bytes &object : objects)
    views.emplace_back(static_cast<const char *>(object.data()), object.size());
  return views;
}

void makeObjectCode(ObjectCode *self, const std::vector<nb::bytes> &objects,
                    const std::vector<std::pair<std::string, uintptr_t>> &functions) {
  std::vector<std::string_view> views = viewsOf(objects);
  std::vector<HostSymbol> symbols = cuda::hostSymbols();
  for (const auto &[name, address] : functions)
    symbols.push_back({name.c_str(), reinterpret_cast<void *>(address)});
  nb::gil_scoped_release released;
  new (self) ObjectCode(views, symbols);
}

/// The image of objects for an address, as bytes, and where everything is in it.
nb::tuple linkObjects(const std::vector<nb::bytes> &objects, uint16_t machine, uint64_t address,
                      const std::unordered_map<std::string, uint64_t> &functions) {
  if (!isMachine(machine))
    throw InputError("machine must be 62 (x86-64) or 183 (AArch64), but it is " +
                     std::to_string(machine));
  if (address % kMaxSectionAlignment != 0)
    throw InputError("address must be a multiple of " + std::to_string(kMaxSectionAlignment) +
                     ", but it is " + std::to_string(address));
  std::vector<std::string_view> views = viewsOf(objects);
  std::vector<std::byte> image;
  const Linker linker = [&] {
    nb::gil_scoped_release released;
    Linker made(Machine(machine), views, [&](std::string_view name) -> std::optional<uint64_t> {
      auto found = functions.find(std::string(name));
      return found == functions.end() ? std::nullopt : std::optional<uint64_t>(found->second);
    });
    image.resize(made.bytes());
    made.write(image.data(), address);
    return made;
  }();
  nb::dict symbols;
  for (const auto &[name, location] : linker.symbols())
    symbols[nb::str(name.c_str(), name.size())] = location.offset;
  auto range = [](const Linker::Segment &segment) {
    return nb::make_tuple(segment.offset, segment.bytes);
  };
  return nb::make_tuple(
      nb::bytes(image.data(), image.size()), symbols,
      nb::make_tuple(range(linker.code()), range(linker.constants()), range(linker.data())),
      linker.hostFunctions());
}

void makePlan(Plan *self, std::shared_ptr<ObjectCode> code, nb::object symbols,
              nb::object arenaBytes, nb::object slots, nb::object kernels, nb::object inputs,
              nb::object params, nb::object outputs, nb::object calls, nb::object blocks,
              nb::object positions, nb::object extents, int threads) {
  PlanSpec spec = parsePlanSpec({symbols, arenaBytes, slots, kernels, inputs, params, outputs,
                                 calls, blocks, positions, extents});
  nb::gil_scoped_release released;
  new (self) Plan(std::move(code), std::move(spec), threads == 0 ? defaultThreads() : threads);
}

/// parallelFor over a Python function. The first exception is raised again when all ranges are
/// done.
void parallelForPython(nb::callable fn, int64_t units, int threads) {
  struct Region {
    nb::callable fn;
    std::mutex mutex;
    std::exception_ptr first;
  } region{std::move(fn), {}, nullptr};
  if (threads < 0 || threads > kMaxThreads)
    throw InputError("threads must be from 0 to " + std::to_string(kMaxThreads) + ", but it is " +
                     std::to_string(threads));
  int team = threads == 0 ? defaultThreads() : threads;
  auto runRange = [](void *context, int64_t begin, int64_t end, int thread) {
    Region &region = *static_cast<Region *>(context);
    nb::gil_scoped_acquire acquired;
    HostRange inside;
    try {
      region.fn(begin, end, thread);
    } catch (...) {
      std::lock_guard<std::mutex> guard(region.mutex);
      if (!region.first)
        region.first = std::current_exception();
    }
  };
  {
    nb::gil_scoped_release released;
    parallelFor(runRange, &region, units, team);
  }
  if (region.first)
    std::rethrow_exception(region.first);
}

void translateError(const std::exception_ptr &error, void *) {
  try {
    std::rethrow_exception(error);
  } catch (const InputError &cause) {
    raiseError("InputError", cause);
  } catch (const ExecutionError &cause) {
    raiseError("ExecutionError", cause);
  }
}

} // namespace

std::function<void()> rlx::runtime::asking(nb::handle check) {
  return [check] {
    nb::gil_scoped_acquire acquired;
    if (PyErr_CheckSignals() != 0)
      throw nb::python_error();
    if (check.is_valid() && !check.is_none())
      check();
  };
}

void rlx::runtime::raiseError(const char *name, const std::exception &error, nb::dict attributes) {
  nb::object type = nb::module_::import_("rlx_mlir.errors").attr(name);
  // A message may quote bytes that aren't UTF-8.
  const char *text = error.what();
  nb::object message =
      nb::steal(PyUnicode_DecodeUTF8(text, Py_ssize_t(std::strlen(text)), "replace"));
  nb::object raised = type(message, **attributes);
  PyErr_SetObject(type.ptr(), raised.ptr());
}

NB_MODULE(_runtime, m) {
  // Plans and code that live in module globals are not taken down at exit; that is no mistake.
  nb::set_leak_warnings(false);
  nb::register_exception_translator(translateError);

  m.def("default_threads", &defaultThreads);
  m.def("available_cpus", &availableCpus);
  m.def("cpu_quota", &cpuQuota, nb::arg("root") = "");
  m.def("worker_count", &workerCount, nb::call_guard<nb::gil_scoped_release>());
  m.def("parallel_for", &parallelForPython, nb::arg("fn"), nb::arg("units"),
        nb::arg("threads") = 0);
  m.def("host_processor", [] {
    const Processor &own = hostProcessor();
    return nb::make_tuple(own.architecture, own.name, own.model, own.features);
  });
  m.def("unneeded_features", [] {
    std::vector<std::string> names;
    for (std::string_view name : unneededFeatures())
      names.emplace_back(name);
    return names;
  });
  m.def("host_functions", [] {
    std::vector<std::string> names;
    for (const HostSymbol &symbol : hostFunctions())
      names.emplace_back(symbol.name);
    for (const HostSymbol &symbol : cuda::hostSymbols())
      names.emplace_back(symbol.name);
    std::sort(names.begin(), names.end());
    return names;
  });
  m.def("link_objects", &linkObjects, nb::arg("objects"), nb::kw_only(), nb::arg("machine"),
        nb::arg("address"), nb::arg("functions"));

  bindDlpack(m);
  cuda::bind(m); // its translator of errors comes after the one above, and is asked first

  nb::class_<ObjectCode>(m, "ObjectCode")
      .def("__init__", &makeObjectCode, nb::arg("objects"), nb::arg("functions") = nb::tuple())
      .def(
          "lookup",
          [](ObjectCode &self, const std::string &name) {
            nb::gil_scoped_release released;
            return reinterpret_cast<uintptr_t>(self.lookup(name));
          },
          nb::arg("name"));

  nb::class_<Plan>(m, "Plan")
      .def("__init__", &makePlan, nb::arg("code"), nb::kw_only(), nb::arg("symbols"),
           nb::arg("arena_bytes"), nb::arg("slots"), nb::arg("kernels"), nb::arg("inputs"),
           nb::arg("params"), nb::arg("outputs"), nb::arg("calls"), nb::arg("blocks") = nb::tuple(),
           nb::arg("positions") = nb::tuple(), nb::arg("extents") = nb::none(),
           nb::arg("threads") = 0)
      .def(
          "run",
          [](Plan &self, const std::vector<uintptr_t> &inputs, const std::vector<uintptr_t> &params,
             const std::vector<uintptr_t> &outputs, const std::vector<int64_t> &sizes,
             nb::object check) {
            const std::function<void()> ask = asking(check);
            nb::gil_scoped_release released;
            self.run(inputs, params, outputs, sizes, &ask);
          },
          nb::arg("inputs"), nb::arg("params"), nb::arg("outputs"), nb::arg("sizes"),
          nb::arg("check") = nb::none())
      .def("profile", &Plan::profile, nb::arg("enabled"), nb::call_guard<nb::gil_scoped_release>())
      .def("timings",
           [](Plan &self) {
             Plan::Timings timings = [&] {
               nb::gil_scoped_release released;
               return self.timings();
             }();
             return nb::make_tuple(timings.runs, timings.nanoseconds);
           })
      .def_prop_ro("calls",
                   [](const Plan &self) {
                     std::vector<std::string> names;
                     for (size_t i = 0; i < self.callCount(); ++i)
                       names.push_back(self.kernelOf(i));
                     return names;
                   })
      .def_prop_ro("threads", &Plan::threads)
      .def_prop_ro("arena_bytes", &Plan::arenaBytes)
      .def_prop_ro("scratch_bytes", &Plan::scratchBytes);
}
