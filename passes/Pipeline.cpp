// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Registration, running of textual pipelines, and the tools built on MLIR's mains.

#include "passes/Bridge.h"
#include "passes/VerifyInput.h"

#include "dialects/HIR.h"
#include "dialects/MIR.h"
#include "dialects/MIRFormats.h"

#include "mlir/CAPI/IR.h"
#include "mlir/CAPI/Registration.h"
#include "mlir/IR/Action.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/OperationSupport.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Support/FileUtilities.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "mlir/Tools/mlir-lsp-server/MlirLspServerMain.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/ToolOutputFile.h"

#include <map>
#include <memory>
#include <mutex>

using namespace mlir;

static void registerDialects(DialectRegistry &registry, bool everything) {
  registry.insert<rlx::hir::HIRDialect, rlx::mir::MIRDialect>();
  if (!everything)
    return;
  registerAllDialects(registry);
  registerAllExtensions(registry);
  // Passes that generate code use them; a context may not learn of them while its pipeline runs.
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  registerNVVMDialectTranslation(registry);
}

void rlx::registerDialects(MlirDialectRegistry registry, bool everything) {
  ::registerDialects(*unwrap(registry), everything);
}

std::string rlx::registerFormat(const std::string &name, int64_t length, int64_t bytes,
                                int64_t panelBytes, bool integers,
                                const std::vector<std::pair<int64_t, int64_t>> &planes) {
  mir::BlockFormat format{length, bytes, panelBytes, integers, {}};
  for (auto [elements, size] : planes)
    format.planes.push_back({elements, size});
  return mir::registerBlockFormat(name, format);
}

static std::string toString(Location location) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  location.print(stream);
  return text;
}

static StringRef toString(DiagnosticSeverity severity) {
  switch (severity) {
  case DiagnosticSeverity::Note:
    return "note";
  case DiagnosticSeverity::Warning:
    return "warning";
  case DiagnosticSeverity::Error:
    return "error";
  case DiagnosticSeverity::Remark:
    return "remark";
  }
  llvm_unreachable("every severity has a word");
}

/// Makes a context ready for passes written in Python, which nothing may change once a pass manager
/// runs. Creating an operation of a dialect that isn't loaded aborts the process, unless operations
/// may be unregistered; the passes then look for such operations, and fail.
static void prepareForPasses(MLIRContext *context) { context->allowUnregisteredDialects(); }

/// Runs a step of a pass manager, a pass or a pattern, unless the watch is over. What doesn't run
/// changes nothing: a pass leaves the IR as it is, a pattern doesn't match.
static void runWatched(rlx::Watch &watch, function_ref<void()> run, const tracing::Action &action) {
  if (watch.isOver())
    return;
  if (action.getTag() != PassExecutionAction::tag)
    return run();
  const Pass &pass = static_cast<const PassExecutionAction &>(action).getPass();
  std::string function;
  if (auto *op = dyn_cast<Operation *>(action.getContextIRUnits().front()))
    if (auto symbol = op->getAttrOfType<StringAttr>(SymbolTable::getSymbolAttrName()))
      function = symbol.str();
  rlx::Working working(&watch, pass.getArgument().str(), std::move(function));
  run();
}

namespace {
/// Holds a context ready while a pipeline runs in it. Pipelines of one context take turns: its
/// settings can't change while one runs, and each reads what the context reports.
class Session {
public:
  /// Printing between passes needs a context without threads.
  Session(MLIRContext *context, bool withoutThreads, rlx::Watch *watch)
      : context(context), turn(turnOf(context)), guard(*turn),
        unregistered(context->allowsUnregisteredDialects()),
        printsOperations(context->shouldPrintOpOnDiagnostic()),
        threads(context->isMultithreadingEnabled()) {
    prepareForPasses(context);
    // A module is thousands of lines; the reproducer has it.
    context->printOpOnDiagnostic(false);
    if (withoutThreads)
      context->disableMultithreading();
    if (watch)
      context->registerActionHandler(
          [watch](function_ref<void()> run, const tracing::Action &action) {
            runWatched(*watch, run, action);
          });
  }
  ~Session() {
    context->registerActionHandler(nullptr);
    context->allowUnregisteredDialects(unregistered);
    context->printOpOnDiagnostic(printsOperations);
    if (threads && !context->isMultithreadingEnabled())
      context->enableMultithreading();
  }

private:
  static std::shared_ptr<std::mutex> turnOf(MLIRContext *context) {
    static std::mutex lock;
    static std::map<MLIRContext *, std::weak_ptr<std::mutex>> turns;
    std::lock_guard<std::mutex> guard(lock);
    std::shared_ptr<std::mutex> turn = turns[context].lock();
    if (!turn)
      turns[context] = turn = std::make_shared<std::mutex>();
    return turn;
  }

  MLIRContext *context;
  std::shared_ptr<std::mutex> turn;
  std::lock_guard<std::mutex> guard;
  bool unregistered, printsOperations, threads;
};
} // namespace

rlx::PipelineResult rlx::runPipeline(MlirOperation cOp, const std::string &pipeline,
                                     const PipelineOptions &options) {
  Operation *op = unwrap(cOp);
  MLIRContext *context = op->getContext();
  PipelineResult result;
  if (runsPassIn(wrap(context))) {
    result.diagnostics.push_back(
        {"error", "pipeline", "a pass can't run a pipeline in its own context"});
    return result;
  }
  Session session(context, /*withoutThreads=*/options.printChanged, options.watch);

  auto record = [&](mlir::Diagnostic &diagnostic) {
    auto add = [&](mlir::Diagnostic &part) {
      result.diagnostics.push_back(
          {toString(part.getSeverity()).str(), toString(part.getLocation()), part.str()});
    };
    add(diagnostic);
    for (mlir::Diagnostic &note : diagnostic.getNotes())
      add(note);
    return success();
  };
  ScopedDiagnosticHandler handler(context, record);

  llvm::raw_string_ostream log(result.log);
  PassManager manager(context, op->getName().getStringRef(), PassManager::Nesting::Implicit);
  std::string parseError;
  llvm::raw_string_ostream parseErrors(parseError);
  // A pipeline may be anchored, `builtin.module(...)`, or a plain list of passes.
  StringRef text = StringRef(pipeline).trim();
  std::string anchor = op->getName().getStringRef().str() + "(";
  if (text.starts_with(anchor) && text.ends_with(")"))
    text = text.drop_front(anchor.size()).drop_back();
  if (failed(parsePassPipeline(text, manager, parseErrors))) {
    result.diagnostics.push_back({"error", "pipeline", StringRef(parseError).trim().str()});
    return result;
  }
  manager.enableVerifier(options.verify);
  if (options.printChanged)
    manager.enableIRPrinting([](Pass *, Operation *) { return false; },
                             [](Pass *, Operation *) { return true; },
                             /*printModuleScope=*/false, /*printAfterOnlyOnChange=*/true,
                             /*printAfterOnlyOnFailure=*/false, log);
  DefaultTimingManager timing;
  if (options.timing) {
    timing.setEnabled(true);
    timing.setDisplayMode(DefaultTimingManager::DisplayMode::Tree);
    timing.setOutput(createOutputStrategy(DefaultTimingManager::OutputFormat::Text, log));
  }
  TimingScope timingScope = timing.getRootScope();
  if (options.timing)
    manager.enableTiming(timingScope);

  OwningOpRef<Operation *> before = op->clone();
  result.succeeded = succeeded(rlx::verifyInput(op)) && succeeded(manager.run(op)) &&
                     !(options.watch && options.watch->isOver());
  if (!result.succeeded) {
    llvm::raw_string_ostream stream(result.reproducer);
    stream << "// rlx-opt %s --pass-pipeline='builtin.module(" << text << ")'\n";
    before->print(stream, OpPrintingFlags().enableDebugInfo().assumeVerified());
    stream << "\n";
  }
  timingScope.stop();
  return result;
}

static std::vector<char *> pointersOf(std::vector<std::string> &arguments) {
  std::vector<char *> pointers;
  for (std::string &argument : arguments)
    pointers.push_back(argument.data());
  return pointers;
}

/// `MlirOptMain`, whose contexts are made ready for passes written in Python before these run.
static LogicalResult runOpt(int argc, char **argv, DialectRegistry &registry,
                            const rlx::SourceCheck &check) {
  auto [input, output] =
      registerAndParseCLIOptions(argc, argv, "rlx-mlir optimizer driver\n", registry);
  MlirOptMainConfig given = MlirOptMainConfig::createFromCLOptions();
  if (given.shouldShowDialects() || given.shouldListPasses())
    return MlirOptMain(argc, argv, input, output, registry);
  llvm::InitLLVM stackTraces(argc, argv);
  MlirOptMainConfig config = given;
  config.setPassPipelineSetupFn([&given](PassManager &manager) {
    prepareForPasses(manager.getContext());
    manager.addPass(rlx::createVerifyInput());
    return given.setupPassPipeline(manager);
  });
  std::string message;
  std::unique_ptr<llvm::MemoryBuffer> source = openInputFile(input, &message);
  std::unique_ptr<llvm::ToolOutputFile> target =
      source ? openOutputFile(output, &message) : nullptr;
  if (!target) {
    llvm::errs() << message << "\n";
    return failure();
  }
  message = check(source->getBufferStart(), source->getBufferSize());
  if (!message.empty()) {
    llvm::errs() << input << ": error: " << message << "\n";
    return failure();
  }
  LogicalResult result = MlirOptMain(target->os(), std::move(source), registry, config);
  target->os().flush();
  if (std::error_code error = target->os().error()) {
    target->os().clear_error(); // which would end the process
    llvm::errs() << output << ": error: the output can't be written: " << error.message() << "\n";
    return failure();
  }
  if (failed(result))
    return failure();
  target->keep();
  return success();
}

int rlx::optMain(std::vector<std::string> arguments, const SourceCheck &check) {
  DialectRegistry registry;
  ::registerDialects(registry, /*everything=*/true);
  std::vector<char *> argv = pointersOf(arguments);
  return asMainReturnCode(runOpt(int(argv.size()), argv.data(), registry, check));
}

int rlx::lspMain(std::vector<std::string> arguments) {
  DialectRegistry registry;
  ::registerDialects(registry, /*everything=*/true);
  std::vector<char *> argv = pointersOf(arguments);
  return failed(MlirLspServerMain(int(argv.size()), argv.data(), registry));
}

bool rlx::isEquivalent(MlirOperation lhs, MlirOperation rhs) {
  return OperationEquivalence::isEquivalentTo(unwrap(lhs), unwrap(rhs),
                                              OperationEquivalence::IgnoreLocations);
}
