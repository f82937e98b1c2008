// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sizes that are computed of the dimensions of other values.

#include "dialects/MIRSizes.h"

#include "dialects/MIRShape.h"

#include "mlir/IR/Builders.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <limits>

using namespace mlir;
using namespace rlx::mir;

namespace {

/// Longest text of a size, and how deep it is nested: what reads it further multiplies sums out.
constexpr size_t kLongest = 1024;
constexpr unsigned kDeepest = 64;

enum class Function { FloorDiv, CeilDiv, Mod, Min, Max };

/// Reads the text of one size. A part is its number, or nothing where it is dynamic or there was an
/// error, which ends everything.
class SizeReader {
public:
  SizeReader(StringRef text, ArrayRef<int64_t> dims) : text(text), rest(text), dims(dims) {}

  KnownSize read() {
    if (text.size() > kLongest)
      return fail("is longer than " + std::to_string(kLongest) + " characters");
    KnownSize size = readSum();
    if (error.empty() && !peek().empty())
      return fail("has '" + peek().str() + "' where it should end or go on with + or -");
    return size;
  }

  std::string error;

private:
  KnownSize fail(const std::string &what) {
    if (error.empty())
      error = "'" + text.take_front(100).str() + "' " + what;
    rest = "";
    return std::nullopt;
  }

  /// The next word, number or sign; empty at the end.
  StringRef peek() {
    rest = rest.ltrim();
    if (rest.empty())
      return rest;
    const size_t length = llvm::isAlnum(rest.front()) ? rest.find_if_not(llvm::isAlnum) : 1;
    return rest.take_front(length);
  }

  bool takeIf(StringRef word) {
    if (peek() != word)
      return false;
    rest = rest.drop_front(word.size());
    return true;
  }

  void take(StringRef word) {
    if (error.empty() && !takeIf(word))
      fail("has '" + peek().str() + "' where '" + word.str() + "' should be");
  }

  using Checked = bool (*)(int64_t, int64_t, int64_t &);

  KnownSize combine(Checked overflows, KnownSize lhs, KnownSize rhs) {
    int64_t result = 0;
    if (!lhs || !rhs)
      return std::nullopt;
    // The least integer stands for dynamic sizes.
    if (overflows(*lhs, *rhs, result) || ShapedType::isDynamic(result))
      return fail("isn't within 64 bits");
    return result;
  }

  static bool add(int64_t lhs, int64_t rhs, int64_t &result) {
    return llvm::AddOverflow(lhs, rhs, result);
  }
  static bool subtract(int64_t lhs, int64_t rhs, int64_t &result) {
    return llvm::SubOverflow(lhs, rhs, result);
  }
  static bool multiply(int64_t lhs, int64_t rhs, int64_t &result) {
    return llvm::MulOverflow(lhs, rhs, result);
  }

  KnownSize readSum() {
    if (++depth > kDeepest)
      return fail("is nested more than " + std::to_string(kDeepest) + " deep");
    KnownSize total = readProduct();
    while (error.empty()) {
      if (takeIf("+"))
        total = combine(add, total, readProduct());
      else if (takeIf("-"))
        total = combine(subtract, total, readProduct());
      else
        break;
    }
    --depth;
    return total;
  }

  KnownSize readProduct() {
    int64_t sign = 1;
    while (takeIf("-"))
      sign = -sign;
    KnownSize total = combine(multiply, sign, readValue());
    while (error.empty() && takeIf("*"))
      total = combine(multiply, total, readValue());
    return total;
  }

  KnownSize readValue() {
    if (takeIf("(")) {
      KnownSize size = readSum();
      take(")");
      return size;
    }
    const StringRef word = peek();
    rest = rest.drop_front(word.size());
    int64_t number = 0;
    if (!word.empty() && llvm::isDigit(word.front())) {
      if (word.getAsInteger(10, number))
        return fail("has '" + word.str() + "', which is no number of 64 bits");
      return number;
    }
    unsigned position = 0;
    StringRef digits = word;
    if (digits.consume_front("d") && (digits == "0" || !digits.starts_with("0")) &&
        !digits.getAsInteger(10, position)) {
      if (position >= dims.size())
        return fail("has '" + word.str() + "', but 'like_dims' lists " +
                    std::to_string(dims.size()) + " dimensions");
      if (ShapedType::isDynamic(dims[position]))
        return std::nullopt;
      return dims[position];
    }
    auto function = llvm::StringSwitch<std::optional<Function>>(word)
                        .Case("floordiv", Function::FloorDiv)
                        .Case("ceildiv", Function::CeilDiv)
                        .Case("mod", Function::Mod)
                        .Case("min", Function::Min)
                        .Case("max", Function::Max)
                        .Default(std::nullopt);
    if (!function)
      return fail("has '" + word.str() + "' where a number, 'd0', 'd1', ..., floordiv, ceildiv, " +
                  "mod, min or max should be");
    take("(");
    KnownSize size = readSum();
    take(",");
    return apply(*function, size);
  }

  /// The function of a size and what comes next.
  KnownSize apply(Function function, KnownSize size) {
    if (function == Function::Min || function == Function::Max) {
      KnownSize other = readSum();
      take(")");
      if (!size || !other)
        return std::nullopt;
      return function == Function::Min ? std::min(*size, *other) : std::max(*size, *other);
    }
    int64_t divisor = 0;
    const StringRef word = peek();
    if (error.empty() && (word.getAsInteger(10, divisor) || divisor <= 0))
      return fail("has '" + word.str() + "' where a positive number should be, which divides");
    rest = rest.drop_front(word.size());
    take(")");
    if (!size || !error.empty())
      return std::nullopt;
    const int64_t floor = llvm::divideFloorSigned(*size, divisor);
    if (function == Function::FloorDiv)
      return floor;
    return function == Function::CeilDiv ? llvm::divideCeilSigned(*size, divisor)
                                         : *size - floor * divisor;
  }

  StringRef text, rest;
  ArrayRef<int64_t> dims;
  unsigned depth = 0;
};

} // namespace

FailureOr<KnownSize> rlx::mir::evaluateSize(StringRef text, ArrayRef<int64_t> dims,
                                            std::string &error) {
  SizeReader reader(text, dims);
  KnownSize size = reader.read();
  if (reader.error.empty())
    return size;
  error = std::move(reader.error);
  return failure();
}

FailureOr<SmallVector<int64_t>> rlx::mir::likeSizes(std::optional<Location> location, StringRef op,
                                                    ValueRange like, DenseI64ArrayAttr likeDims) {
  ArrayRef<int64_t> listed = likeDims ? likeDims.asArrayRef() : ArrayRef<int64_t>();
  if (listed.size() != like.size() || (likeDims && like.empty()))
    return inferError(location, op, "expects 'like_dims' to have a dimension of each of the ",
                      like.size(), " values in 'like', but got ", shapeText(listed));
  SmallVector<int64_t> sizes;
  for (auto [value, dim] : llvm::zip_equal(like, listed)) {
    FailureOr<RankedTensorType> type = tensorType(location, op, "like", value.getType());
    if (failed(type))
      return failure();
    if (dim < 0 || dim >= type->getRank())
      return inferError(location, op, "expects 'like_dims' to have dimensions of 'like', but got ",
                        dim, " for ", *type);
    sizes.push_back(type->getDimSize(dim));
  }
  return sizes;
}

FailureOr<KnownSize> rlx::mir::sizeOf(std::optional<Location> location, StringRef op,
                                      StringRef name, Attribute size, ArrayRef<int64_t> dims) {
  if (auto number = dyn_cast<IntegerAttr>(size); number && number.getType().isInteger(64))
    return KnownSize(number.getInt());
  auto text = dyn_cast<StringAttr>(size);
  if (!text)
    return inferError(location, op, "expects '", name, "' to be a number or a size, but got ",
                      size);
  std::string error;
  FailureOr<KnownSize> found = evaluateSize(text.getValue(), dims, error);
  if (failed(found))
    return inferError(location, op, "expects '", name, "' to be a number or a size, but ", error);
  return found;
}

IntegerAttr rlx::mir::knownSize(Attribute size, ArrayRef<int64_t> dims) {
  std::string ignored;
  auto text = dyn_cast_or_null<StringAttr>(size);
  if (!text)
    return dyn_cast_or_null<IntegerAttr>(size);
  FailureOr<KnownSize> found = evaluateSize(text.getValue(), dims, ignored);
  return succeeded(found) && *found
             ? IntegerAttr::get(IntegerType::get(size.getContext(), 64), **found)
             : IntegerAttr();
}

bool rlx::mir::areKnown(ArrayRef<int64_t> dims) {
  return llvm::none_of(dims, ShapedType::isDynamic);
}

ParseResult rlx::mir::parseSizeOrNumber(OpAsmParser &parser, Attribute &size) {
  std::string text;
  if (succeeded(parser.parseOptionalString(&text))) {
    size = parser.getBuilder().getStringAttr(text);
    return success();
  }
  int64_t number = 0;
  if (parser.parseInteger(number))
    return failure();
  size = parser.getBuilder().getI64IntegerAttr(number);
  return success();
}

void rlx::mir::printSizeOrNumber(OpAsmPrinter &printer, Operation *, Attribute size) {
  if (auto number = dyn_cast<IntegerAttr>(size))
    printer << number.getInt();
  else
    printer << size;
}
