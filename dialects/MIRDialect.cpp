// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The MIR dialect: registration, packed weights, and the attributes of functions.

#include "dialects/MIR.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Transforms/InliningUtils.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/ConvertUTF.h"

using namespace mlir;
using namespace rlx::mir;

#include "dialects/MIRDialect.cpp.inc"
#include "dialects/MIREnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/MIRAttrs.cpp.inc"

namespace {
/// Functions of this dialect's operations may be inlined: no operation depends on where it stands.
struct InliningRules final : DialectInlinerInterface {
  using DialectInlinerInterface::DialectInlinerInterface;
  bool isLegalToInline(Operation *, Region *, bool, IRMapping &) const override { return true; }
};
} // namespace

void MIRDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/MIRAttrs.cpp.inc"
      >();
  registerMIRDialectOperations(this);
  addInterfaces<InliningRules>();
}

Operation *MIRDialect::materializeConstant(OpBuilder &builder, Attribute value, Type type,
                                           Location loc) {
  auto elements = dyn_cast<ElementsAttr>(value);
  return elements ? ConstantOp::create(builder, loc, type, elements) : nullptr;
}

//===----------------------------------------------------------------------===//
// PackedAttr
//===----------------------------------------------------------------------===//

namespace {
struct BlockSize {
  int64_t length, bytes;
};
} // namespace

/// Elements and bytes of one block of one row, as GGUF stores them.
static BlockSize blockSize(Scheme scheme) {
  switch (scheme) {
  case Scheme::F32:
    return {1, 4};
  case Scheme::F16:
  case Scheme::BF16:
    return {1, 2};
  case Scheme::Q4_0:
    return {32, 18};
  case Scheme::Q4_1:
    return {32, 20};
  case Scheme::Q5_0:
    return {32, 22};
  case Scheme::Q5_1:
    return {32, 24};
  case Scheme::Q8_0:
    return {32, 34};
  case Scheme::Q2_K:
    return {256, 84};
  case Scheme::Q3_K:
    return {256, 110};
  case Scheme::Q4_K:
    return {256, 144};
  case Scheme::Q5_K:
    return {256, 176};
  case Scheme::Q6_K:
    return {256, 210};
  case Scheme::Q8_K:
    return {256, 292};
  }
  llvm_unreachable("every scheme has a block size");
}

/// Bytes that a block takes in a panel, for each of the panel's rows; 0 where the scheme has no
/// panels. Integers that scale sub-blocks take a byte there, unless scale and minimum share one.
static int64_t panelBlockBytes(Scheme scheme) {
  switch (scheme) {
  case Scheme::Q3_K:
    return 114;
  case Scheme::Q4_K:
    return 148;
  case Scheme::Q5_K:
    return 180;
  case Scheme::Q8_K:
    return 0;
  default:
    return blockSize(scheme).bytes;
  }
}

static constexpr int64_t panelRows = 16;

int64_t PackedAttr::getRowBytes() const {
  BlockSize block = blockSize(getScheme());
  return getK() / block.length * block.bytes;
}

SmallVector<int64_t> PackedAttr::getPanelShape() const {
  return {int64_t(llvm::divideCeil(getN(), panelRows)),
          getK() / getBlockLength() * panelBlockBytes(getScheme()) * panelRows};
}

int64_t PackedAttr::getBlockLength() const { return blockSize(getScheme()).length; }
int64_t PackedAttr::getBlockBytes() const { return blockSize(getScheme()).bytes; }

Attribute PackedAttr::parse(AsmParser &parser, Type) {
  FailureOr<Scheme> scheme;
  FailureOr<Layout> layout = Layout::Rows;
  int64_t k = 0, n = 0;
  if (parser.parseLess() || failed(scheme = FieldParser<Scheme>::parse(parser)))
    return {};
  while (succeeded(parser.parseOptionalComma())) {
    StringRef word;
    SMLoc loc = parser.getCurrentLocation();
    if (parser.parseKeyword(&word) || parser.parseEqual())
      return {};
    if (word == "k" || word == "n") {
      if (parser.parseInteger(word == "k" ? k : n))
        return {};
    } else if (word == "layout") {
      if (failed(layout = FieldParser<Layout>::parse(parser)))
        return {};
    } else {
      parser.emitError(loc, "expected 'k', 'n' or 'layout', but got '") << word << "'";
      return {};
    }
  }
  if (parser.parseGreater())
    return {};
  return parser.getChecked<PackedAttr>(parser.getContext(), *scheme, k, n, *layout);
}

void PackedAttr::print(AsmPrinter &printer) const {
  printer << "<" << stringifyScheme(getScheme()) << ", k = " << getK();
  if (getN())
    printer << ", n = " << getN();
  if (getLayout() != Layout::Rows)
    printer << ", layout = " << stringifyLayout(getLayout());
  printer << ">";
}

LogicalResult PackedAttr::verify(function_ref<InFlightDiagnostic()> emitError, Scheme scheme,
                                 int64_t k, int64_t n, Layout layout) {
  BlockSize block = blockSize(scheme);
  if (k <= 0 || k % block.length != 0) // C1
    return emitError() << "expects 'k' to be a positive multiple of the block length of "
                       << stringifyScheme(scheme) << ", " << block.length << ", but got " << k;
  if (k > INT32_MAX || n > INT32_MAX) // C5
    return emitError() << "expects 'k' and 'n' below 2^31, but got " << k << " and " << n;
  bool panels = layout == Layout::Panels;
  if (panels != (n > 0)) // C3
    return emitError() << "expects a positive 'n' exactly with 'layout = panels', but 'n' is " << n
                       << " and 'layout' is " << stringifyLayout(layout);
  if (panels && !panelBlockBytes(scheme)) // C4
    return emitError() << "expects 'layout = rows' for " << stringifyScheme(scheme)
                       << ", which has no panels";
  return success();
}

LogicalResult PackedAttr::verifyEncoding(ArrayRef<int64_t> shape, Type elementType,
                                         function_ref<InFlightDiagnostic()> emitError) const {
  bool panels = getLayout() == Layout::Panels;
  int64_t bytes = panels ? getPanelShape()[1] : getRowBytes();
  if (!elementType.isSignlessInteger(8) || shape.size() != 2 || shape[1] != bytes) // C2
    return emitError() << "expects a packed weight with k = " << getK() << " of "
                       << stringifyScheme(getScheme()) << " to be a tensor of [rows, " << bytes
                       << "] x i8";
  if (panels && shape[0] != getPanelShape()[0]) // C3
    return emitError() << "expects " << getPanelShape()[0] << " panels for n = " << getN()
                       << ", but got " << shape[0];
  return success();
}

//===----------------------------------------------------------------------===//
// Attributes of functions
//===----------------------------------------------------------------------===//

/// Whether a string is UTF-8: names go to Python, which has no other ones.
static bool isUnicode(StringAttr text) {
  const llvm::UTF8 *begin = text.getValue().bytes_begin();
  return llvm::isLegalUTF8String(&begin, text.getValue().bytes_end());
}

static LogicalResult verifyValueAttribute(Operation *op, NamedAttribute attribute, Type type,
                                          StringRef what, unsigned index) {
  StringRef name = attribute.getName();
  auto error = [&] { return op->emitError() << what << " " << index << ": "; };
  if (name == "mir.name") {
    auto text = dyn_cast<StringAttr>(attribute.getValue());
    if (!text || text.empty())
      return error() << "expects 'mir.name' to be a non-empty string, but got "
                     << attribute.getValue();
    if (!isUnicode(text))
      return error() << "expects 'mir.name' to be UTF-8, but got " << text;
    return success();
  }
  if (name == "mir.dims") {
    auto words = dyn_cast<ArrayAttr>(attribute.getValue());
    auto shaped = dyn_cast<ShapedType>(type);
    if (!words || !shaped || !shaped.hasRank() || int64_t(words.size()) != shaped.getRank())
      return error() << "expects 'mir.dims' to hold one string for each dimension of " << type
                     << ", but got " << attribute.getValue();
    for (auto [dim, word] : llvm::enumerate(words)) {
      auto text = dyn_cast<StringAttr>(word);
      if (!text || text.empty() != !shaped.isDynamicDim(dim) || !isUnicode(text))
        return error() << "expects 'mir.dims' to name exactly the dynamic dimensions of " << type
                       << ", but dimension " << dim << " has " << word;
    }
    return success();
  }
  if (name == "mir.kind" && what == "argument") {
    auto text = dyn_cast<StringAttr>(attribute.getValue());
    if (!text || !llvm::is_contained({"input", "param", "output"}, text.getValue()))
      return error() << "expects 'mir.kind' to be \"input\", \"param\" or \"output\", but got "
                     << attribute.getValue();
    return success();
  }
  if (name == "mir.tied" && what == "argument") {
    auto text = dyn_cast<StringAttr>(attribute.getValue());
    if (!text || text.empty())
      return error() << "expects 'mir.tied' to be the name of an input, but got "
                     << attribute.getValue();
    return success();
  }
  return error() << "has no attribute '" << name << "'";
}

LogicalResult MIRDialect::verifyRegionArgAttribute(Operation *op, unsigned, unsigned arg,
                                                   NamedAttribute attribute) {
  auto function = dyn_cast<FunctionOpInterface>(op);
  if (!function)
    return op->emitError() << "expects '" << attribute.getName() << "' on a function's argument";
  return verifyValueAttribute(op, attribute, function.getArgumentTypes()[arg], "argument", arg);
}

LogicalResult MIRDialect::verifyRegionResultAttribute(Operation *op, unsigned, unsigned result,
                                                      NamedAttribute attribute) {
  auto function = dyn_cast<FunctionOpInterface>(op);
  if (!function)
    return op->emitError() << "expects '" << attribute.getName() << "' on a function's result";
  return verifyValueAttribute(op, attribute, function.getResultTypes()[result], "result", result);
}
