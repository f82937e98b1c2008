// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The network of ../c/make_mlp.py in C++: a handle that frees itself, and errors that are thrown.
//
//   python examples/c/make_mlp.py build/libmlp.so
//   c++ -std=c++17 -Ibuild examples/cpp/mlp.cpp build/libmlp.so -Wl,-rpath,'$ORIGIN' -o build/mlp
#include "mlp.h"

#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

namespace {

struct Free {
  void operator()(rlx_model *model) const { mlp_free(model); }
};
using Model = std::unique_ptr<rlx_model, Free>;

void check(rlx_status status, const rlx_model *model) {
  if (status != RLX_OK)
    throw std::runtime_error(mlp_error(model));
}

Model load(int threads) {
  const rlx_options options = {RLX_ABI_VERSION, threads, nullptr};
  rlx_model *model = nullptr;
  check(mlp_load(&options, &model), nullptr);
  return Model(model);
}

std::vector<float> forward(rlx_model *model, const std::vector<float> &x) {
  const int64_t rows = int64_t(x.size()) / MLP_FORWARD_INPUT_X_SIZE_1;
  std::vector<float> y(size_t(rows) * MLP_FORWARD_OUTPUT_Y_SIZE_1);
  check(mlp_forward(model, rows, x.data(), y.data()), model);
  return y;
}

} // namespace

int main() try {
  std::vector<float> x(3 * MLP_FORWARD_INPUT_X_SIZE_1);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = float(i % 7) / 8 - 0.25f;
  const std::vector<float> y = forward(load(1).get(), x);

  // A handle for each thread: they share the weights, and run at the same time.
  std::vector<std::vector<float>> others(2);
  std::vector<std::thread> threads;
  for (std::vector<float> &own : others)
    threads.emplace_back([&own, &x] { own = forward(load(1).get(), x); });
  for (std::thread &thread : threads)
    thread.join();
  if (others[0] != y || others[1] != y)
    throw std::runtime_error("threads got other results");

  try {
    forward(load(1).get(), std::vector<float>(17 * MLP_FORWARD_INPUT_X_SIZE_1));
  } catch (const std::runtime_error &error) {
    std::fprintf(stderr, "17 rows: %s\n", error.what());
  }
  for (float value : y)
    std::printf("%a\n", double(value));
} catch (const std::exception &error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
