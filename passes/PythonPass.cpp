// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Passes written in Python, registered in MLIR's own registry: pipelines, options, help, timing and
// IR printing treat them as any other pass.

#include "passes/Bridge.h"

#include "dialects/HIR.h"
#include "dialects/MIR.h"

#include "mlir/CAPI/IR.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassRegistry.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/SaveAndRestore.h"
#include "llvm/Support/Threading.h"

#include <memory>

using namespace mlir;

namespace {

using InsertDialect = void (*)(DialectRegistry &);

template <typename Dialect> void insertDialect(DialectRegistry &registry) {
  registry.insert<Dialect>();
}

/// Registries take dialects by type, passes in Python know their names: those that passes may
/// create operations of.
const llvm::StringMap<InsertDialect> &loadableDialects() {
  static const llvm::StringMap<InsertDialect> dialects = {
      {"affine", insertDialect<affine::AffineDialect>},
      {"arith", insertDialect<arith::ArithDialect>},
      {"bufferization", insertDialect<bufferization::BufferizationDialect>},
      {"func", insertDialect<func::FuncDialect>},
      {"gpu", insertDialect<gpu::GPUDialect>},
      {"hir", insertDialect<rlx::hir::HIRDialect>},
      {"linalg", insertDialect<linalg::LinalgDialect>},
      {"llvm", insertDialect<LLVM::LLVMDialect>},
      {"math", insertDialect<math::MathDialect>},
      {"memref", insertDialect<memref::MemRefDialect>},
      {"mir", insertDialect<rlx::mir::MIRDialect>},
      {"nvgpu", insertDialect<nvgpu::NVGPUDialect>},
      {"nvvm", insertDialect<NVVM::NVVMDialect>},
      {"scf", insertDialect<scf::SCFDialect>},
      {"tensor", insertDialect<tensor::TensorDialect>},
      {"vector", insertDialect<vector::VectorDialect>},
  };
  return dialects;
}

thread_local MLIRContext *contextOfPass = nullptr;

struct Registered {
  rlx::PassSpec spec;
  rlx::PassCallback callback;
};

class PythonPass final : public Pass {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(PythonPass)

  explicit PythonPass(std::shared_ptr<const Registered> registered)
      : Pass(TypeID::get<PythonPass>(), anchorOf(*registered)), registered(std::move(registered)) {
    for (const rlx::PassOption &option : this->registered->spec.options)
      options.push_back(std::make_unique<Option<std::string>>(*this, option.name,
                                                              llvm::cl::desc(option.description)));
  }
  PythonPass(const PythonPass &other) : PythonPass(other.registered) {
    copyOptionValuesFrom(&other);
  }

  StringRef getName() const override { return registered->spec.argument; }
  StringRef getArgument() const override { return registered->spec.argument; }
  StringRef getDescription() const override { return registered->spec.description; }
  std::unique_ptr<Pass> clonePass() const override { return std::make_unique<PythonPass>(*this); }
  bool canScheduleOn(RegisteredOperationName name) const override {
    return registered->spec.anchor.empty() || name.getStringRef() == registered->spec.anchor;
  }

  /// Creating an operation of a dialect that isn't loaded aborts, and none can be loaded once the
  /// pass manager has started threads.
  void getDependentDialects(DialectRegistry &registry) const override {
    for (const std::string &dialect : registered->spec.dependentDialects)
      if (auto insert = loadableDialects().lookup(dialect))
        insert(registry);
  }

  LogicalResult initialize(MLIRContext *context) override {
    for (const std::string &dialect : registered->spec.dependentDialects)
      if (!context->getLoadedDialect(dialect))
        return emitError(UnknownLoc::get(context))
               << "pass '" << getArgument() << "' depends on dialect '" << dialect
               << "', which isn't loaded and can't be loaded by its name";
    return success();
  }

  void runOnOperation() override {
    rlx::OptionValues values;
    for (const auto &option : options)
      if (option->hasValue())
        values.emplace_back(option->getArgStr().str(), option->getValue());
    llvm::StringSet<> before = unregisteredOperations();
    bool reported = false;
    std::string error;
    {
      // The handlers of a context hear all of its threads, those that run this pass, or another
      // one, on other functions included. A diagnostic is handled by the thread that reports it.
      const uint64_t thread = llvm::get_threadid();
      ScopedDiagnosticHandler watch(&getContext(), [&](Diagnostic &diagnostic) {
        if (llvm::get_threadid() == thread)
          reported = reported || diagnostic.getSeverity() == DiagnosticSeverity::Error;
        return failure();
      });
      llvm::SaveAndRestore<MLIRContext *> running(contextOfPass, &getContext());
      error = registered->callback(wrap(getOperation()), values);
    }
    if (error.empty() && reported)
      error = "it reported an error, but didn't raise one";
    for (const auto &entry : unregisteredOperations())
      if (error.empty() && !before.contains(entry.getKey()))
        error = ("it created '" + entry.getKey() + "', but doesn't depend on dialect '" +
                 entry.getKey().split('.').first + "'")
                    .str();
    if (error.empty())
      return;
    getOperation()->emitError() << "pass '" << getArgument() << "': " << error;
    signalPassFailure();
  }

private:
  /// Names of operations that no loaded dialect has.
  llvm::StringSet<> unregisteredOperations() {
    llvm::StringSet<> names;
    getOperation()->walk([&](Operation *op) {
      if (!op->isRegistered())
        names.insert(op->getName().getStringRef());
    });
    return names;
  }

  static std::optional<StringRef> anchorOf(const Registered &registered) {
    if (registered.spec.anchor.empty())
      return std::nullopt;
    return StringRef(registered.spec.anchor);
  }

  std::shared_ptr<const Registered> registered;
  std::vector<std::unique_ptr<Option<std::string>>> options;
};

} // namespace

bool rlx::runsPassIn(MlirContext context) { return contextOfPass == unwrap(context); }

void rlx::emitRemark(MlirLocation location, const std::string &message) {
  mlir::emitRemark(unwrap(location)) << message;
}

void rlx::registerPythonPass(PassSpec spec, PassCallback callback) {
  auto registered =
      std::make_shared<const Registered>(Registered{std::move(spec), std::move(callback)});
  registerPass([registered] { return std::make_unique<PythonPass>(registered); });
}

/// Sets the values that `words` ("name=value name=value") give; the result is the text of the
/// error.
static std::string readOptions(StringRef words, rlx::OptionValues &options) {
  SmallVector<StringRef> parts;
  words.split(parts, ' ', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  for (StringRef part : parts) {
    auto [name, value] = part.split('=');
    auto found =
        llvm::find_if(options, [name = name](const auto &option) { return option.first == name; });
    if (found == options.end()) {
      std::string known;
      for (const auto &option : options)
        known += (known.empty() ? "" : ", ") + option.first;
      return ("option '" + name +
              "' isn't one of the pipeline's: " + (known.empty() ? "it takes none" : known))
          .str();
    }
    found->second = value.str();
  }
  return "";
}

void rlx::registerPipeline(const std::string &name, const std::string &description,
                           const std::string &text, const OptionValues &options) {
  registerPassPipeline(
      name, description,
      [text, options](OpPassManager &manager, StringRef words,
                      function_ref<LogicalResult(const Twine &)> error) -> LogicalResult {
        OptionValues values = options;
        if (std::string wrong = readOptions(words, values); !wrong.empty())
          return error(wrong);
        std::string filled = text;
        for (const auto &[name, value] : values)
          for (size_t at = 0; (at = filled.find("$" + name, at)) != std::string::npos;)
            filled.replace(at, name.size() + 1, value), at += value.size();
        std::string message;
        llvm::raw_string_ostream stream(message);
        if (failed(parsePassPipeline(filled, manager, stream)))
          return error(message);
        return success();
      },
      [](function_ref<void(const detail::PassOptions &)>) {});
}
