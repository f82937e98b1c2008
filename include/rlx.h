/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Compiled models without Python: the interface of the shared libraries that `rlx emit --stage
 * shared` writes.
 *
 * Each library has these functions under names of its own: where a library is called `mlp`, the
 * function written RLX_NAME(run) here is `mlp_run`. So any number of libraries can be linked into
 * one program, and nothing else of a library can be seen. The header that is written beside a
 * library, `mlp.h`, includes this one with RLX_PREFIX set, and adds what is known of the library's
 * functions: constants, and a function with typed arguments for each.
 *
 * Ownership:
 *
 * A handle belongs to whoever loaded it, until `free`. What is given to a call stays the
 * caller's, and is used until the call returns; only the memory of `set_parameter` has to
 * stay as long as the handle does. Texts and lists that are given out belong to the
 * handle.
 *
 * Threads:
 *
 * All functions may be called from any thread, `free` from one alone and last. Runs of
 * one function of one handle take turns, since they share memory; runs of other functions
 * and handles go on at the same time. Handles of one library share the library's weights.
 * Each library has one pool of worker threads, which its handles share, and which other
 * libraries don't. A child of fork() may go on with its parent's handles.
 *
 * Errors:
 *
 * Functions that can fail return a status; `error` then has a text that says what, where,
 * the rule and the values. Nothing is thrown, and no mistake that can be seen ends the
 * process. What can't be seen: addresses that don't have the memory behind them which the
 * caller says, and handles that were freed.
 *
 * Units:
 *
 * Sizes of memory are bytes; sizes of dimensions are elements. Arrays are dense, the last
 * dimension first.
 */
#ifndef RLX_H
#define RLX_H

#include <stddef.h>
#include <stdint.h>

/* Of what is declared here; a library refuses another one. It changes whenever a program that was
 * compiled with an earlier header couldn't use the library. */
#define RLX_ABI_VERSION 1

/* A loaded library: its weights, and memory to run each of its functions in. */
typedef struct rlx_model rlx_model;

typedef enum rlx_status {
  RLX_OK = 0,
  RLX_INPUT_ERROR = 1,    /* something that was given breaks a rule; nothing ran */
  RLX_EXECUTION_ERROR = 2 /* a file or memory can't be had, or the machine can't run the code */
} rlx_status;

typedef enum rlx_kind { RLX_INPUT = 0, RLX_PARAMETER = 1, RLX_OUTPUT = 2 } rlx_kind;

typedef struct rlx_options {
  uint32_t abi_version; /* RLX_ABI_VERSION */
  int32_t threads;      /* of one run, from 1 to 1024; 0: as many as the process may use, see
                           RLX_NUM_THREADS */
  const char *weights;  /* path of the library's file of weights; NULL: the file beside the library,
                           where it has one */
} rlx_options;

/* A size that is chosen at each run, from 0 to `maximum`. */
typedef struct rlx_symbol {
  const char *name;
  int64_t maximum;
} rlx_symbol;

/* An input, parameter or output of a function. */
typedef struct rlx_buffer {
  const char *name;
  const char *dtype; /* f32, f16, bf16, f64, f8E4M3FN, f8E5M2, i1 (a byte, 0 or 1), i8, i16, i32,
                        i64, ui8, ui16, ui32 or complex<f32> */
  size_t element_bytes;
  size_t alignment;           /* its address is a multiple of this */
  size_t rank;                /* how many dimensions there are */
  const int64_t *shape;       /* of each dimension the size, or -1 where it is chosen at each run */
  const int64_t *maximum;     /* of each dimension the largest size */
  const char *const *formula; /* of each dimension the size as text, such as `seq` or `2*seq + 1` */
  int32_t
      tied; /* of an output: 1 where it may be at the address of what it is tied to, which is
               updated then; where it is somewhere else, that stays as it is. 0 for all others */
  rlx_kind tied_kind; /* what it is tied to: an input or a parameter, */
  size_t tied_index;  /* and its number */
  int32_t given;      /* of a parameter: 1 where it is set, by the library or by `set_parameter` */
} rlx_buffer;

/* Memory that a run reads, or writes. */
typedef struct rlx_input {
  const void *data;
  size_t bytes; /* exactly those that the sizes of the run make */
} rlx_input;

typedef struct rlx_output {
  void *data;
  size_t bytes;
} rlx_output;

/* What sizes of outputs are computed by, in headers of libraries: the largest integer that is at
 * most a / b, for a positive b, and the larger one of two. */
static inline int64_t rlx_floordiv(int64_t a, int64_t b) { return a / b - (a % b < 0); }
static inline int64_t rlx_max(int64_t a, int64_t b) { return a > b ? a : b; }

#define RLX_JOIN_(a, b) a##_##b
#define RLX_JOIN(a, b) RLX_JOIN_(a, b)
#endif /* RLX_H */

/* What follows is declared once for each prefix. */
#ifdef RLX_PREFIX
#define RLX_NAME(name) RLX_JOIN(RLX_PREFIX, name)

#ifdef __cplusplus
extern "C" {
#endif

/* The library's RLX_ABI_VERSION. */
uint32_t RLX_NAME(abi_version)(void);

#ifndef RLX_WITHOUT_LOAD
/* Loads weights, and takes memory for the largest sizes; `*model` is NULL where that fails, and
 * `error(NULL)` says why. Takes about as long as mapping the file of weights: pages are read when
 * they are needed. */
rlx_status RLX_NAME(load)(const rlx_options *options, rlx_model **model);
#endif

/* Gives everything back; no call may be running. NULL is allowed. */
void RLX_NAME(free)(rlx_model *model);

/* What the last call of this thread on the handle that failed has to say, NULL being the handle of
 * loads that failed;
 * "" where none did. The text stays until this thread's next call that fails. */
const char *RLX_NAME(error)(const rlx_model *model);

/* The largest number of threads of one run; 0 for NULL. */
int32_t RLX_NAME(threads)(const rlx_model *model);

/* Functions have the numbers from 0 on; 0 and NULL where there is no such handle or number. */
size_t RLX_NAME(function_count)(const rlx_model *model);
const char *RLX_NAME(function_name)(const rlx_model *model, size_t function);

/* Symbols and buffers of a function, by number, the count being 0 where there is no such function.
 */
size_t RLX_NAME(symbol_count)(const rlx_model *model, size_t function);
rlx_status RLX_NAME(describe_symbol)(const rlx_model *model, size_t function, size_t index,
                                     rlx_symbol *symbol);
size_t RLX_NAME(buffer_count)(const rlx_model *model, size_t function, rlx_kind kind);
rlx_status RLX_NAME(describe_buffer)(const rlx_model *model, size_t function, rlx_kind kind,
                                     size_t index, rlx_buffer *buffer);

/* The number of a function, or of one of its buffers, by its name. */
rlx_status RLX_NAME(find_function)(const rlx_model *model, const char *name, size_t *function);
rlx_status RLX_NAME(find_buffer)(const rlx_model *model, size_t function, rlx_kind kind,
                                 const char *name, size_t *index);

/* The sizes of a buffer's `rank` dimensions for sizes of the symbols, in their order; and the bytes
 * of the buffer. Either of `shape` and `bytes` may be NULL. */
rlx_status RLX_NAME(measure)(const rlx_model *model, size_t function, rlx_kind kind, size_t index,
                             const int64_t *sizes, size_t size_count, int64_t *shape,
                             size_t *bytes);

/* Says where a parameter is, as the code reads it: where the library was written without weights,
 * and for parameters of an optimiser's steps. The memory has to stay, unchanged but by runs, and be
 * writable where an output that is tied to it is put there. Runs that have begun go on with the old
 * one. */
rlx_status RLX_NAME(set_parameter)(rlx_model *model, size_t function, size_t index,
                                   const void *data, size_t bytes);

/* Runs a function: `sizes` has one for each symbol, `inputs` and `outputs` one for each, all in the
 * order of their numbers. What is written may share memory with nothing that is read, but for
 * outputs at the address of what they are tied to. Results have the same bits as those of the
 * Python package, with any number of threads. */
rlx_status RLX_NAME(run)(rlx_model *model, size_t function, const int64_t *sizes, size_t size_count,
                         const rlx_input *inputs, size_t input_count, const rlx_output *outputs,
                         size_t output_count);

#ifdef __cplusplus
}
#endif

#undef RLX_NAME
#undef RLX_PREFIX
#endif /* RLX_PREFIX */
