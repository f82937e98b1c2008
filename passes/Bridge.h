// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the compiler extension offers to Python, in terms that need no RTTI: MLIR code is compiled
// without it, the nanobind unit (Module.cpp) with it, and this header joins the two.

#ifndef RLX_PASSES_BRIDGE_H
#define RLX_PASSES_BRIDGE_H

#include "passes/Watch.h"

#include "mlir-c/IR.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace rlx {

/// Registers HIR and MIR, and with `everything` all upstream dialects and extensions too.
void registerDialects(MlirDialectRegistry registry, bool everything);

/// Registers a block format of packed weights (see dialects/MIRFormats.h); the result is the text
/// of the error, empty where there is none.
std::string registerFormat(const std::string &name, int64_t length, int64_t bytes,
                           int64_t panelBytes, bool integers,
                           const std::vector<std::pair<int64_t, int64_t>> &planes);

/// The parameters of `#mir.packed`; `n` is 0 where it isn't written.
struct Packed {
  std::string scheme;
  int64_t k, n;
  std::string layout;
};

bool isPacked(MlirAttribute attribute);
MlirTypeID packedTypeID();
Packed readPacked(MlirAttribute attribute);

/// The attribute of these parameters; null, and the verifier's text in `error`, where there is
/// none.
MlirAttribute makePacked(MlirContext context, const Packed &packed, std::string &error);

/// Registers the native passes. Upstream passes are registered by importing `mlir.ir`.
void registerNativePasses();

//===----------------------------------------------------------------------===//
// Passes written in Python
//===----------------------------------------------------------------------===//

struct PassOption {
  std::string name, description;
};

struct PassSpec {
  std::string argument, description;
  /// Name of the operation that the pass runs on; empty where it runs on any.
  std::string anchor;
  std::vector<PassOption> options;
  /// Dialects whose operations the pass creates.
  std::vector<std::string> dependentDialects;
};

/// The given options by name, in the order of the specification.
using OptionValues = std::vector<std::pair<std::string, std::string>>;

/// Runs the pass; the result is the text of the error, empty where there is none.
using PassCallback = std::function<std::string(MlirOperation, const OptionValues &)>;

void registerPythonPass(PassSpec spec, PassCallback callback);

/// Whether this thread runs a pass written in Python, in the context.
bool runsPassIn(MlirContext context);

/// Reports a remark, as passes do.
void emitRemark(MlirLocation location, const std::string &message);

/// Registers a name for a textual pipeline. Options are pairs of a name and a default: their values
/// take the place of `$name` in the text.
void registerPipeline(const std::string &name, const std::string &description,
                      const std::string &text, const OptionValues &options);

//===----------------------------------------------------------------------===//
// Running pipelines
//===----------------------------------------------------------------------===//

struct Diagnostic {
  std::string severity, location, message;
};

struct PipelineOptions {
  bool verify = true;
  /// Print the IR after each pass that changed it.
  bool printChanged = false;
  bool timing = false;
  /// Asked whether to go on, or null. Once it is over, nothing that is left of the pipeline runs,
  /// and the pipeline doesn't succeed.
  Watch *watch = nullptr;
};

struct PipelineResult {
  bool succeeded = false;
  std::vector<Diagnostic> diagnostics;
  /// What printing and timing wrote.
  std::string log;
  /// Where the pipeline failed: the IR that it was given with the pipeline, to be run by rlx-opt.
  std::string reproducer;
};

PipelineResult runPipeline(MlirOperation op, const std::string &pipeline,
                           const PipelineOptions &options);

/// How deep brackets, and terms of affine expressions, lie in each other in a text, and how many
/// digits its longest number has; whether a constant has more elements than 64 bits count, and
/// whether a value may be used before it is defined. Without what strings and comments hold.
struct TextMeasure {
  size_t nesting = 0, digits = 0;
  bool overflows = false, forward = false;
};
TextMeasure measureText(const char *text, size_t size);

/// Names the first string of IR that isn't UTF-8, and its operation; empty where there is none.
std::string foreignString(MlirOperation root);

/// Says what is wrong with a source before it is parsed, or returns "".
using SourceCheck = std::function<std::string(const char *text, size_t size)>;

/// `rlx-opt`, `rlx-lsp-server` and `rlx-reduce`; the result is the exit status.
int optMain(std::vector<std::string> arguments, const SourceCheck &check);
int lspMain(std::vector<std::string> arguments);
int reduceMain(std::vector<std::string> arguments);

/// From here on, a signal that ends the process prints a stack trace first.
void printStackTraces();

/// Structural equality: locations don't count.
bool isEquivalent(MlirOperation lhs, MlirOperation rhs);

//===----------------------------------------------------------------------===//
// Code generation
//===----------------------------------------------------------------------===//

struct TargetDescription {
  std::string triple, cpu, features;
};

enum class CodeKind { Object, Assembly, LLVM };

struct CodeResult {
  std::string code, error;
};

/// Translates a module of the LLVM dialect, optimises at level 0 to 3, and emits code. The watch,
/// if there is one, is asked whether to go on; once it is over, the result is an error.
CodeResult emitCode(MlirOperation module, const TargetDescription &target, int level, CodeKind kind,
                    Watch *watch);

TargetDescription hostTarget();

/// Every feature of an architecture, `+name` where a CPU has it and `-name` where not, separated by
/// commas; the least CPU where none is named. Sets the error for a triple or CPU that LLVM lacks.
std::string targetFeatures(const std::string &triple, const std::string &cpu, std::string &error);

/// Those features of an architecture that are no instructions, but say which ones are fast on a
/// CPU. Sets the error for a triple that LLVM lacks.
std::vector<std::string> tuningFeatures(const std::string &triple, std::string &error);

} // namespace rlx

#endif // RLX_PASSES_BRIDGE_H
