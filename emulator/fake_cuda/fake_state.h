// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the stand-in for the driver is made of: its objects, queues of work, counts of calls, and what tests control.
//
// As on a GPU, work in a stream doesn't happen when it is asked for: it is queued, and done when somebody waits, so
// that whoever reads or frees too early is found out. Misuse (a second free, a stream that is gone, memory that isn't
// there, a write beside or after an allocation) is written down, and tests ask for it. Kernels are run by a callback,
// which tests give; without one they do nothing.
//
// What a test controls it controls by the functions named fake_*, or in another process by the environment's
// FAKE_CUDA_FAIL: function:n:result, with commas between, lets the nth call of a function fail, or never return where
// the result is -1.
#ifndef FAKE_STATE_H
#define FAKE_STATE_H
#include <ctype.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum {
  HANGS = -1,
  SUCCESS = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  NOT_INITIALIZED = 3,
  NO_DEVICE = 100,
  INVALID_DEVICE = 101,
  INVALID_IMAGE = 200,
  INVALID_CONTEXT = 201,
  NO_BINARY = 209,
  INVALID_PTX = 218,
  UNSUPPORTED_PTX = 222,
  INVALID_HANDLE = 400,
  ILLEGAL_STATE = 401,
  NOT_FOUND = 500,
  NOT_READY = 600,
  ILLEGAL_ADDRESS = 700,
  LAUNCH_FAILED = 719,
  NOT_SUPPORTED = 801,
  CAPTURE_UNSUPPORTED = 900,
  CAPTURE_INVALIDATED = 901,
  CAPTURE_ISOLATION = 905,
  CAPTURED_EVENT = 907
};
enum { GUARD = 512, GUARD_BYTE = 0xA5, FREED_BYTE = 0xDE, FRESH_BYTE = 0xFF, NAME = 256, QUARANTINE = 64 << 20 };
enum { MEMORY, PINNED, STREAM, EVENT, MODULE, GRAPH, EXEC, KINDS, MOST_DEVICES = 8 };
static const char *const kinds[KINDS] = {"memory", "pinned memory", "stream", "event", "module", "graph", "graph exec"};

typedef void (*LaunchCallback)(const char *image, size_t image_bytes, const char *kernel, const unsigned *grid,
                               const unsigned *block, unsigned shared, const void *params, size_t param_bytes,
                               int *result);

// What is queued -----------------------------------------------------------------------------------

typedef struct Function Function;
typedef struct Op {
  enum { COPY, SET, LAUNCH, RECORD, WAIT } kind;
  uint64_t to, from;
  size_t bytes;
  void *snapshot; // of pageable memory, which the caller may change at once
  unsigned char value;
  Function *function;
  unsigned grid[3], block[3], shared;
  int pdl;
  void *params;
  struct Event *event;
  struct Op *next;
} Op;
typedef struct {
  Op *first, **last;
} Queue;

typedef struct Object {
  int kind, live, device; // whose context was current when it was made
  struct Object *next; // of all
} Object;
typedef struct {
  Object object;
  unsigned char *data;
  size_t bytes;
} Allocation;
typedef struct {
  Object object;
  Queue queue;
  int capturing, mode, invalidated, draining;
  pthread_t owner;
  Queue captured;
} Stream;
typedef struct Event {
  Object object;
  double time;
  int recorded, timed;
  int captured;    // the last record was in a stream that captures
  size_t records;  // how often it was recorded
  size_t reached;  // the last record that the stream has come to
  Stream *pending; // the stream of the last record, until it has come there
} Event;
typedef struct {
  Object object;
  char *text;
  size_t bytes;
  Function *functions;
} Module;
struct Function {
  Module *module;
  char name[NAME];
  int params, sizes[64], offsets[64];
  size_t param_bytes;
  int threads, dynamic;
  Function *next;
};
typedef struct {
  Object object;
  Queue ops;
} Graph;

static struct {
  pthread_mutex_t mutex;
  Object *objects;
  long live[KINDS];
  int initialised, devices, major, minor, version, ptx;
  size_t total, used, quarantined;
  long kernels, sticky, global_captures;
  double clock;
  LaunchCallback launch;
  long changes; // of what is allocated
  char misuse[1 << 16], trace[1 << 20], text[4096];
  struct {
    char name[64];
    long count, fail_at;
    int result;
  } calls[80];
  Stream standard[MOST_DEVICES]; // the default stream of each context
  int late;                      // pageable memory is read when a copy takes place, as some systems do
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER};
static __thread int context_depth, capturing;
static __thread int capture_mode; // of this thread: 0 for what other threads capture, too, 1 for its own, 2 for none
static __thread int contexts[64]; // the devices of those that are current, the last one on top
static char context_objects[MOST_DEVICES];
static int current_device(void) { return context_depth ? contexts[context_depth - 1] : 0; }

static void append(char *log, size_t room, const char *format, va_list list) {
  size_t used = strlen(log);
  if (used + 2 < room)
    vsnprintf(log + used, room - used, format, list);
}
static void misuse(const char *format, ...) {
  va_list list;
  va_start(list, format);
  append(state.misuse, sizeof state.misuse, format, list);
  va_end(list);
}
static void trace(const char *format, ...) {
  va_list list;
  va_start(list, format);
  append(state.trace, sizeof state.trace, format, list);
  va_end(list);
}

/// Bytes of shared memory that a block may have.
static int shared_memory(void) {
  const int chip = 10 * state.major + state.minor;
  return 1024 * (chip == 80 || chip == 87 ? 163 : chip == 90 || state.major == 10 ? 227 : 99);
}

// Counting calls, and letting them fail ------------------------------------------------------------

static int slot_of(const char *name) {
  int i = 0;
  while (i < 79 && state.calls[i].name[0] && strcmp(state.calls[i].name, name))
    ++i;
  snprintf(state.calls[i].name, sizeof state.calls[i].name, "%s", name);
  return i;
}
static int enter(const char *name, int needs_context) {
  int i = slot_of(name);
  ++state.calls[i].count;
  if (state.sticky && needs_context) // what needs no context goes on after a fault
    return (int)state.sticky;
  if (state.calls[i].result && (state.calls[i].fail_at == 0 || state.calls[i].count == state.calls[i].fail_at)) {
    while (state.calls[i].result == HANGS)
      sleep(1);
    return state.calls[i].result;
  }
  return SUCCESS;
}
// Every function but those that only describe errors begins with this.
#define ENTER(needs_context)                                                                                           \
  pthread_mutex_lock(&state.mutex);                                                                                    \
  int result = enter(__func__, needs_context);                                                                         \
  if (!result && !state.initialised && strcmp(__func__, "cuInit") && strcmp(__func__, "cuDriverGetVersion"))           \
    result = NOT_INITIALIZED;                                                                                          \
  if (!result && (needs_context) && !context_depth)                                                                    \
    result = INVALID_CONTEXT;                                                                                          \
  if (result)                                                                                                          \
  return pthread_mutex_unlock(&state.mutex), result
#define LEAVE(value)                                                                                                   \
  do {                                                                                                                 \
    int value_ = (value);                                                                                              \
    pthread_mutex_unlock(&state.mutex);                                                                                \
    return value_;                                                                                                     \
  } while (0)
// What a thread may not do while it captures, or while another one captures in the mode that says so.
#define REFUSE_CAPTURE()                                                                                               \
  if ((capturing && capture_mode != 2) || (state.global_captures && capture_mode == 0))                                \
  LEAVE(invalidate_captures())

static void *make(int kind, size_t bytes) {
  Object *object = calloc(1, bytes);
  object->kind = kind;
  object->live = 1;
  object->device = current_device();
  object->next = state.objects;
  state.objects = object;
  ++state.live[kind];
  return object;
}
static int is_live(const void *handle, int kind) {
  for (Object *object = state.objects; object; object = object->next)
    if (object == handle)
      return object->kind == kind && object->live;
  return 0;
}
static int check_live(const void *handle, int kind, const char *where) {
  if (is_live(handle, kind))
    return 1;
  misuse("%s: no %s %p\n", where, kinds[kind], handle);
  return 0;
}
static void end(Object *object) {
  object->live = 0;
  --state.live[object->kind];
}
static int invalidate_captures(void) {
  misuse("a call that a capture does not allow\n");
  for (Object *object = state.objects; object; object = object->next)
    if (object->kind == STREAM && object->live && ((Stream *)object)->capturing)
      ((Stream *)object)->invalidated = 1;
  return CAPTURE_UNSUPPORTED;
}

// Memory -------------------------------------------------------------------------------------------

static Allocation *allocation_of(uint64_t address, size_t bytes, int kind) {
  for (Object *object = state.objects; object; object = object->next) {
    Allocation *own = (Allocation *)object;
    if (object->kind == kind && object->live && address >= (uint64_t)own->data &&
        address + bytes <= (uint64_t)own->data + own->bytes)
      return own;
  }
  return NULL;
}
static void check_guards(Allocation *own) {
  for (size_t i = 0; i < GUARD; ++i)
    if (own->data[-1 - (long)i] != GUARD_BYTE || own->data[own->bytes + i] != GUARD_BYTE) {
      misuse("write beside %s of %zu bytes\n", kinds[own->object.kind], own->bytes);
      return;
    }
}
static void check_freed(Allocation *own) {
  for (size_t i = 0; i < own->bytes; ++i)
    if (own->data[i] != FREED_BYTE) {
      misuse("write after free to %s of %zu bytes\n", kinds[own->object.kind], own->bytes);
      return;
    }
}
static void *allocate(int kind, size_t bytes) {
  Allocation *own = make(kind, sizeof *own);
  unsigned char *raw = NULL;
  if (posix_memalign((void **)&raw, 4096, (bytes + 2 * GUARD + 4095) / 4096 * 4096 + 4096))
    abort();
  own->data = raw + GUARD;
  own->bytes = bytes;
  ++state.changes;
  memset(raw, GUARD_BYTE, GUARD);
  memset(own->data, FRESH_BYTE, bytes);
  memset(own->data + bytes, GUARD_BYTE, GUARD);
  return own->data;
}
static int is_busy(void);
static void release(Allocation *own) {
  check_guards(own);
  end(&own->object);
  ++state.changes;
  // Another thread's work may use it, for which the driver would wait; here that thread's callbacks could not run.
  if (is_busy()) {
    own->data = NULL;
    return;
  }
  memset(own->data, FREED_BYTE, own->bytes);
  state.quarantined += own->bytes;
  // What was freed first is given back when there is too much.
  Object *oldest;
  do {
    oldest = NULL;
    if (state.quarantined > QUARANTINE)
      for (Object *object = state.objects; object; object = object->next)
        if (object->kind <= PINNED && !object->live && ((Allocation *)object)->data)
          oldest = object;
    if (oldest) {
      Allocation *gone = (Allocation *)oldest;
      check_freed(gone);
      state.quarantined -= gone->bytes;
      free(gone->data - GUARD);
      gone->data = NULL;
    }
  } while (oldest);
}

// Doing what is queued -----------------------------------------------------------------------------

static void enqueue(Queue *queue, Op *op) {
  if (!queue->last)
    queue->last = &queue->first;
  *queue->last = op;
  queue->last = &op->next;
}
static Op *copy_of(const Op *op) {
  Op *copy = malloc(sizeof *copy);
  *copy = *op;
  copy->next = NULL;
  if (op->params && op->function) {
    copy->params = malloc(op->function->param_bytes + 1);
    memcpy(copy->params, op->params, op->function->param_bytes);
  }
  return copy;
}
static void discard(Queue *queue) {
  for (Op *op = queue->first, *next; op; op = next) {
    next = op->next;
    free(op->snapshot);
    free(op->params);
    free(op);
  }
  queue->first = NULL;
  queue->last = NULL;
}
static void fault(int result) {
  if (!state.sticky)
    state.sticky = result;
}
static void check_place(uint64_t address, size_t bytes, int on_device, const char *what) {
  if (on_device && !allocation_of(address, bytes, MEMORY)) {
    misuse("%s of %zu bytes outside of the GPU's memory\n", what, bytes);
    fault(ILLEGAL_ADDRESS);
  }
}
static void reach(Event *event, size_t record);
static void perform(Op *op) {
  state.clock += 0.001;
  switch (op->kind) {
  case COPY:
    // Which end is on the GPU is in `value`: 1 the target, 2 the source, 3 both.
    check_place(op->to, op->bytes, op->value & 1, "copy to the GPU");
    check_place(op->from, op->bytes, op->value & 2, "copy from the GPU");
    if (!state.sticky)
      memmove((void *)op->to, op->snapshot ? op->snapshot : (void *)op->from, op->bytes);
    break;
  case SET:
    check_place(op->to, op->bytes, 1, "memset");
    if (!state.sticky)
      memset((void *)op->to, op->value, op->bytes);
    break;
  case RECORD:
    op->event->time = state.clock;
    op->event->recorded = 1;
    op->event->reached = op->bytes;
    if (op->event->records == op->bytes)
      op->event->pending = NULL;
    break;
  case WAIT:
    reach(op->event, op->bytes);
    break;
  case LAUNCH: {
    ++state.kernels;
    int result = enter("kernel", 1);
    Function *function = op->function;
    if (!function->module->object.live)
      misuse("launch of kernel %s after its module was unloaded\n", function->name);
    else if (!result && state.launch) {
      LaunchCallback launch = state.launch;
      pthread_mutex_unlock(&state.mutex);
      launch(function->module->text, function->module->bytes, function->name, op->grid, op->block, op->shared,
             op->params, function->param_bytes, &result);
      pthread_mutex_lock(&state.mutex);
    }
    if (result)
      fault(result);
    break;
  }
  }
}
// Does what a stream holds: all of it, or up to a record of an event.
static void drain_to(Stream *stream, Event *event, size_t record) {
  // Another thread is at it, and may be in a callback that waits for this one.
  if (stream->draining)
    return;
  stream->draining = 1;
  while (stream->queue.first && !state.sticky && !(event && event->reached >= record)) {
    Op *op = stream->queue.first;
    stream->queue.first = op->next;
    if (!op->next)
      stream->queue.last = NULL;
    perform(op);
    free(op->snapshot);
    free(op->params);
    free(op);
  }
  if (state.sticky)
    discard(&stream->queue);
  stream->draining = 0;
}
static void drain(Stream *stream) { drain_to(stream, NULL, 0); }
// The record was made before, in the stream of the event's last one: events change their stream only when nothing
// waits.
static void reach(Event *event, size_t record) {
  if (event->pending && event->reached < record)
    drain_to(event->pending, event, record);
}
static int is_busy(void) {
  for (Object *object = state.objects; object; object = object->next)
    if (object->kind == STREAM && object->live && (((Stream *)object)->queue.first || ((Stream *)object)->draining))
      return 1;
  for (int device = 0; device < MOST_DEVICES; ++device)
    if (state.standard[device].queue.first)
      return 1;
  return 0;
}
static Stream *stream_of(void *handle, const char *where) {
  if (!handle || (uintptr_t)handle <= 2) {
    Stream *own = &state.standard[current_device()];
    own->object.device = current_device();
    return own;
  }
  return check_live(handle, STREAM, where) ? handle : NULL;
}
static int submit(void *handle, Op *op, const char *where) {
  Stream *stream = stream_of(handle, where);
  if (!stream) {
    free(op->params);
    free(op->snapshot);
    free(op);
    return INVALID_HANDLE;
  }
  enqueue(stream->capturing ? &stream->captured : &stream->queue, op);
  return SUCCESS;
}
static Op *new_op(int kind) {
  Op *op = calloc(1, sizeof *op);
  op->kind = kind;
  return op;
}

// What tests call ----------------------------------------------------------------------------------

EXPORT void fake_reset(void) {
  pthread_mutex_lock(&state.mutex);
  for (int device = 0; device < MOST_DEVICES; ++device)
    discard(&state.standard[device].queue);
  for (Object *object = state.objects; object; object = object->next) {
    if (object->kind <= PINNED) {
      // What is in use stays, so that nothing new has its address, and nobody looks at it any more.
      Allocation *own = (Allocation *)object;
      if (!object->live && own->data)
        free(own->data - GUARD);
      own->data = NULL;
    }
    object->live = 0;
  }
  state.quarantined = 0;
  memset(state.live, 0, sizeof state.live);
  memset(state.calls, 0, sizeof state.calls);
  state.devices = 1, state.major = 9, state.minor = 0, state.version = 12080, state.ptx = 87;
  state.total = (size_t)8 << 30, state.used = 0, state.kernels = 0, state.sticky = 0, state.clock = 0;
  state.launch = NULL, capturing = context_depth = capture_mode = state.late = 0, state.global_captures = 0;
  state.misuse[0] = state.trace[0] = state.text[0] = 0;
  pthread_mutex_unlock(&state.mutex);
}
EXPORT void fake_fail(const char *function, long nth, int result) {
  pthread_mutex_lock(&state.mutex);
  int i = slot_of(function);
  state.calls[i].fail_at = nth ? state.calls[i].count + nth : 0;
  state.calls[i].result = result;
  pthread_mutex_unlock(&state.mutex);
}
EXPORT long fake_count(const char *function) { return state.calls[slot_of(function)].count; }
EXPORT void fake_set_device(int devices, int major, int minor, size_t total, int version, int ptx) {
  state.devices = devices, state.major = major, state.minor = minor, state.total = total;
  state.version = version, state.ptx = ptx;
}
EXPORT void fake_set_late(int late) { state.late = late; }
EXPORT void fake_set_launch(LaunchCallback launch) { state.launch = launch; }
EXPORT long fake_changes(void) { return state.changes; }
/// The time that events see, in milliseconds: each operation takes 0.001 of it, and what tests add.
EXPORT double fake_clock(void) { return state.clock; }
EXPORT void fake_advance(double milliseconds) { state.clock += milliseconds; }
/// Writes (address, bytes) of the GPU's memory that is allocated; the number of pairs that there are.
EXPORT long fake_allocations(uint64_t *pairs, long room) {
  pthread_mutex_lock(&state.mutex);
  long count = 0;
  for (Object *object = state.objects; object; object = object->next)
    if (object->kind == MEMORY && object->live && count++ < room) {
      pairs[2 * count - 2] = (uint64_t)((Allocation *)object)->data;
      pairs[2 * count - 1] = ((Allocation *)object)->bytes;
    }
  pthread_mutex_unlock(&state.mutex);
  return count;
}
EXPORT void fake_set_error_text(const char *text) { snprintf(state.text, sizeof state.text, "%s", text); }
EXPORT long fake_live(int kind) { return kind < KINDS ? state.live[kind] : context_depth; }
EXPORT size_t fake_used(void) { return state.used; }
EXPORT long fake_kernels(void) { return state.kernels; }
EXPORT const char *fake_trace(void) { return state.trace; }
EXPORT void fake_clear_trace(void) { state.trace[0] = 0; }
EXPORT const char *fake_misuse(void) {
  pthread_mutex_lock(&state.mutex);
  for (Object *object = state.objects; object; object = object->next)
    if (object->kind <= PINNED && object->live)
      check_guards((Allocation *)object);
    else if (object->kind <= PINNED && ((Allocation *)object)->data && state.quarantined)
      check_freed((Allocation *)object);
  pthread_mutex_unlock(&state.mutex);
  return state.misuse;
}
__attribute__((constructor)) static void start(void) {
  fake_reset();
  char *list = getenv("FAKE_CUDA_FAIL"), *rest = NULL;
  list = list ? strdup(list) : NULL;
  for (char *rule = list ? strtok_r(list, ",", &rest) : NULL; rule; rule = strtok_r(NULL, ",", &rest)) {
    char name[64];
    long nth = 0;
    int result = 0;
    if (sscanf(rule, "%63[^:]:%ld:%d", name, &nth, &result) == 3)
      fake_fail(name, nth, result);
  }
  free(list);
}

#endif // FAKE_STATE_H
