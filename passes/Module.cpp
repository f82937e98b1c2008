// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The extension `rlx_mlir._compiler`.

#include "passes/Bridge.h"

#include "mlir/Bindings/Python/NanobindAdaptors.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;

namespace {

/// Calls Python from a thread of the pass manager. The callable is written to return the text of
/// an error rather than to raise; one that raises all the same must not unwind through MLIR.
std::string callPython(PyObject *callable, MlirOperation op, const rlx::OptionValues &values) {
  nb::gil_scoped_acquire gil;
  try {
    return nb::cast<std::string>(nb::borrow<nb::callable>(callable)(op, values));
  } catch (const std::exception &error) {
    return error.what();
  }
}

nb::object emitCode(MlirOperation module, const std::string &triple, const std::string &cpu,
                    const std::string &features, int level, rlx::CodeKind kind, rlx::Watch *watch) {
  rlx::CodeResult result;
  if (!watch)
    watch = rlx::Watch::current();
  {
    nb::gil_scoped_release release;
    result = rlx::emitCode(module, {triple, cpu, features}, level, kind, watch);
  }
  if (!result.error.empty())
    throw nb::value_error(result.error.c_str());
  return nb::bytes(result.code.data(), result.code.size());
}

/// `PackedAttr`, as which MLIR's bindings give every `#mir.packed` to Python.
void bindPacked(nb::module_ &m) {
  mlir::python::nanobind_adaptors::mlir_attribute_subclass(m, "PackedAttr", &rlx::isPacked,
                                                           &rlx::packedTypeID)
      .def_staticmethod(
          "get",
          [](const std::string &scheme, int64_t k, std::optional<int64_t> n,
             const std::string &layout, MlirContext context) {
            std::string error;
            MlirAttribute made =
                rlx::makePacked(context, {scheme, k, n.value_or(0), layout}, error);
            if (mlirAttributeIsNull(made))
              throw nb::value_error(error.c_str());
            return made;
          },
          nb::arg("scheme"), nb::arg("k"), nb::arg("n") = nb::none(), nb::arg("layout") = "rows",
          nb::arg("context") = nb::none(), "The attribute of these parameters, verified.")
      .def_property_readonly("scheme",
                             [](MlirAttribute self) { return rlx::readPacked(self).scheme; })
      .def_property_readonly("k", [](MlirAttribute self) { return rlx::readPacked(self).k; })
      .def_property_readonly("n",
                             [](MlirAttribute self) {
                               int64_t n = rlx::readPacked(self).n;
                               return n ? std::optional<int64_t>(n) : std::nullopt;
                             })
      .def_property_readonly("layout",
                             [](MlirAttribute self) { return rlx::readPacked(self).layout; });
}

} // namespace

NB_MODULE(_compiler, m) {
  m.doc() = "Dialects, passes and code generation; needs mlir.ir to be imported first.";

  m.def(
      "register_dialects",
      [](MlirDialectRegistry registry) { rlx::registerDialects(registry, /*everything=*/false); },
      nb::arg("registry"), "Adds HIR and MIR to a registry.");
  m.def(
      "register_format",
      [](const std::string &name, int64_t length, int64_t bytes, int64_t panelBytes, bool integers,
         const std::vector<std::pair<int64_t, int64_t>> &planes) {
        std::string error = rlx::registerFormat(name, length, bytes, panelBytes, integers, planes);
        if (!error.empty())
          throw nb::value_error(error.c_str());
      },
      nb::arg("name"), nb::arg("length"), nb::arg("bytes"), nb::arg("panel_bytes"),
      nb::arg("integers"), nb::arg("planes") = std::vector<std::pair<int64_t, int64_t>>(),
      "Makes a block format of packed weights known to all contexts.");
  bindPacked(m);
  m.def("register_native_passes", &rlx::registerNativePasses,
        "Registers the passes written in C++; once for each process.");
  m.def(
      "register_pass",
      [](std::string argument, std::string description, std::string anchor,
         std::vector<std::pair<std::string, std::string>> options,
         std::vector<std::string> dependentDialects, nb::callable run) {
        rlx::PassSpec spec{std::move(argument),
                           std::move(description),
                           std::move(anchor),
                           {},
                           std::move(dependentDialects)};
        for (auto &[name, text] : options)
          spec.options.push_back({std::move(name), std::move(text)});
        PyObject *callable = run.release().ptr(); // A pass lives as long as the process.
        rlx::registerPythonPass(std::move(spec),
                                [callable](MlirOperation op, const rlx::OptionValues &values) {
                                  return callPython(callable, op, values);
                                });
      },
      nb::arg("argument"), nb::arg("description"), nb::arg("anchor"), nb::arg("options"),
      nb::arg("dependent_dialects"), nb::arg("run"),
      "Registers a pass: run(operation, [(option, value)]) returns the text of an error, or ''.");

  m.def("emit_remark", &rlx::emitRemark, nb::arg("location"), nb::arg("message"),
        "Reports a remark at a location, as passes do.");
  m.def("register_pipeline", &rlx::registerPipeline, nb::arg("name"), nb::arg("description"),
        nb::arg("text"), nb::arg("options") = rlx::OptionValues(),
        "Registers a name for a textual pipeline, with options that replace $name in the text.");

  nb::class_<rlx::Watch>(m, "Watch")
      .def(nb::init<double>(), nb::arg("seconds") = 0.0)
      .def("stop", &rlx::Watch::stop)
      .def_prop_ro("is_over", &rlx::Watch::isOver)
      .def_prop_ro("is_late", &rlx::Watch::isLate)
      .def_prop_ro("place", &rlx::Watch::place)
      .def_prop_ro("work", &rlx::Watch::work);
  m.def(
      "is_over",
      [] {
        rlx::Watch *watch = rlx::Watch::current();
        return watch && watch->isOver();
      },
      "Whether the compilation that this thread works for is to end.");
  nb::class_<rlx::Diagnostic>(m, "Diagnostic")
      .def_ro("severity", &rlx::Diagnostic::severity)
      .def_ro("location", &rlx::Diagnostic::location)
      .def_ro("message", &rlx::Diagnostic::message);
  nb::class_<rlx::PipelineResult>(m, "PipelineResult")
      .def_ro("succeeded", &rlx::PipelineResult::succeeded)
      .def_ro("diagnostics", &rlx::PipelineResult::diagnostics)
      .def_ro("log", &rlx::PipelineResult::log)
      .def_ro("reproducer", &rlx::PipelineResult::reproducer);
  m.def(
      "run_pipeline",
      [](MlirOperation op, const std::string &pipeline, bool verify, bool printChanged, bool timing,
         rlx::Watch *watch) {
        nb::gil_scoped_release release;
        rlx::PipelineOptions options;
        options.verify = verify;
        options.printChanged = printChanged;
        options.timing = timing;
        options.watch = watch;
        return rlx::runPipeline(op, pipeline, options);
      },
      nb::arg("op"), nb::arg("pipeline"), nb::kw_only(), nb::arg("verify") = true,
      nb::arg("print_changed") = false, nb::arg("timing") = false, nb::arg("watch") = nb::none(),
      "Runs a textual pipeline on an operation, without the interpreter lock.");
  m.def(
      "opt_main",
      [](std::vector<std::string> arguments, nb::callable check) {
        nb::gil_scoped_release release;
        return rlx::optMain(std::move(arguments), [&](const char *text, size_t size) {
          nb::gil_scoped_acquire gil;
          try { // As in callPython.
            return nb::cast<std::string>(check(nb::bytes(text, size)));
          } catch (const std::exception &error) {
            return std::string(error.what());
          }
        });
      },
      nb::arg("arguments"), nb::arg("check"),
      "Runs rlx-opt; returns its exit status. check(source) returns the text of an error, or ''.");
  m.def(
      "measure_text",
      [](const nb::bytes &text) {
        rlx::TextMeasure found =
            rlx::measureText(static_cast<const char *>(text.data()), text.size());
        return nb::make_tuple(found.nesting, found.digits, found.overflows, found.forward);
      },
      nb::arg("text"),
      "(how deep brackets and terms are nested, digits of the longest number, whether a constant "
      "has more elements than 64 bits count, whether a value may be used before its definition) of "
      "MLIR's text.");
  m.def("foreign_string", &rlx::foreignString, nb::arg("root"),
        "Names the first string of IR that isn't UTF-8, and its operation; or ''.");
  m.def(
      "lsp_main",
      [](std::vector<std::string> arguments) {
        nb::gil_scoped_release release;
        return rlx::lspMain(std::move(arguments));
      },
      nb::arg("arguments"), "Runs the language server; returns its exit status.");
  m.def(
      "reduce_main",
      [](std::vector<std::string> arguments) {
        nb::gil_scoped_release release;
        return rlx::reduceMain(std::move(arguments));
      },
      nb::arg("arguments"), "Runs rlx-reduce; returns its exit status.");
  m.def("print_stack_traces", &rlx::printStackTraces,
        "From here on, a signal that ends the process prints a stack trace first.");
  m.def(
      "identity", [](MlirOperation op) { return reinterpret_cast<uintptr_t>(op.ptr); },
      nb::arg("op"),
      "A number that is this operation's alone while it lives; its hash follows from what it "
      "holds.");
  m.def("is_equivalent", &rlx::isEquivalent, nb::arg("lhs"), nb::arg("rhs"),
        "Whether two operations are the same but for their locations.");

  m.def(
      "host_target",
      [] {
        rlx::TargetDescription host = rlx::hostTarget();
        return nb::make_tuple(host.triple, host.cpu, host.features);
      },
      "The (triple, cpu, features) of this machine.");
  m.def(
      "target_features",
      [](const std::string &triple, const std::string &cpu) {
        std::string error;
        std::string features = rlx::targetFeatures(triple, cpu, error);
        if (!error.empty())
          throw nb::value_error(error.c_str());
        return features;
      },
      nb::arg("triple"), nb::arg("cpu"),
      "Every feature of an architecture, as +name or -name; which ones a CPU has.");
  m.def(
      "tuning_features",
      [](const std::string &triple) {
        std::string error;
        std::vector<std::string> features = rlx::tuningFeatures(triple, error);
        if (!error.empty())
          throw nb::value_error(error.c_str());
        return features;
      },
      nb::arg("triple"),
      "Names of those features of an architecture that say what is fast on a CPU, not what it "
      "has.");
  nb::enum_<rlx::CodeKind>(m, "CodeKind")
      .value("OBJECT", rlx::CodeKind::Object)
      .value("ASSEMBLY", rlx::CodeKind::Assembly)
      .value("LLVM", rlx::CodeKind::LLVM);
  m.def("emit_code", &emitCode, nb::arg("module"), nb::arg("triple"), nb::arg("cpu"),
        nb::arg("features"), nb::arg("level"), nb::arg("kind"), nb::arg("watch") = nb::none(),
        "Code of a module of the LLVM dialect, as bytes; level is 0 to 3.");
}
