// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The MIR dialect: registration, packed weights, and the attributes of functions.

#include "dialects/MIR.h"
#include "dialects/MIRFormats.h"

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

/// The format of a name that the attribute's verifier has found.
static BlockFormat knownFormat(StringRef scheme) {
  std::optional<BlockFormat> format = findBlockFormat(scheme);
  assert(format && "formats stay registered");
  return *format;
}

static constexpr int64_t panelRows = 16;

int64_t PackedAttr::getRowBytes() const {
  BlockFormat format = knownFormat(getScheme());
  return getK() / format.length * format.bytes;
}

SmallVector<int64_t> PackedAttr::getPanelShape() const {
  BlockFormat format = knownFormat(getScheme());
  return {int64_t(llvm::divideCeil(getN(), panelRows)),
          getK() / format.length * format.panelBytes * panelRows};
}

int64_t PackedAttr::getPlaneBytes() const { return knownFormat(getScheme()).getPlaneBytes(getK()); }

int64_t PackedAttr::getBlockLength() const { return knownFormat(getScheme()).length; }
int64_t PackedAttr::getBlockBytes() const { return knownFormat(getScheme()).bytes; }
bool PackedAttr::hasIntegers() const { return knownFormat(getScheme()).integers; }

Attribute PackedAttr::parse(AsmParser &parser, Type) {
  StringRef scheme;
  FailureOr<Layout> layout = Layout::Rows;
  int64_t k = 0, n = 0;
  if (parser.parseLess() || parser.parseKeyword(&scheme))
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
  return parser.getChecked<PackedAttr>(parser.getContext(), scheme, k, n, *layout);
}

void PackedAttr::print(AsmPrinter &printer) const {
  printer << "<" << getScheme() << ", k = " << getK();
  if (getN())
    printer << ", n = " << getN();
  if (getLayout() != Layout::Rows)
    printer << ", layout = " << stringifyLayout(getLayout());
  printer << ">";
}

LogicalResult PackedAttr::verify(function_ref<InFlightDiagnostic()> emitError, StringRef scheme,
                                 int64_t k, int64_t n, Layout layout) {
  std::optional<BlockFormat> format = findBlockFormat(scheme);
  if (!format) // C6
    return emitError() << "unknown weight format '" << scheme << "', known are "
                       << blockFormatNames();
  if (k <= 0 || k % format->length != 0) // C1
    return emitError() << "expects 'k' to be a positive multiple of the block length of " << scheme
                       << ", " << format->length << ", but got " << k;
  if (k > INT32_MAX || n > INT32_MAX) // C5
    return emitError() << "expects 'k' and 'n' below 2^31, but got " << k << " and " << n;
  bool panels = layout == Layout::Panels;
  if (panels != (n > 0)) // C3
    return emitError() << "expects a positive 'n' exactly with 'layout = panels', but 'n' is " << n
                       << " and 'layout' is " << stringifyLayout(layout);
  if (panels && !format->panelBytes) // C4
    return emitError() << "expects 'layout = rows' for " << scheme << ", which has no panels";
  if (layout == Layout::Planes && format->planes.empty()) // C4
    return emitError() << "expects 'layout = rows' for " << scheme << ", which has no planes";
  return success();
}

LogicalResult PackedAttr::verifyEncoding(ArrayRef<int64_t> shape, Type elementType,
                                         function_ref<InFlightDiagnostic()> emitError) const {
  bool panels = getLayout() == Layout::Panels;
  int64_t bytes = panels                          ? getPanelShape()[1]
                  : getLayout() == Layout::Planes ? getPlaneBytes()
                                                  : getRowBytes();
  if (!elementType.isSignlessInteger(8) || shape.size() != 2 || shape[1] != bytes) // C2
    return emitError() << "expects a packed weight with k = " << getK() << " of " << getScheme()
                       << " to be a tensor of [rows, " << bytes << "] x i8";
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
