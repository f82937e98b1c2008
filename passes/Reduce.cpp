// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// `rlx-reduce`: MLIR's reducer with our dialects, and what it may do to their operations.

#include "passes/Bridge.h"

#include "dialects/HIR.h"
#include "dialects/MIR.h"

#include "mlir/CAPI/IR.h"
#include "mlir/CAPI/Registration.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Reducer/ReductionPatternInterface.h"
#include "mlir/Support/LLVM.h"
#include "mlir/Tools/mlir-reduce/MlirReduceMain.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/Support/Signals.h"

using namespace mlir;

static bool isOurs(Operation *op) {
  return isa_and_nonnull<rlx::hir::HIRDialect, rlx::mir::MIRDialect>(op->getDialect());
}

namespace {
/// op(x, y) -> x, where all results have the type of x
struct ForwardOperand final : RewritePattern {
  ForwardOperand(MLIRContext *context) : RewritePattern(MatchAnyOpTypeTag(), /*benefit=*/3, context) {}
  LogicalResult matchAndRewrite(Operation *op, PatternRewriter &rewriter) const override {
    if (!isOurs(op) || op->getNumResults() == 0)
      return failure();
    for (Value operand : op->getOperands()) {
      if (!llvm::all_of(op->getResultTypes(), [&](Type t) { return t == operand.getType(); }))
        continue;
      rewriter.replaceOp(op, SmallVector<Value>(op->getNumResults(), operand));
      return success();
    }
    return failure();
  }
};

/// op(x) -> a new argument of the function
struct TurnIntoArgument final : RewritePattern {
  TurnIntoArgument(MLIRContext *context)
      : RewritePattern(MatchAnyOpTypeTag(), /*benefit=*/2, context) {}
  LogicalResult matchAndRewrite(Operation *op, PatternRewriter &rewriter) const override {
    auto function = dyn_cast_or_null<func::FuncOp>(op->getParentOp());
    if (!isOurs(op) || op->getNumResults() == 0 || !function)
      return failure();
    SmallVector<Value> arguments;
    rewriter.modifyOpInPlace(function, [&] {
      for (Value result : op->getResults()) {
        unsigned last = function.getNumArguments();
        if (failed(function.insertArgument(last, result.getType(), {}, result.getLoc())))
          return;
        arguments.push_back(function.getArgument(last));
      }
    });
    if (arguments.size() != op->getNumResults())
      return failure();
    rewriter.replaceOp(op, arguments);
    return success();
  }
};

/// return x, argument -> return x, and arguments that nothing reads go away
struct TrimSignature final : OpRewritePattern<func::ReturnOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(func::ReturnOp op, PatternRewriter &rewriter) const override {
    auto function = cast<func::FuncOp>(op->getParentOp());
    if (!function.getBody().hasOneBlock())
      return failure();
    llvm::BitVector results(op->getNumOperands()), arguments(function.getNumArguments());
    for (OpOperand &operand : op->getOpOperands())
      if (isa<BlockArgument>(operand.get()) && op->getNumOperands() > 1)
        results.set(operand.getOperandNumber());
    for (BlockArgument argument : function.getArguments()) {
      bool isRead = llvm::any_of(argument.getUses(), [&](OpOperand &use) {
        return use.getOwner() != op || !results.test(use.getOperandNumber());
      });
      if (!isRead)
        arguments.set(argument.getArgNumber());
    }
    if (results.all() && !results.empty())
      results.reset(0u);
    if (results.none() && arguments.none())
      return failure();
    rewriter.modifyOpInPlace(op, [&] { op->eraseOperands(results); });
    // The argument of a result that stays is read again.
    for (Value operand : op->getOperands())
      if (auto argument = dyn_cast<BlockArgument>(operand))
        arguments.reset(argument.getArgNumber());
    LogicalResult erased = success();
    rewriter.modifyOpInPlace(function, [&] {
      erased = success(succeeded(function.eraseResults(results)) &&
                       succeeded(function.eraseArguments(arguments)));
      function->removeAttr("mir.ties"); // Names of results and arguments that may be gone.
    });
    return erased;
  }
};

struct ReductionRules final : DialectReductionPatternInterface {
  ReductionRules(Dialect *dialect) : DialectReductionPatternInterface(dialect) {}
  void populateReductionPatterns(RewritePatternSet &patterns) const override {
    patterns.add<ForwardOperand, TurnIntoArgument, TrimSignature>(patterns.getContext());
  }
};
} // namespace

int rlx::reduceMain(std::vector<std::string> arguments) {
  DialectRegistry registry;
  rlx::registerDialects(wrap(&registry), /*everything=*/true);
  // One of the two dialects brings the rules: they hold for the operations of both.
  registry.addExtension(+[](MLIRContext *, mir::MIRDialect *dialect) {
    dialect->addInterfaces<ReductionRules>();
  });
  MLIRContext context(registry);
  // Passes written in Python may create operations of any dialect, and rules are those of loaded ones.
  context.loadAllAvailableDialects();
  std::vector<char *> argv;
  for (std::string &argument : arguments)
    argv.push_back(argument.data());
  return failed(mlirReduceMain(int(argv.size()), argv.data(), context));
}

void rlx::printStackTraces() { llvm::sys::PrintStackTraceOnErrorSignal("rlx"); }
