// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The native pass `rlx-verify-input`, and the same check for pipelines that Python runs.

#include "passes/VerifyInput.h"

#include "passes/Bridge.h"

#include "mlir/CAPI/IR.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/RegionKindInterface.h"
#include "mlir/Interfaces/ShapedOpInterfaces.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"

using namespace mlir;

/// An operation of the block that is reached from itself through operands, or null.
static Operation *findCycle(Block &block) {
  enum class State { Open, Done };
  DenseMap<Operation *, State> states;
  SmallVector<std::pair<Operation *, unsigned>> path;
  for (Operation &root : block) {
    if (!states.try_emplace(&root, State::Open).second)
      continue;
    path.emplace_back(&root, 0);
    while (!path.empty()) {
      auto &[op, next] = path.back();
      if (next == op->getNumOperands()) {
        states[op] = State::Done;
        path.pop_back();
        continue;
      }
      Operation *operand = op->getOperand(next++).getDefiningOp();
      if (!operand || operand->getBlock() != &block)
        continue;
      auto [found, isNew] = states.try_emplace(operand, State::Open);
      if (isNew)
        path.emplace_back(operand, 0);
      else if (found->second == State::Open)
        return operand;
    }
  }
  return nullptr;
}

/// Refuses the size of a dimension that there isn't, which is undefined, but which folding asks
/// for.
static LogicalResult verifyDimension(Operation *op) {
  auto dim = dyn_cast<ShapedDimOpInterface>(op);
  std::optional<int64_t> index =
      dim ? getConstantIntValue(dim.getDimension()) : std::optional<int64_t>();
  if (!index)
    return success();
  auto type = dyn_cast<ShapedType>(dim.getShapedValue().getType());
  if (!type || !type.hasRank() || (*index >= 0 && *index < type.getRank()))
    return success();
  return op->emitOpError("asks for dimension ")
         << *index << " of a value of rank " << type.getRank();
}

static LogicalResult verifyAcyclic(Operation *root) {
  WalkResult result = root->walk([](Operation *op) {
    if (failed(verifyDimension(op)))
      return WalkResult::interrupt();
    for (Region &region : op->getRegions()) {
      // Elsewhere dominance forbids them, but not in blocks that nothing reaches.
      bool anyOrder = mayBeGraphRegion(region);
      if (region.empty() || (!anyOrder && region.hasOneBlock()))
        continue;
      for (Block &block : llvm::drop_begin(region, anyOrder ? 0 : 1))
        if (Operation *found = findCycle(block)) {
          found->emitOpError("depends on its own result, which passes can't fold: what is computed "
                             "has to be defined before it is used");
          return WalkResult::interrupt();
        }
    }
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

LogicalResult rlx::verifyInput(Operation *root) {
  if (std::string found = rlx::foreignString(wrap(root)); !found.empty())
    // The operation's own location may be such a string.
    return emitError(UnknownLoc::get(root->getContext())) << found;
  return verifyAcyclic(root);
}

namespace {
struct VerifyInput final : PassWrapper<VerifyInput, OperationPass<>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(VerifyInput)

  StringRef getArgument() const override { return "rlx-verify-input"; }
  StringRef getDescription() const override {
    return "Refuse what passes don't survive: operations that depend on their own results, sizes "
           "of "
           "dimensions that there aren't, and strings that aren't UTF-8";
  }
  void runOnOperation() override {
    if (failed(rlx::verifyInput(getOperation())))
      signalPassFailure();
    markAllAnalysesPreserved();
  }
};
} // namespace

std::unique_ptr<Pass> rlx::createVerifyInput() { return std::make_unique<VerifyInput>(); }

void rlx::registerVerifyInput() { PassRegistration<VerifyInput>(); }
