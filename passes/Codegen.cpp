// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From a module of the LLVM dialect to object code, assembly or LLVM IR.

#include "passes/Bridge.h"

#include "mlir/CAPI/IR.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"
#include "llvm/TargetParser/SubtargetFeature.h"

#include <mutex>

using namespace mlir;

static void initializeTargets() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeAllTargetInfos();
    llvm::InitializeAllTargets();
    llvm::InitializeAllTargetMCs();
    llvm::InitializeAllAsmPrinters();
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

static void optimize(llvm::Module &module, llvm::TargetMachine &machine, int level) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager callGraph;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
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

rlx::CodeResult rlx::emitCode(MlirOperation cModule, const TargetDescription &description,
                              int level, CodeKind kind) {
  initializeTargets();
  Operation *op = unwrap(cModule);
  registerBuiltinDialectTranslation(*op->getContext());
  registerLLVMDialectTranslation(*op->getContext());

  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> module = translateModuleToLLVMIR(op, context, "rlx");
  if (!module)
    return {"", "the module doesn't translate to LLVM IR: it must hold the LLVM dialect only"};

  std::string error;
  llvm::Triple triple(description.triple);
  const llvm::Target *target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return {"", "target '" + description.triple + "': " + error};
  llvm::TargetOptions targetOptions;
  std::unique_ptr<llvm::TargetMachine> machine(target->createTargetMachine(
      triple, description.cpu, description.features, targetOptions, llvm::Reloc::PIC_, std::nullopt,
      level == 0 ? llvm::CodeGenOptLevel::None : llvm::CodeGenOptLevel::Default));
  if (!machine)
    return {"", "target '" + description.triple + "' has no code generator for CPU '" +
                    description.cpu + "'"};
  module->setTargetTriple(triple);
  module->setDataLayout(machine->createDataLayout());
  optimize(*module, *machine, level);

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
  if (machine->addPassesToEmitFile(emitter, stream, nullptr, type))
    return {"", "target '" + description.triple + "' can't emit this kind of file"};
  emitter.run(*module);
  return {std::string(buffer.data(), buffer.size()), ""};
}
