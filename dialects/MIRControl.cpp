// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Operations with regions: verification, and how control flows.

#include "dialects/MIR.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace rlx::mir;

/// Checks that a region has arguments of these types.
static LogicalResult checkArguments(Operation *op, StringRef name, Region &region,
                                    ArrayRef<Type> types) {
  if (llvm::equal(region.getArgumentTypes(), types))
    return success();
  return op->emitOpError() << "expects the arguments of region '" << name << "' to be (" << types
                           << "), but got (" << region.getArgumentTypes() << ")";
}

/// The terminator of a region, of one class; reports another one. What is nested is verified later.
template <typename Terminator>
static FailureOr<Terminator> terminator(Operation *op, StringRef name, Region &region) {
  if (auto found = dyn_cast<Terminator>(region.front().back()))
    return found;
  return op->emitOpError() << "expects region '" << name << "' to end with '"
                           << Terminator::getOperationName() << "', but it ends with '"
                           << region.front().back().getName() << "'";
}

/// Checks that a region yields values of these types.
static LogicalResult checkYielded(Operation *op, StringRef name, Region &region,
                                  TypeRange expected) {
  FailureOr<YieldOp> yield = terminator<YieldOp>(op, name, region);
  if (failed(yield))
    return failure();
  if (llvm::equal(yield->getValues().getTypes(), expected))
    return success();
  return op->emitOpError() << "expects region '" << name << "' to yield (" << expected
                           << "), but got (" << yield->getValues().getTypes() << ")";
}

static SmallVector<Type> joined(std::initializer_list<TypeRange> parts) {
  SmallVector<Type> types;
  for (TypeRange part : parts)
    llvm::append_range(types, part);
  return types;
}

//===----------------------------------------------------------------------===//
// If
//===----------------------------------------------------------------------===//

LogicalResult IfOp::verify() {
  if (getResults().empty()) // C3
    return emitOpError("expects a result");
  SmallVector<Type> captures(getCaptures().getTypes());
  for (auto [name, region] : {std::pair<StringRef, Region &>("then_region", getThenRegion()),
                              std::pair<StringRef, Region &>("else_region", getElseRegion())})
    if (failed(checkArguments(*this, name, region, captures)) ||            // C1
        failed(checkYielded(*this, name, region, getResults().getTypes()))) // C2
      return failure();
  return success();
}

void IfOp::getSuccessorRegions(RegionBranchPoint point, SmallVectorImpl<RegionSuccessor> &regions) {
  if (!point.isParent()) {
    regions.emplace_back(getOperation(), getResults());
    return;
  }
  regions.emplace_back(&getThenRegion(), getThenRegion().getArguments());
  regions.emplace_back(&getElseRegion(), getElseRegion().getArguments());
}

OperandRange IfOp::getEntrySuccessorOperands(RegionSuccessor) { return getCaptures(); }

//===----------------------------------------------------------------------===//
// While
//===----------------------------------------------------------------------===//

LogicalResult WhileOp::verify() {
  if (getInits().empty()) // C4
    return emitOpError("expects a carried value");
  if (std::optional<int64_t> limit = getLimit(); limit && *limit < 0) // C5
    return emitOpError() << "expects 'limit' not to be negative, but got " << *limit;
  SmallVector<Type> types = joined({getInits().getTypes(), getCaptures().getTypes()});
  if (failed(checkArguments(*this, "cond", getCond(), types)) || // C1
      failed(checkArguments(*this, "body", getBody(), types)))
    return failure();
  FailureOr<ConditionOp> condition = terminator<ConditionOp>(*this, "cond", getCond());
  if (failed(condition))
    return failure();
  if (!llvm::equal(condition->getValues(),
                   getCond().getArguments().take_front(getInits().size()))) // C2
    return emitOpError("expects region 'cond' to forward its carried arguments, in their order");
  if (!llvm::equal(getResults().getTypes(), getInits().getTypes())) // C3
    return emitOpError() << "expects results (" << getInits().getTypes() << "), but got ("
                         << getResults().getTypes() << ")";
  return checkYielded(*this, "body", getBody(), getInits().getTypes()); // C3
}

void WhileOp::getSuccessorRegions(RegionBranchPoint point,
                                  SmallVectorImpl<RegionSuccessor> &regions) {
  auto carried = [&](Region &region) {
    regions.emplace_back(&region, region.getArguments().take_front(getInits().size()));
  };
  Operation *from = point.getTerminatorPredecessorOrNull();
  if (!isa_and_nonnull<ConditionOp>(from))
    return carried(getCond());
  carried(getBody());
  regions.emplace_back(getOperation(), getResults());
}

OperandRange WhileOp::getEntrySuccessorOperands(RegionSuccessor) { return getInits(); }

MutableOperandRange ConditionOp::getMutableSuccessorOperands(RegionSuccessor) {
  return getValuesMutable();
}

//===----------------------------------------------------------------------===//
// Scan
//===----------------------------------------------------------------------===//

static RankedTensorType tensorOf(Type type) { return cast<RankedTensorType>(type); }

int64_t ScanOp::getSteps() {
  int64_t steps = getLength() ? int64_t(*getLength()) : ShapedType::kDynamic;
  for (Type x : getXs().getTypes())
    if (ShapedType::isDynamic(steps))
      steps = tensorOf(x).getDimSize(0);
  return steps;
}

/// A value with a further first dimension.
static Type stacked(Type entry, int64_t steps) {
  RankedTensorType type = tensorOf(entry);
  SmallVector<int64_t> shape = {steps};
  llvm::append_range(shape, type.getShape());
  return RankedTensorType::get(shape, type.getElementType());
}

LogicalResult ScanOp::verify() {
  if (getResults().empty()) // C6
    return emitOpError("expects a result");
  std::optional<int64_t> length = getLength();
  if (length && *length < 0) // C5
    return emitOpError() << "expects 'length' not to be negative, but got " << *length;
  if (!length && getXs().empty()) // C5
    return emitOpError("expects 'length' or one of 'xs'");
  std::optional<int64_t> checkpoints = getCheckpoints();
  if (checkpoints &&
      (*checkpoints < 1 || (ShapedType::isStatic(getSteps()) && *checkpoints > getSteps()))) // C7
    return emitOpError() << "expects 'checkpoints' to be from 1 to the number of steps, "
                         << sizeText(getSteps()) << ", but got " << *checkpoints;
  SmallVector<Type> entries;
  int64_t steps = getXs().empty() || tensorOf(getXs()[0].getType()).getRank() == 0
                      ? ShapedType::kDynamic
                      : getSteps();
  for (Type x : getXs().getTypes()) { // C4
    RankedTensorType type = tensorOf(x);
    if (type.getRank() == 0)
      return emitOpError() << "expects each of 'xs' to have a first dimension, but got " << type;
    if (!sizesAgree(type.getDimSize(0), steps))
      return emitOpError() << "expects each of 'xs' to have " << steps << " entries, but got "
                           << type;
    entries.push_back(RankedTensorType::get(type.getShape().drop_front(), type.getElementType()));
  }
  TypeRange inits = getInits().getTypes();
  if (failed(checkArguments(*this, "body", getBody(),
                            joined({inits, entries, getCaptures().getTypes()})))) // C1
    return failure();
  FailureOr<YieldOp> yield = terminator<YieldOp>(*this, "body", getBody());
  if (failed(yield))
    return failure();
  SmallVector<Type> yielded(yield->getValues().getTypes());
  if (yielded.size() < inits.size() ||
      !llvm::equal(ArrayRef(yielded).take_front(inits.size()), inits)) // C2
    return emitOpError() << "expects region 'body' to yield (" << inits
                         << ") and what is stacked, but got (" << yielded << ")";
  SmallVector<Type> expected(inits);
  for (Type entry : ArrayRef(yielded).drop_front(inits.size()))
    expected.push_back(stacked(entry, getSteps()));
  if (!llvm::equal(getResults().getTypes(), expected)) // C3
    return emitOpError() << "expects results (" << expected << "), but got ("
                         << getResults().getTypes() << ")";
  return success();
}

void ScanOp::getSuccessorRegions(RegionBranchPoint, SmallVectorImpl<RegionSuccessor> &regions) {
  size_t carried = getInits().size();
  regions.emplace_back(&getBody(), getBody().getArguments().take_front(carried));
  regions.emplace_back(getOperation(), getResults().take_front(carried));
}

OperandRange ScanOp::getEntrySuccessorOperands(RegionSuccessor) { return getInits(); }

//===----------------------------------------------------------------------===//
// CustomFn
//===----------------------------------------------------------------------===//

LogicalResult CustomFnOp::verify() {
  if (getResults().empty()) // C5
    return emitOpError("expects a result");
  TypeRange inputs = getInputs().getTypes(), outputs = getResults().getTypes();
  if (failed(checkArguments(*this, "function", getFunction(), joined({inputs}))) || // C1
      failed(checkYielded(*this, "function", getFunction(), outputs)))              // C2
    return failure();
  if (!getVjp().empty() && // C3
      (failed(checkArguments(*this, "vjp", getVjp(), joined({inputs, outputs, outputs}))) ||
       failed(checkYielded(*this, "vjp", getVjp(), inputs))))
    return failure();
  if (!getJvp().empty() && // C4
      (failed(checkArguments(*this, "jvp", getJvp(), joined({inputs, inputs}))) ||
       failed(checkYielded(*this, "jvp", getJvp(), outputs))))
    return failure();
  return success();
}

void CustomFnOp::getSuccessorRegions(RegionBranchPoint point,
                                     SmallVectorImpl<RegionSuccessor> &regions) {
  if (point.isParent())
    regions.emplace_back(&getFunction(), getFunction().getArguments());
  else if (point.getTerminatorPredecessorOrNull()->getParentRegion() == &getFunction())
    regions.emplace_back(getOperation(), getResults()); // nothing comes after a gradient
}

OperandRange CustomFnOp::getEntrySuccessorOperands(RegionSuccessor) { return getInputs(); }

//===----------------------------------------------------------------------===//
// Yield
//===----------------------------------------------------------------------===//

MutableOperandRange YieldOp::getMutableSuccessorOperands(RegionSuccessor) {
  // What is stacked goes to no region, and to a part of a result.
  if (auto scan = dyn_cast<ScanOp>((*this)->getParentOp()))
    return getValuesMutable().slice(0, scan.getInits().size());
  return getValuesMutable();
}

//===----------------------------------------------------------------------===//
// EntryView
//===----------------------------------------------------------------------===//

LogicalResult EntryViewOp::verify() {
  auto sequence = cast<MemRefType>(getSequence().getType());
  auto entry = cast<MemRefType>(getEntry().getType());
  if (sequence.getRank() == 0) // C1
    return emitOpError() << "expects a sequence with a first dimension, but got " << sequence;
  if (entry.getElementType() != sequence.getElementType() ||
      entry.getShape() != sequence.getShape().drop_front()) // C2
    return emitOpError() << "expects an entry with the elements and the sizes of " << sequence
                         << " without its first one, but got " << entry;
  for (MemRefType type : {sequence, entry}) // C3
    if (!type.getLayout().isIdentity())
      return emitOpError() << "expects elements that lie one after the other, but got " << type;
  return success();
}
