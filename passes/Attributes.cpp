// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The dialects' attributes that Python reads and builds by their parameters.

#include "passes/Bridge.h"

#include "dialects/MIR.h"

#include "mlir/CAPI/IR.h"
#include "mlir/CAPI/Support.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Location.h"

using namespace mlir;
using rlx::mir::PackedAttr;

bool rlx::isPacked(MlirAttribute attribute) { return isa<PackedAttr>(unwrap(attribute)); }

MlirTypeID rlx::packedTypeID() { return wrap(PackedAttr::getTypeID()); }

rlx::Packed rlx::readPacked(MlirAttribute attribute) {
  auto packed = cast<PackedAttr>(unwrap(attribute));
  return {packed.getScheme().str(), packed.getK(), packed.getN(),
          mir::stringifyLayout(packed.getLayout()).str()};
}

MlirAttribute rlx::makePacked(MlirContext context, const Packed &packed, std::string &error) {
  std::optional<mir::Layout> layout = mir::symbolizeLayout(packed.layout);
  if (!layout) {
    error = "unknown layout '" + packed.layout + "', known are";
    for (uint64_t value = 0; value <= mir::getMaxEnumValForLayout(); ++value)
      error += (value ? ", " : " ") + mir::stringifyLayout(mir::Layout(value)).str();
    return {};
  }
  MLIRContext *own = unwrap(context);
  ScopedDiagnosticHandler handler(own, [&](mlir::Diagnostic &diagnostic) {
    error = diagnostic.str();
    return success();
  });
  auto emitError = [&] { return mlir::emitError(UnknownLoc::get(own)); };
  StringRef scheme = packed.scheme;
  return wrap(PackedAttr::getChecked(emitError, own, scheme, packed.k, packed.n, *layout));
}
