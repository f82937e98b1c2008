// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Files that this library opens: bundles of models, and artefacts.
#ifndef RLX_RUNTIME_LIBRARY_BUNDLE_H
#define RLX_RUNTIME_LIBRARY_BUNDLE_H

#include "runtime/c/model.h"
#include "text.h"

#include <cstdint>
#include <memory>
#include <string>

namespace rlx::runtime::library {

/// What is known of an opened file beside its functions.
struct FileInfo {
  std::string level;                // that the code is for; empty of an artefact
  std::string kind;                 // "decoder", "encoder", or empty of an artefact
  int64_t context = 0, chunk = 0;   // of a decoder: positions, and tokens of a prompt at once
  std::unique_ptr<const Text> text; // of a decoder; null of everything else
};

/// An opened file as handles have it.
class OpenedModel : public c::Model {
public:
  template <typename... Given>
  explicit OpenedModel(FileInfo info, Given &&...given)
      : c::Model(std::forward<Given>(given)...), info(std::move(info)) {}

  const FileInfo info;
};

/// Opens a file.
///
/// \param level the one that code is taken for; empty for the best that this machine has.
/// \param threads of one run; 0 for as many as the process may use.
///
/// Throws ExecutionError, which names the file, where it can't be read, is damaged, of another
/// version or for other machines; InputError where another level or number of threads is asked for
/// than there can be.
std::unique_ptr<OpenedModel> openModel(const std::string &path, const std::string &level,
                                       int threads);

/// Reads all of a file, weights too, and throws ExecutionError where a part doesn't have its
/// digest.
void verifyFile(const std::string &path);

} // namespace rlx::runtime::library

#endif // RLX_RUNTIME_LIBRARY_BUNDLE_H
