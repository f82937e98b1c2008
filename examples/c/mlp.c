/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Runs the network of make_mlp.py: no Python.
 *
 *   python examples/c/make_mlp.py build/libmlp.so
 *   cc -std=c99 -Ibuild examples/c/mlp.c build/libmlp.so -Wl,-rpath,'$ORIGIN' -o build/mlp &&
 * build/mlp
 */
#include "mlp.h"

#include <stdio.h>

enum { ROWS = 3 };

int main(void) {
  const rlx_options options = {RLX_ABI_VERSION, 0, NULL};
  float x[ROWS * MLP_FORWARD_INPUT_X_SIZE_1], y[ROWS * MLP_FORWARD_OUTPUT_Y_SIZE_1];
  rlx_model *model;
  int i, status = 0;

  if (mlp_load(&options, &model) != RLX_OK) {
    fprintf(stderr, "loading failed: %s\n", mlp_error(NULL));
    return 1;
  }
  for (i = 0; i < ROWS * MLP_FORWARD_INPUT_X_SIZE_1; ++i)
    x[i] = (float)(i % 7) / 8 - 0.25f;
  if (mlp_forward(model, ROWS, x, y) != RLX_OK) {
    fprintf(stderr, "running failed: %s\n", mlp_error(model));
    status = 1;
  } else {
    for (i = 0; i < ROWS * MLP_FORWARD_OUTPUT_Y_SIZE_1; ++i)
      printf("%a\n", (double)y[i]);
  }
  mlp_free(model);
  return status;
}
