// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sizes that may be dynamic, and the custom directives of the assembly.

#include "dialects/MIRShape.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;

std::string rlx::mir::sizeText(int64_t size) {
  return ShapedType::isDynamic(size) ? "?" : std::to_string(size);
}

std::string rlx::mir::shapeText(ArrayRef<int64_t> shape) {
  return "[" + llvm::join(llvm::map_range(shape, sizeText), ", ") + "]";
}

bool rlx::mir::sizesAgree(int64_t lhs, int64_t rhs) {
  return lhs == rhs || ShapedType::isDynamic(lhs) || ShapedType::isDynamic(rhs);
}

FailureOr<int64_t> rlx::mir::joinSizes(int64_t lhs, int64_t rhs) {
  if (!sizesAgree(lhs, rhs))
    return failure();
  return ShapedType::isDynamic(lhs) ? rhs : lhs;
}

FailureOr<SmallVector<int64_t>> rlx::mir::joinShapes(ArrayRef<int64_t> lhs, ArrayRef<int64_t> rhs) {
  if (!llvm::equal(lhs, rhs, sizesAgree))
    return failure();
  return SmallVector<int64_t>(llvm::map_range(llvm::zip_equal(lhs, rhs), [](auto pair) {
    return *joinSizes(std::get<0>(pair), std::get<1>(pair));
  }));
}

FailureOr<SmallVector<int64_t>> rlx::mir::broadcastShapes(ArrayRef<int64_t> lhs,
                                                          ArrayRef<int64_t> rhs) {
  if (lhs.size() < rhs.size())
    std::swap(lhs, rhs);
  SmallVector<int64_t> result(lhs);
  MutableArrayRef<int64_t> tail = MutableArrayRef(result).take_back(rhs.size());
  for (auto [size, other] : llvm::zip_equal(tail, rhs)) {
    if (other == 1)
      continue;
    if (size == 1) {
      size = other;
      continue;
    }
    FailureOr<int64_t> joined = joinSizes(size, other);
    if (failed(joined))
      return failure();
    size = *joined;
  }
  return result;
}

bool rlx::mir::broadcastsTo(ArrayRef<int64_t> shape, ArrayRef<int64_t> target) {
  return shape.size() <= target.size() &&
         llvm::all_of(llvm::zip_equal(shape, target.take_back(shape.size())), [](auto pair) {
           auto [size, wanted] = pair;
           return size == 1 || sizesAgree(size, wanted);
         });
}

std::optional<int64_t> rlx::mir::axisFromFront(int64_t axis, int64_t rank) {
  if (axis < -rank || axis >= rank)
    return std::nullopt;
  return axis < 0 ? axis + rank : axis;
}

FailureOr<RankedTensorType> rlx::mir::tensorType(std::optional<Location> location, StringRef op,
                                                 StringRef operand, Type type) {
  if (auto tensor = dyn_cast<RankedTensorType>(type))
    return tensor;
  return inferError(location, op, "expects '", operand, "' to be a ranked tensor, but got ", type);
}

LogicalResult rlx::mir::requireAttributes(std::optional<Location> location, StringRef op,
                                          ArrayRef<std::pair<StringRef, Attribute>> attributes) {
  for (auto [name, attribute] : attributes)
    if (!attribute)
      return inferError(location, op, "expects attribute '", name, "'");
  return success();
}

Type rlx::mir::getBlockType(Type quantized, BlockField field) {
  MLIRContext *context = quantized.getContext();
  Type element =
      field == BlockField::Scale ? Type(Float32Type::get(context)) : IntegerType::get(context, 32);
  auto tensor = dyn_cast<RankedTensorType>(quantized);
  if (!tensor || tensor.getRank() == 0) // Never the type of an operand; the parser wants some type.
    return element;
  SmallVector<int64_t> shape(tensor.getShape());
  if (ShapedType::isStatic(shape.back()))
    shape.back() /= 32;
  return RankedTensorType::get(shape, element);
}

ParseResult rlx::mir::parseSharedType(OpAsmParser &parser, Type &lhs, Type &rhs) {
  if (parser.parseType(lhs))
    return failure();
  rhs = lhs;
  return succeeded(parser.parseOptionalComma()) ? parser.parseType(rhs) : success();
}

void rlx::mir::printSharedType(OpAsmPrinter &printer, Operation *, Type lhs, Type rhs) {
  printer << lhs;
  if (lhs != rhs)
    printer << ", " << rhs;
}

ParseResult rlx::mir::parseFloats(OpAsmParser &parser, ArrayAttr &numbers) {
  Builder builder(parser.getContext());
  SmallVector<Attribute> entries;
  auto parseEntry = [&]() -> ParseResult {
    FloatAttr entry;
    if (parser.parseAttribute(entry, builder.getF32Type()))
      return failure();
    entries.push_back(entry);
    return success();
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseEntry))
    return failure();
  numbers = builder.getArrayAttr(entries);
  return success();
}

void rlx::mir::printFloats(OpAsmPrinter &printer, Operation *, ArrayAttr numbers) {
  printer << '[';
  llvm::interleaveComma(numbers, printer,
                        [&](Attribute entry) { printer.printAttributeWithoutType(entry); });
  printer << ']';
}
