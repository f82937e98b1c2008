// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From a module of the LLVM dialect to object code, assembly or LLVM IR.

#include "passes/Bridge.h"

#include "mlir/CAPI/IR.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/CodeGen/Passes.h"
#include "llvm/CodeGen/TargetPassConfig.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/DiagnosticPrinter.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/OptBisect.h"
#include "llvm/IR/PassInstrumentation.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/Threading.h"
#include "llvm/Target/RegisterTargetPassConfigCallback.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"
#include "llvm/TargetParser/SubtargetFeature.h"

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

using namespace mlir;

static void initializeTargets() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeAllTargetInfos();
    llvm::InitializeAllTargets();
    llvm::InitializeAllTargetMCs();
    llvm::InitializeAllAsmPrinters();
    llvm::InitializeAllAsmParsers(); // of inline assembly: without one, it ends the process
  });
}

rlx::TargetDescription rlx::hostTarget() {
  llvm::SubtargetFeatures features;
  for (const auto &[name, enabled] : llvm::sys::getHostCPUFeatures())
    features.AddFeature(name, enabled);
  return {llvm::sys::getDefaultTargetTriple(), llvm::sys::getHostCPUName().str(),
          features.getString()};
}

static llvm::OptimizationLevel optimizationLevel(int level) {
  switch (level) {
  case 0:
    return llvm::OptimizationLevel::O0;
  case 1:
    return llvm::OptimizationLevel::O1;
  case 2:
    return llvm::OptimizationLevel::O2;
  default:
    return llvm::OptimizationLevel::O3;
  }
}

/// The function that a pass of LLVM runs on; empty where it is more than one.
static std::string functionOf(const llvm::Any &unit) {
  if (const auto *function = llvm::any_cast<const llvm::Function *>(&unit))
    return (*function)->getName().str();
  if (const auto *loop = llvm::any_cast<const llvm::Loop *>(&unit))
    return (*loop)->getHeader()->getParent()->getName().str();
  return "";
}

namespace {
/// Tells a watch of LLVM's optimisations, and skips those that are left when it is over.
class WatchedOptimizations {
public:
  explicit WatchedOptimizations(rlx::Watch *watch) {
    if (!watch)
      return;
    callbacks.registerShouldRunOptionalPassCallback(
        [watch](StringRef, llvm::Any) { return !watch->isOver(); });
    callbacks.registerBeforeNonSkippedPassCallback([this, watch](StringRef pass, llvm::Any unit) {
      running.push_back(std::make_unique<rlx::Working>(watch, pass.str(), functionOf(unit)));
    });
    callbacks.registerAfterPassCallback(
        [this](StringRef, llvm::Any, const llvm::PreservedAnalyses &) { running.pop_back(); });
    callbacks.registerAfterPassInvalidatedCallback(
        [this](StringRef, const llvm::PreservedAnalyses &) { running.pop_back(); });
  }
  llvm::PassInstrumentationCallbacks callbacks;

private:
  std::vector<std::unique_ptr<rlx::Working>> running;
};

/// Skips optional passes of code generation once a watch is over.
class WatchedGate final : public llvm::OptPassGate {
public:
  explicit WatchedGate(rlx::Watch &watch) : watch(watch) {}
  bool shouldRunPass(StringRef, StringRef) const override { return !watch.isOver(); }
  bool isEnabled() const override { return true; }

private:
  rlx::Watch &watch;
};

/// Stands among the passes of code generation, which runs them all on one function after the other.
/// Once the watch is over, functions lose their bodies, and there is nothing to generate.
class WatchedFunctions final : public llvm::FunctionPass {
public:
  static char ID;
  explicit WatchedFunctions(rlx::Watch &watch) : FunctionPass(ID), watch(watch) {}
  StringRef getPassName() const override { return "Ask whether to go on"; }
  bool runOnFunction(llvm::Function &function) override {
    working.reset();
    if (!watch.isOver()) {
      working.emplace(&watch, "code generation", function.getName().str());
      return false;
    }
    function.dropAllReferences();
    auto *block = llvm::BasicBlock::Create(function.getContext(), "", &function);
    new llvm::UnreachableInst(function.getContext(), block);
    return true;
  }
  bool doFinalization(llvm::Module &) override {
    working.reset();
    return false;
  }

private:
  rlx::Watch &watch;
  std::optional<rlx::Working> working;
};
char WatchedFunctions::ID = 0;

/// The watch of the code generation that this thread sets up.
thread_local rlx::Watch *watchOfCodegen = nullptr;
} // namespace

/// Makes LLVM call back where it sets up code generation; the list of callbacks is the process's.
static void watchCodegen() {
  static std::once_flag once;
  std::call_once(once, [] {
    new llvm::RegisterTargetPassConfigCallback(
        [](llvm::TargetMachine &, llvm::PassManagerBase &, llvm::TargetPassConfig *config) {
          if (watchOfCodegen) // after the first pass on functions, which every target has
            config->insertPass(&llvm::AtomicExpandID, new WatchedFunctions(*watchOfCodegen));
        });
  });
}

static void optimize(llvm::Module &module, llvm::TargetMachine &machine, int level,
                     rlx::Watch *watch) {
  WatchedOptimizations watched(watch);
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager callGraph;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine, llvm::PipelineTuningOptions(), std::nullopt,
                            &watched.callbacks);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(callGraph);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, callGraph, modules);
  llvm::OptimizationLevel optimization = optimizationLevel(level);
  llvm::ModulePassManager manager = level == 0
                                        ? builder.buildO0DefaultPipeline(optimization)
                                        : builder.buildPerModuleDefaultPipeline(optimization);
  manager.run(module, modules);
}

/// The registered target of a triple, or null with the reason.
static const llvm::Target *findTarget(const std::string &triple, std::string &error) {
  initializeTargets();
  const llvm::Target *target = llvm::TargetRegistry::lookupTarget(llvm::Triple(triple), error);
  if (!target)
    error = "target '" + triple + "': " + error;
  return target;
}

std::string rlx::targetFeatures(const std::string &name, const std::string &cpu,
                                std::string &error) {
  const llvm::Target *target = findTarget(name, error);
  if (!target)
    return "";
  llvm::Triple triple(name);
  // Without a CPU: naming one that LLVM doesn't know makes it write to stderr.
  std::unique_ptr<llvm::MCSubtargetInfo> info(target->createMCSubtargetInfo(triple, "", ""));
  if (!cpu.empty() && !info->isCPUStringValid(cpu)) {
    error = "target '" + name + "' has no CPU '" + cpu + "'";
    return "";
  }
  if (!cpu.empty())
    info.reset(target->createMCSubtargetInfo(triple, cpu, ""));
  // Not by SubtargetFeatures, which changes the case of names.
  std::string features;
  for (const llvm::SubtargetFeatureKV &feature : info->getAllProcessorFeatures()) {
    features += features.empty() ? "" : ",";
    features += info->getFeatureBits().test(feature.Value) ? '+' : '-';
    features += feature.Key;
  }
  return features;
}

std::vector<std::string> rlx::tuningFeatures(const std::string &name, std::string &error) {
  const llvm::Target *target = findTarget(name, error);
  if (!target)
    return {};
  std::unique_ptr<llvm::MCSubtargetInfo> info(
      target->createMCSubtargetInfo(llvm::Triple(name), "", ""));
  llvm::FeatureBitset tuning, architecture;
  for (const llvm::SubtargetSubTypeKV &cpu : info->getAllProcessorDescriptions()) {
    tuning |= cpu.TuneImplies.getAsBitset();
    architecture |= cpu.Implies.getAsBitset();
  }
  std::vector<std::string> names;
  for (const llvm::SubtargetFeatureKV &feature : info->getAllProcessorFeatures())
    if (tuning.test(feature.Value) && !architecture.test(feature.Value))
      names.push_back(feature.Key);
  return names;
}

namespace {
/// Gathers what MLIR's translation and LLVM report, which would go to stderr; of errors, the first
/// few.
class Reports {
public:
  static constexpr size_t kLimit = 8;

  void add(const llvm::Twine &text) {
    if (++count <= kLimit)
      messages += "\n" + text.str();
  }
  bool any() const { return count > 0; }
  std::string text() const {
    return count <= kLimit ? messages
                           : messages + "\nand " + std::to_string(count - kLimit) + " more";
  }

private:
  std::string messages;
  size_t count = 0;
};

struct LLVMReports final : llvm::DiagnosticHandler {
  explicit LLVMReports(Reports &reports) : reports(reports) {}
  bool handleDiagnostics(const llvm::DiagnosticInfo &info) override {
    if (info.getSeverity() != llvm::DS_Error)
      return true;
    std::string text;
    llvm::raw_string_ostream stream(text);
    llvm::DiagnosticPrinterRawOStream printer(stream);
    info.print(printer);
    reports.add(text);
    return true;
  }
  Reports &reports;
};
} // namespace

static constexpr const char *kStopped = "code generation was stopped";

rlx::CodeResult rlx::emitCode(MlirOperation cModule, const TargetDescription &description,
                              int level, CodeKind kind, Watch *watch) {
  initializeTargets();
  Operation *op = unwrap(cModule);
  registerBuiltinDialectTranslation(*op->getContext());
  registerLLVMDialectTranslation(*op->getContext());
  registerNVVMDialectTranslation(*op->getContext());

  Reports reports;
  const uint64_t thread = llvm::get_threadid();
  ScopedDiagnosticHandler handler(op->getContext(), [&](mlir::Diagnostic &diagnostic) {
    if (llvm::get_threadid() != thread)
      return failure(); // Of another pass, in the same context.
    if (diagnostic.getSeverity() != DiagnosticSeverity::Error)
      return success();
    std::string text;
    llvm::raw_string_ostream stream(text);
    if (!isa<UnknownLoc>(diagnostic.getLocation()))
      stream << diagnostic.getLocation() << ": ";
    stream << diagnostic;
    for (mlir::Diagnostic &note : diagnostic.getNotes())
      stream << "\n  " << note;
    reports.add(text);
    return success();
  });
  llvm::LLVMContext context;
  context.setDiagnosticHandler(std::make_unique<LLVMReports>(reports));
  std::unique_ptr<llvm::Module> module = translateModuleToLLVMIR(op, context, "rlx");
  if (!module)
    return {"", "the module doesn't translate to LLVM IR: it must hold the LLVM dialect only" +
                    reports.text()};

  std::string error;
  llvm::Triple triple(description.triple);
  const llvm::Target *target = findTarget(description.triple, error);
  if (!target)
    return {"", error};
  llvm::TargetOptions targetOptions;
  std::unique_ptr<llvm::TargetMachine> machine(target->createTargetMachine(
      triple, description.cpu, description.features, targetOptions, llvm::Reloc::PIC_, std::nullopt,
      level == 0 ? llvm::CodeGenOptLevel::None : llvm::CodeGenOptLevel::Default));
  if (!machine)
    return {"", "target '" + description.triple + "' has no code generator for CPU '" +
                    description.cpu + "'"};
  module->setTargetTriple(triple);
  module->setDataLayout(machine->createDataLayout());
  std::unique_ptr<WatchedGate> gate;
  if (watch) {
    gate = std::make_unique<WatchedGate>(*watch);
    context.setOptPassGate(*gate);
  }
  optimize(*module, *machine, level, watch);
  auto isOver = [&] { return watch && watch->isOver(); };
  if (isOver())
    return {"", kStopped};
  if (reports.any())
    return {"", "LLVM reports errors while it optimises" + reports.text()};

  if (kind == CodeKind::LLVM) {
    std::string text;
    llvm::raw_string_ostream stream(text);
    module->print(stream, nullptr);
    return {std::move(text), ""};
  }
  llvm::SmallVector<char, 0> buffer;
  llvm::raw_svector_ostream stream(buffer);
  llvm::legacy::PassManager emitter;
  auto type = kind == CodeKind::Object ? llvm::CodeGenFileType::ObjectFile
                                       : llvm::CodeGenFileType::AssemblyFile;
  watchCodegen();
  watchOfCodegen = watch;
  bool fails = machine->addPassesToEmitFile(emitter, stream, nullptr, type);
  watchOfCodegen = nullptr;
  if (fails)
    return {"", "target '" + description.triple + "' can't emit this kind of file"};
  emitter.run(*module);
  if (isOver())
    return {"", kStopped};
  if (reports.any())
    return {"", "LLVM reports errors while it generates code" + reports.text()};
  return {std::string(buffer.data(), buffer.size()), ""};
}
