// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sizes that are computed of the dimensions of other values: how operations write them, and what
// they are where these dimensions are static.

#ifndef RLX_DIALECTS_MIRSIZES_H
#define RLX_DIALECTS_MIRSIZES_H

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/ValueRange.h"

#include <optional>
#include <string>

namespace rlx::mir {

/// The number of a size, or that it is dynamic.
using KnownSize = std::optional<int64_t>;

/// What text of a size gives, `d0`, `d1`, ... being `dims`; failure says in `error` what is wrong
/// with the text.
llvm::FailureOr<KnownSize> evaluateSize(llvm::StringRef text, llvm::ArrayRef<int64_t> dims,
                                        std::string &error);

/// The sizes of dimensions that an operation lists in `like` and `like_dims`; an error where these
/// don't fit each other.
llvm::FailureOr<llvm::SmallVector<int64_t>> likeSizes(std::optional<mlir::Location> location,
                                                      llvm::StringRef op, mlir::ValueRange like,
                                                      mlir::DenseI64ArrayAttr likeDims);

/// What an attribute, a number or text, gives; an error that names it where it is neither.
llvm::FailureOr<KnownSize> sizeOf(std::optional<mlir::Location> location, llvm::StringRef op,
                                  llvm::StringRef name, mlir::Attribute size,
                                  llvm::ArrayRef<int64_t> dims);

/// The number of an attribute, a number or text; null where it is neither, or follows from a
/// dynamic size.
mlir::IntegerAttr knownSize(mlir::Attribute size, llvm::ArrayRef<int64_t> dims);

/// Whether sizes are numbers, whatever they are computed of.
bool areKnown(llvm::ArrayRef<int64_t> dims);

/// A number, or text in quotes.
mlir::ParseResult parseSizeOrNumber(mlir::OpAsmParser &parser, mlir::Attribute &size);
void printSizeOrNumber(mlir::OpAsmPrinter &printer, mlir::Operation *op, mlir::Attribute size);

} // namespace rlx::mir

#endif // RLX_DIALECTS_MIRSIZES_H
