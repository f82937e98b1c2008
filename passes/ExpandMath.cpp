// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The native pass `rlx-expand-math`: upstream has the patterns but registers no pass for them.

#include "passes/Bridge.h"
#include "passes/VerifyInput.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;

namespace {

/// LLVM calls libm for each lane of a vector `exp`; polynomials are some ten times faster.
/// Scalars stay library calls by default: on a CPU they are rare, and libm is the more accurate.
/// GPUs have no library.
struct ExpandMath final : PassWrapper<ExpandMath, OperationPass<>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ExpandMath)

  ExpandMath() = default;
  ExpandMath(const ExpandMath &other) : PassWrapper(other) {}

  StringRef getArgument() const override { return "rlx-expand-math"; }
  StringRef getDescription() const override {
    return "Expand exp, log, tanh, erf, atan on vectors of f32 into polynomials";
  }
  void getDependentDialects(DialectRegistry &registry) const override {
    registry.insert<arith::ArithDialect, math::MathDialect, vector::VectorDialect>();
  }
  void runOnOperation() override {
    auto isExpanded = [](StringRef name) {
      // Sine and cosine are rlx-expand-angles's: the polynomials here lose all of a large angle.
      return llvm::is_contained({"math.exp", "math.log", "math.tanh", "math.erf", "math.atan",
                                 "math.expm1", "math.log1p"},
                                name);
    };
    RewritePatternSet patterns(&getContext());
    populateMathPolynomialApproximationPatterns(patterns, isExpanded);
    SmallVector<Operation *> chosen;
    getOperation()->walk([&](Operation *op) {
      if (op->getNumResults() == 1 && (scalars || isa<VectorType>(op->getResult(0).getType())) &&
          isExpanded(op->getName().getStringRef()))
        chosen.push_back(op);
    });
    GreedyRewriteConfig config;
    config.setStrictness(GreedyRewriteStrictness::ExistingAndNewOps);
    if (failed(applyOpPatternsGreedily(chosen, std::move(patterns), config)))
      signalPassFailure();
  }

  Option<bool> scalars{*this, "scalars", llvm::cl::desc("expand scalars of f32 too"),
                       llvm::cl::init(false)};
};

} // namespace

void rlx::registerNativePasses() {
  PassRegistration<ExpandMath>();
  registerVerifyInput();
}
