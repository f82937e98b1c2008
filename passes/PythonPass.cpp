// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Passes written in Python, registered in MLIR's own registry: pipelines, options, help, timing and
// IR printing treat them as any other pass.

#include "passes/Bridge.h"

#include "mlir/CAPI/IR.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassRegistry.h"

#include <memory>

using namespace mlir;

namespace {

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
      options.push_back(std::make_unique<Option<std::string>>(
          *this, option.name, llvm::cl::desc(option.description)));
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

  /// Dialects are loaded by name here, before the pass manager starts threads: creating an
  /// operation of a dialect that isn't loaded aborts.
  LogicalResult initialize(MLIRContext *context) override {
    for (const std::string &dialect : registered->spec.dependentDialects)
      if (!context->getOrLoadDialect(dialect))
        return emitError(UnknownLoc::get(context))
               << "pass '" << getArgument() << "' depends on dialect '" << dialect
               << "', which isn't registered";
    return success();
  }

  void runOnOperation() override {
    rlx::OptionValues values;
    for (const auto &option : options)
      if (option->hasValue())
        values.emplace_back(option->getArgStr().str(), option->getValue());
    std::string error = registered->callback(wrap(getOperation()), values);
    if (error.empty())
      return;
    getOperation()->emitError() << "pass '" << getArgument() << "': " << error;
    signalPassFailure();
  }

private:
  static std::optional<StringRef> anchorOf(const Registered &registered) {
    if (registered.spec.anchor.empty())
      return std::nullopt;
    return StringRef(registered.spec.anchor);
  }

  std::shared_ptr<const Registered> registered;
  std::vector<std::unique_ptr<Option<std::string>>> options;
};

} // namespace

void rlx::registerPythonPass(PassSpec spec, PassCallback callback) {
  auto registered =
      std::make_shared<const Registered>(Registered{std::move(spec), std::move(callback)});
  registerPass([registered] { return std::make_unique<PythonPass>(registered); });
}

void rlx::registerPipeline(const std::string &name, const std::string &description,
                           const std::string &text) {
  registerPassPipeline(
      name, description,
      [text](OpPassManager &manager, StringRef options,
             function_ref<LogicalResult(const Twine &)> error) -> LogicalResult {
        if (!options.empty())
          return error("a named pipeline takes no options, but got '" + options + "'");
        std::string message;
        llvm::raw_string_ostream stream(message);
        if (failed(parsePassPipeline(text, manager, stream)))
          return error(message);
        return success();
      },
      [](function_ref<void(const detail::PassOptions &)>) {});
}
