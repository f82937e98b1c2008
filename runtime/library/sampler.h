// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Choosing of the next token: what `rlx_mlir.models.sampling` does, with the same random numbers.
#ifndef RLX_RUNTIME_LIBRARY_SAMPLER_H
#define RLX_RUNTIME_LIBRARY_SAMPLER_H

#include "include/rlx/runtime.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rlx::runtime::library {

/// Numpy's default generator of random numbers: PCG64, seeded by `SeedSequence`.
class RandomNumbers {
public:
  explicit RandomNumbers(uint64_t seed);
  /// The next number of f64 in [0, 1).
  double next();

private:
  using Wide = unsigned __int128;
  void step();
  Wide state = 0, increment = 0;
};

class Sampler {
public:
  /// Chooses the likeliest token.
  Sampler() : Sampler(rlx_sampling{0, 0, 1, 0, 0}) {}
  /// Throws InputError for a parameter out of range.
  explicit Sampler(const rlx_sampling &given);

  /// One of `count` ids, of which there is one at least, by their logits, which are finite.
  int32_t choose(const float *logits, size_t count);

private:
  /// An id, its logit, and how likely it is.
  struct Choice {
    int32_t id;
    double logit, weight;
  };
  std::vector<Choice> candidates(const float *logits, size_t count) const;

  rlx_sampling parameters;
  RandomNumbers random;
};

} // namespace rlx::runtime::library

#endif // RLX_RUNTIME_LIBRARY_SAMPLER_H
