// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The Python module rlx_mlir._runtime; python/rlx_mlir/_runtime.pyi is its documentation.
#include "bindings.h"
#include "cuda/code.h"
#include "error.h"
#include "loader.h"
#include "plan.h"
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

template <typename T> T castItem(nb::handle item, const char *what) {
  T value{};
  if (!nb::try_cast<T>(item, value))
    throw InputError(std::string(what) + " cannot be " + nb::cast<std::string>(nb::repr(item)));
  return value;
}

/// The items of a list or tuple that has `count` of them; any number where it is negative.
std::vector<nb::object> items(nb::handle sequence, Py_ssize_t count, const char *what) {
  if (!nb::isinstance<nb::list>(sequence) && !nb::isinstance<nb::tuple>(sequence))
    throw InputError(std::string(what) + " must be a list or tuple, but it is " +
                     nb::cast<std::string>(nb::repr(sequence)));
  std::vector<nb::object> result;
  for (nb::handle item : sequence)
    result.push_back(nb::borrow(item));
  if (count >= 0 && Py_ssize_t(result.size()) != count)
    throw InputError(std::string(what) + " must have " + std::to_string(count) +
                     " items, but it is " + nb::cast<std::string>(nb::repr(sequence)));
  return result;
}

Expr parseExpr(nb::handle object, int depth = 0);

/// The index of a symbol, or (kind, number, size) of what is computed of another size.
Expr::Factor parseFactor(nb::handle object, int depth) {
  if (nb::isinstance<nb::int_>(object))
    return {castItem<int>(object, "a symbol"), nullptr};
  std::vector<nb::object> parts = items(object, 3, "a factor (kind, number, size)");
  const std::string kind = castItem<std::string>(parts[0], "the kind of a factor");
  const int64_t number = castItem<int64_t>(parts[1], "the number of a factor");
  const bool divides = kind == "floordiv";
  if (!divides && kind != "max")
    throw InputError("a factor must be a floordiv or a max, but it is '" + kind + "'");
  if (divides && number < 1)
    throw InputError("a size must be divided by 1 or more, but it is by " + std::to_string(number));
  return {-1, std::make_shared<const Expr::Derived>(
                  Expr::Derived{divides ? Expr::Derived::Kind::FloorDiv : Expr::Derived::Kind::Max,
                                number, parseExpr(parts[2], depth + 1)})};
}

/// An int, or a list of (coefficient, [factor, ...]), at so deep a place of another one.
Expr parseExpr(nb::handle object, int depth) {
  if (depth > Expr::Derived::kDepth)
    throw InputError("sizes may be computed of others at most " +
                     std::to_string(Expr::Derived::kDepth) + " deep");
  Expr expr;
  if (nb::isinstance<nb::int_>(object)) {
    expr.terms.push_back({castItem<int64_t>(object, "an expression"), {}});
    return expr;
  }
  for (const nb::object &item : items(object, -1, "an expression")) {
    std::vector<nb::object> term = items(item, 2, "a term (coefficient, factors)");
    Expr::Term own{castItem<int64_t>(term[0], "a coefficient"), {}};
    for (const nb::object &factor : items(term[1], -1, "the factors of a term"))
      own.factors.push_back(parseFactor(factor, depth));
    expr.terms.push_back(std::move(own));
  }
  return expr;
}

std::vector<Expr> parseExprs(nb::handle list) {
  std::vector<Expr> exprs;
  for (const nb::object &item : items(list, -1, "dims"))
    exprs.push_back(parseExpr(item));
  return exprs;
}

/// (kind, index, offset), or with what it moves by as well: [(block, stride), ...].
PlanSpec::Buffer parseBuffer(nb::handle object) {
  std::vector<nb::object> parts = items(object, -1, "a buffer");
  if (parts.size() != 4)
    parts = items(object, 3, "a buffer (kind, index, offset)");
  std::string kind = castItem<std::string>(parts[0], "the kind of a buffer");
  Source source;
  if (kind == "arena")
    source = Source::Arena;
  else if (kind == "input")
    source = Source::Input;
  else if (kind == "param")
    source = Source::Param;
  else if (kind == "output")
    source = Source::Output;
  else
    throw InputError("the kind of a buffer must be arena, input, param or output, but it is '" +
                     kind + "'");
  PlanSpec::Buffer buffer{source, castItem<int>(parts[1], "the index of a buffer"),
                          parseExpr(parts[2])};
  if (parts.size() == 4)
    for (const nb::object &item : items(parts[3], -1, "the moves of a buffer")) {
      std::vector<nb::object> move = items(item, 2, "a move (block, stride)");
      buffer.moves.push_back({castItem<int>(move[0], "a block"), parseExpr(move[1])});
    }
  return buffer;
}

PlanSpec::Block parseBlock(nb::handle object) {
  std::vector<nb::object> parts =
      items(object, 9, "a block (kind, parent, part, begin, middle, end, steps, flag, swaps)");
  const std::string kind = castItem<std::string>(parts[0], "the kind of a block");
  if (kind != "for" && kind != "while" && kind != "if")
    throw InputError("a block must be a for, a while or an if, but it is '" + kind + "'");
  using Kind = PlanSpec::Block::Kind;
  PlanSpec::Block block{kind == "for"     ? Kind::For
                        : kind == "while" ? Kind::While
                                          : Kind::If,
                        castItem<int>(parts[1], "the parent of a block"),
                        castItem<int>(parts[2], "the part of a block"),
                        castItem<size_t>(parts[3], "the first call of a block"),
                        castItem<size_t>(parts[4], "the middle of a block"),
                        castItem<size_t>(parts[5], "the end of a block"),
                        std::nullopt,
                        std::nullopt,
                        {}};
  if (!parts[6].is_none())
    block.steps = parseExpr(parts[6]);
  if (!parts[7].is_none())
    block.flag = parseBuffer(parts[7]);
  for (const nb::object &item : items(parts[8], -1, "the swaps of a block")) {
    std::vector<nb::object> swap = items(item, 3, "a swap (current, next, bytes)");
    block.swaps.push_back({parseBuffer(swap[0]), parseBuffer(swap[1]), parseExpr(swap[2])});
  }
  return block;
}

PlanSpec::Call parseCall(nb::handle object) {
  std::vector<nb::object> parts = items(object, 4, "a call (kernel, buffers, dims, work)");
  PlanSpec::Call call{castItem<int>(parts[0], "a kernel"), {}, parseExprs(parts[2]), std::nullopt};
  for (const nb::object &item : items(parts[1], -1, "buffers"))
    call.buffers.push_back(parseBuffer(item));
  if (!parts[3].is_none())
    call.work = parseExpr(parts[3]);
  return call;
}

std::vector<PlanSpec::Extent> parseExtents(nb::handle list) {
  std::vector<PlanSpec::Extent> extents;
  for (const nb::object &item : items(list, -1, "extents")) {
    std::vector<nb::object> parts = items(item, 2, "an extent (element bytes, sizes)");
    extents.push_back({castItem<int64_t>(parts[0], "bytes of an element"), parseExprs(parts[1])});
  }
  return extents;
}

PlanSpec::Positions parsePositions(nb::handle object) {
  std::vector<nb::object> parts =
      items(object, 6, "positions (kind, index, count, rows, limit, where)");
  std::string kind = castItem<std::string>(parts[0], "the kind of positions");
  if (kind != "input" && kind != "param")
    throw InputError("the kind of positions must be input or param, but it is '" + kind + "'");
  return {kind == "input" ? Source::Input : Source::Param,
          castItem<int>(parts[1], "the index of positions"),
          parseExpr(parts[2]),
          parseExpr(parts[3]),
          parseExpr(parts[4]),
          castItem<std::string>(parts[5], "what needs positions")};
}

} // namespace

PlanSpec rlx::runtime::parsePlanSpec(const std::vector<std::pair<std::string, int64_t>> &symbols,
                                     int64_t arenaBytes,
                                     const std::vector<std::pair<int64_t, int64_t>> &slots,
                                     std::vector<std::string> kernels,
                                     std::vector<std::string> inputs,
                                     std::vector<std::string> params,
                                     std::vector<std::string> outputs, nb::object calls,
                                     nb::object blocks, nb::object positions, nb::object extents) {
  PlanSpec spec;
  for (const auto &[name, maximum] : symbols)
    spec.symbols.push_back({name, maximum});
  for (const auto &[offset, bytes] : slots)
    spec.slots.push_back({offset, bytes});
  spec.kernels = std::move(kernels);
  spec.inputs = std::move(inputs);
  spec.params = std::move(params);
  spec.outputs = std::move(outputs);
  spec.arenaBytes = arenaBytes;
  for (const nb::object &call : items(calls, -1, "calls"))
    spec.calls.push_back(parseCall(call));
  for (const nb::object &block : items(blocks, -1, "blocks"))
    spec.blocks.push_back(parseBlock(block));
  for (const nb::object &own : items(positions, -1, "positions"))
    spec.positions.push_back(parsePositions(own));
  if (extents.is_none())
    return spec;
  std::vector<nb::object> kinds = items(extents, 3, "extents (inputs, params, outputs)");
  spec.inputExtents = parseExtents(kinds[0]);
  spec.paramExtents = parseExtents(kinds[1]);
  spec.outputExtents = parseExtents(kinds[2]);
  return spec;
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

void makePlan(Plan *self, std::shared_ptr<ObjectCode> code,
              const std::vector<std::pair<std::string, int64_t>> &symbols, int64_t arenaBytes,
              const std::vector<std::pair<int64_t, int64_t>> &slots,
              std::vector<std::string> kernels, std::vector<std::string> inputs,
              std::vector<std::string> params, std::vector<std::string> outputs, nb::object calls,
              nb::object blocks, nb::object positions, nb::object extents, int threads) {
  PlanSpec spec =
      parsePlanSpec(symbols, arenaBytes, slots, std::move(kernels), std::move(inputs),
                    std::move(params), std::move(outputs), calls, blocks, positions, extents);
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
    if (!check.is_none())
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
