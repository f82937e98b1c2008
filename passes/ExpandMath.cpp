// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The native pass `rlx-expand-math`: upstream has the patterns but registers no pass for them.

#include "passes/Bridge.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;

namespace {

/// LLVM calls libm for each lane of a vector `exp`; polynomials are some ten times faster.
/// Scalars stay library calls: they are rare, and libm is the more accurate.
struct ExpandMath final : PassWrapper<ExpandMath, OperationPass<>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ExpandMath)

  StringRef getArgument() const override { return "rlx-expand-math"; }
  StringRef getDescription() const override {
    return "Expand exp, log, tanh, erf, sin, cos, atan on vectors of f32 into polynomials";
  }
  void getDependentDialects(DialectRegistry &registry) const override {
    registry.insert<arith::ArithDialect, math::MathDialect, vector::VectorDialect>();
  }
  void runOnOperation() override {
    auto onVectors = [](StringRef name) {
      return llvm::is_contained({"math.exp", "math.log", "math.tanh", "math.erf", "math.sin",
                                 "math.cos", "math.atan", "math.expm1", "math.log1p"},
                                name);
    };
    RewritePatternSet patterns(&getContext());
    populateMathPolynomialApproximationPatterns(patterns, onVectors);
    SmallVector<Operation *> vectors;
    getOperation()->walk([&](Operation *op) {
      if (op->getNumResults() == 1 && isa<VectorType>(op->getResult(0).getType()) &&
          onVectors(op->getName().getStringRef()))
        vectors.push_back(op);
    });
    GreedyRewriteConfig config;
    config.setStrictness(GreedyRewriteStrictness::ExistingAndNewOps);
    if (failed(applyOpPatternsGreedily(vectors, std::move(patterns), config)))
      signalPassFailure();
  }
};

} // namespace

void rlx::registerNativePasses() { PassRegistration<ExpandMath>(); }
