// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// `rlx-reduce`: MLIR's reducer with our dialects, and a pass that reduces graphs of values.
// Upstream's `reduction-tree` erases operations only where nothing reads their results.

#include "passes/Bridge.h"

#include "mlir/CAPI/Registration.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Reducer/Tester.h"
#include "mlir/Tools/mlir-reduce/MlirReduceMain.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/Signals.h"

using namespace mlir;

//===----------------------------------------------------------------------===//
// What is done to one function
//===----------------------------------------------------------------------===//

static SmallVector<Operation *> operationsOf(func::FuncOp function) {
  SmallVector<Operation *> operations;
  for (Operation &op : function.getBody().front().without_terminator())
    operations.push_back(&op);
  return operations;
}

/// op(x) -> a new argument of the function
static LogicalResult turnIntoArguments(func::FuncOp function, ArrayRef<Operation *> operations) {
  for (Operation *op : llvm::reverse(operations)) {
    for (Value result : op->getResults()) {
      unsigned last = function.getNumArguments();
      if (!result.use_empty()) {
        if (failed(function.insertArgument(last, result.getType(), {}, result.getLoc())))
          return failure();
        result.replaceAllUsesWith(function.getArgument(last));
      }
    }
    op->erase();
  }
  return success();
}

/// op(.., x, ..) -> x, where all results have the type of x, the operand of the given number
static LogicalResult forwardOperand(Operation *op, unsigned number) {
  Value operand = op->getOperand(number);
  if (op->getNumResults() == 0 ||
      !llvm::all_of(op->getResultTypes(), [&](Type type) { return type == operand.getType(); }))
    return failure();
  for (Value result : op->getResults())
    result.replaceAllUsesWith(operand);
  op->erase();
  return success();
}

/// return .., x, .. -> return .., ..
static LogicalResult dropResults(func::FuncOp function, const llvm::BitVector &numbers) {
  function.getBody().front().getTerminator()->eraseOperands(numbers);
  function->removeAttr("mir.ties"); // It names results and arguments, some of which are gone.
  return function.eraseResults(numbers);
}

/// Erases operations without effect and arguments that nothing reads, and results that are
/// arguments.
static LogicalResult trim(func::FuncOp function) {
  Operation *terminator = function.getBody().front().getTerminator();
  llvm::BitVector results(terminator->getNumOperands());
  for (OpOperand &operand : terminator->getOpOperands())
    if (isa<BlockArgument>(operand.get()))
      results.set(operand.getOperandNumber());
  if (results.any() && failed(dropResults(function, results)))
    return failure();
  // Named: a temporary within llvm::reverse would be gone when the loop begins.
  SmallVector<Operation *> operations = operationsOf(function);
  for (Operation *op : llvm::reverse(operations))
    if (isOpTriviallyDead(op))
      op->erase();
  llvm::BitVector arguments(function.getNumArguments());
  for (BlockArgument argument : function.getArguments())
    if (argument.use_empty())
      arguments.set(argument.getArgNumber());
  return function.eraseArguments(arguments);
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

namespace {
struct ReduceGraph final : PassWrapper<ReduceGraph, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ReduceGraph)
  using Change = llvm::function_ref<LogicalResult(func::FuncOp)>;

  ReduceGraph() = default;
  ReduceGraph(const ReduceGraph &other) : PassWrapper(other) {}
  StringRef getArgument() const override { return "rlx-reduce-graph"; }
  StringRef getDescription() const override {
    return "Replace operations by arguments and operands, and drop functions, results and "
           "arguments, as long as the "
           "test finds the module interesting";
  }
  Option<std::string> test{
      *this, "test",
      llvm::cl::desc("Program that exits with 1 where its last argument, a file, is interesting")};
  ListOption<std::string> testArguments{*this, "test-arg",
                                        llvm::cl::desc("Arguments before the file")};

  void runOnOperation() override {
    SmallVector<std::string> arguments(testArguments.begin(), testArguments.end());
    tester.setTestScript(test);
    tester.setTestScriptArgs(arguments);
    if (tester.isInteresting(getOperation()).first != Tester::Interestingness::True) {
      getOperation()->emitError("the test doesn't find the module interesting as it is");
      return signalPassFailure();
    }
    while (reduceOnce())
      ;
  }

private:
  /// Tries everything once; whether anything was kept.
  bool reduceOnce() {
    bool changed = false;
    for (unsigned i = numFunctions(); i-- > 0;) {
      changed |= attempt([&](ModuleOp module) {
        functionAt(module, i)->erase();
        return success();
      });
    }
    for (unsigned i = 0; i < numFunctions(); ++i) {
      func::FuncOp function = functionAt(getOperation(), i);
      if (!function.getBody().hasOneBlock())
        continue;
      for (unsigned r = function.getNumResults(); r-- > 0;)
        changed |= attemptIn(i, [&](func::FuncOp copy) {
          llvm::BitVector numbers(copy.getNumResults());
          numbers.set(r);
          return dropResults(copy, numbers);
        });
      size_t count = operationsOf(functionAt(getOperation(), i)).size();
      for (size_t chunk = llvm::PowerOf2Ceil(count); chunk > 0; chunk /= 2)
        for (size_t end = operationsOf(functionAt(getOperation(), i)).size(); end > 0;) {
          size_t begin = end > chunk ? end - chunk : 0;
          changed |= attemptIn(i, [&](func::FuncOp copy) {
            SmallVector<Operation *> all = operationsOf(copy);
            return turnIntoArguments(copy, ArrayRef(all).slice(begin, end - begin));
          });
          end = std::min(begin, operationsOf(functionAt(getOperation(), i)).size());
        }
      for (size_t number = operationsOf(functionAt(getOperation(), i)).size(); number-- > 0;)
        changed |= forwardOperands(i, number);
    }
    return changed;
  }

  bool forwardOperands(unsigned function, size_t number) {
    SmallVector<Operation *> now = operationsOf(functionAt(getOperation(), function));
    if (number >= now.size())
      return false;
    unsigned operands = now[number]->getNumOperands();
    for (unsigned i = 0; i < operands; ++i)
      if (attemptIn(function, [&](func::FuncOp copy) {
            return forwardOperand(operationsOf(copy)[number], i);
          }))
        return true;
    return false;
  }

  /// Keeps a change to a function, and what can be trimmed after it, where the result is
  /// interesting.
  bool attemptIn(unsigned number, Change change) {
    return attempt([&](ModuleOp module) {
      func::FuncOp copy = functionAt(module, number);
      return failed(change(copy)) ? failure() : trim(copy);
    });
  }

  bool attempt(llvm::function_ref<LogicalResult(ModuleOp)> change) {
    ModuleOp module = getOperation();
    OwningOpRef<ModuleOp> copy = module.clone();
    ScopedDiagnosticHandler quiet(&getContext(), [](Diagnostic &) { return success(); });
    if (failed(change(*copy)) || failed(verify(*copy)) ||
        tester.isInteresting(*copy).first != Tester::Interestingness::True)
      return false;
    module.getBodyRegion().takeBody(copy->getBodyRegion());
    return true;
  }

  unsigned numFunctions() {
    auto functions = getOperation().getOps<func::FuncOp>();
    return std::distance(functions.begin(), functions.end());
  }
  static func::FuncOp functionAt(ModuleOp module, unsigned number) {
    return *std::next(module.getOps<func::FuncOp>().begin(), number);
  }

  Tester tester;
};
} // namespace

/// Says what ends the process as other errors are said; LLVM exits with 1 then. A stream whose file
/// takes no more ends it so where it is closed.
static void sayFatal(void *, const char *reason, bool) {
  llvm::errs() << "rlx-reduce: error: " << reason << "\n";
}

int rlx::reduceMain(std::vector<std::string> arguments) {
  llvm::ScopedFatalErrorHandler handler(sayFatal);
  PassRegistration<ReduceGraph>();
  DialectRegistry registry;
  rlx::registerDialects(wrap(&registry), /*everything=*/true);
  MLIRContext context(registry);
  // Passes written in Python may create operations of any dialect.
  context.loadAllAvailableDialects();
  std::vector<char *> argv;
  for (std::string &argument : arguments)
    argv.push_back(argument.data());
  return failed(mlirReduceMain(int(argv.size()), argv.data(), context));
}

void rlx::printStackTraces() { llvm::sys::PrintStackTraceOnErrorSignal("rlx"); }
