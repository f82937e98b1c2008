// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A stand-in for libcuda.so.1, for tests without a GPU. Memory of the host serves as the GPU's; fake_state.h says how
// it works, and what tests control.
#define _GNU_SOURCE
#include "fake_state.h"

// The driver: devices and contexts -----------------------------------------------------------------

EXPORT int cuInit(unsigned flags) {
  ENTER(0);
  (void)flags;
  state.initialised = 1;
  LEAVE(state.devices ? SUCCESS : NO_DEVICE);
}
EXPORT int cuDriverGetVersion(int *version) {
  ENTER(0);
  *version = state.version;
  LEAVE(SUCCESS);
}
EXPORT int cuGetErrorName(int error, const char **name) {
  static const struct {
    int error;
    const char *name;
  } names[] = {{1, "CUDA_ERROR_INVALID_VALUE"},
               {2, "CUDA_ERROR_OUT_OF_MEMORY"},
               {3, "CUDA_ERROR_NOT_INITIALIZED"},
               {100, "CUDA_ERROR_NO_DEVICE"},
               {101, "CUDA_ERROR_INVALID_DEVICE"},
               {200, "CUDA_ERROR_INVALID_IMAGE"},
               {201, "CUDA_ERROR_INVALID_CONTEXT"},
               {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
               {218, "CUDA_ERROR_INVALID_PTX"},
               {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"},
               {400, "CUDA_ERROR_INVALID_HANDLE"},
               {401, "CUDA_ERROR_ILLEGAL_STATE"},
               {500, "CUDA_ERROR_NOT_FOUND"},
               {600, "CUDA_ERROR_NOT_READY"},
               {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
               {719, "CUDA_ERROR_LAUNCH_FAILED"},
               {801, "CUDA_ERROR_NOT_SUPPORTED"},
               {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
               {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
               {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"},
               {907, "CUDA_ERROR_CAPTURED_EVENT"}};
  *name = NULL;
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i)
    if (names[i].error == error)
      *name = names[i].name;
  return *name ? SUCCESS : INVALID_VALUE;
}
EXPORT int cuGetErrorString(int error, const char **text) {
  *text = state.text[0]              ? state.text
          : error == ILLEGAL_ADDRESS ? "an illegal memory access was encountered"
                                     : "as a test wants it";
  return SUCCESS;
}
EXPORT int cuDeviceGetCount(int *count) {
  ENTER(0);
  *count = state.devices;
  LEAVE(SUCCESS);
}
EXPORT int cuDeviceGet(int *device, int ordinal) {
  ENTER(0);
  *device = ordinal;
  LEAVE(ordinal >= 0 && ordinal < state.devices ? SUCCESS : INVALID_DEVICE);
}
EXPORT int cuDeviceGetName(char *name, int room, int device) {
  ENTER(0);
  snprintf(name, (size_t)room, "fake GPU %d.%d", state.major, state.minor);
  (void)device;
  LEAVE(SUCCESS);
}
EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device) {
  ENTER(0);
  (void)device;
  *value = attribute == 16   ? 132
           : attribute == 75 ? state.major
           : attribute == 76 ? state.minor
           : attribute == 97 ? shared_memory()
                             : 0;
  LEAVE(SUCCESS);
}
EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int device) {
  ENTER(0);
  (void)device;
  *bytes = state.total;
  LEAVE(SUCCESS);
}
EXPORT int cuDevicePrimaryCtxRetain(void **context, int device) {
  ENTER(0);
  if (device < 0 || device >= state.devices)
    LEAVE(INVALID_DEVICE);
  *context = &context_objects[device];
  LEAVE(SUCCESS);
}
EXPORT int cuCtxPushCurrent_v2(void *context) {
  ENTER(0);
  const long device = (char *)context - context_objects;
  if (device < 0 || device >= MOST_DEVICES || context_depth == 64)
    LEAVE(INVALID_CONTEXT);
  contexts[context_depth++] = (int)device;
  LEAVE(SUCCESS);
}
EXPORT int cuCtxPopCurrent_v2(void **context) {
  *context = &context_objects[current_device()];
  if (!context_depth)
    return misuse("pop without a context\n"), INVALID_CONTEXT;
  --context_depth;
  return SUCCESS;
}

// Memory -------------------------------------------------------------------------------------------

EXPORT int cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
  ENTER(1);
  *free_bytes = state.total - state.used;
  *total = state.total;
  LEAVE(SUCCESS);
}
EXPORT int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
  ENTER(1);
  REFUSE_CAPTURE();
  if (!bytes)
    LEAVE(INVALID_VALUE);
  if (bytes > state.total - state.used)
    LEAVE(OUT_OF_MEMORY);
  state.used += bytes;
  *address = (uint64_t)allocate(MEMORY, bytes);
  LEAVE(SUCCESS);
}
EXPORT int cuMemFree_v2(uint64_t address) {
  ENTER(1);
  REFUSE_CAPTURE();
  Allocation *own = allocation_of(address, 0, MEMORY);
  if (!own || (uint64_t)own->data != address) {
    misuse("cuMemFree: no memory %p\n", (void *)address);
    LEAVE(INVALID_VALUE);
  }
  state.used -= own->bytes;
  release(own);
  LEAVE(SUCCESS);
}
EXPORT int cuPointerGetAttribute(void *value, int attribute, uint64_t address) {
  ENTER(1);
  const Allocation *own = allocation_of(address, 0, MEMORY);
  if (!own)
    own = allocation_of(address, 0, PINNED);
  if (!own || attribute != 9)
    LEAVE(INVALID_VALUE);
  *(int *)value = own->object.device;
  LEAVE(SUCCESS);
}
EXPORT int cuMemHostAlloc(void **address, size_t bytes, unsigned flags) {
  ENTER(1);
  REFUSE_CAPTURE();
  (void)flags;
  *address = allocate(PINNED, bytes);
  LEAVE(SUCCESS);
}
EXPORT int cuMemFreeHost(void *address) {
  ENTER(1);
  REFUSE_CAPTURE();
  Allocation *own = allocation_of((uint64_t)address, 0, PINNED);
  if (!own || own->data != address) {
    misuse("cuMemFreeHost: no memory %p\n", address);
    LEAVE(INVALID_VALUE);
  }
  release(own);
  LEAVE(SUCCESS);
}
static int copy(uint64_t to, uint64_t from, size_t bytes, int on_device, void *handle, const char *where) {
  Stream *stream = stream_of(handle, where);
  if (!stream)
    return INVALID_HANDLE;
  const int from_pageable = !(on_device & 2) && !allocation_of(from, bytes, PINNED);
  const int to_pageable = !(on_device & 1) && !allocation_of(to, bytes, PINNED);
  if (stream->capturing && (from_pageable || to_pageable))
    return invalidate_captures();
  Op *op = new_op(COPY);
  op->to = to, op->from = from, op->bytes = bytes, op->value = (unsigned char)on_device;
  if (from_pageable && !state.late) {
    op->snapshot = malloc(bytes + 1);
    memcpy(op->snapshot, (void *)from, bytes);
  }
  int result = submit(handle, op, where);
  if (to_pageable)
    drain(stream);
  return result ? result : (int)state.sticky;
}
EXPORT int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream) {
  ENTER(1);
  trace("upload %zu\n", bytes);
  LEAVE(copy(to, (uint64_t)from, bytes, 1, stream, __func__));
}
EXPORT int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) {
  ENTER(1);
  trace("download %zu\n", bytes);
  LEAVE(copy((uint64_t)to, from, bytes, 2, stream, __func__));
}
EXPORT int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream) {
  ENTER(1);
  trace("copy %zu\n", bytes);
  LEAVE(copy(to, from, bytes, 3, stream, __func__));
}
EXPORT int cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, void *stream) {
  ENTER(1);
  Op *op = new_op(SET);
  op->to = to, op->bytes = bytes, op->value = value;
  LEAVE(submit(stream, op, __func__));
}

// Streams, graphs, events --------------------------------------------------------------------------

EXPORT int cuStreamCreate(void **handle, unsigned flags) {
  ENTER(1);
  (void)flags;
  *handle = make(STREAM, sizeof(Stream));
  LEAVE(SUCCESS);
}
EXPORT int cuStreamDestroy_v2(void *handle) {
  ENTER(1);
  if (!check_live(handle, STREAM, __func__))
    LEAVE(INVALID_HANDLE);
  drain(handle);
  end(handle);
  LEAVE(SUCCESS);
}
// The work is over whatever comes back.
EXPORT int cuStreamSynchronize(void *handle) {
  pthread_mutex_lock(&state.mutex);
  int result = enter(__func__, 1);
  Stream *stream = context_depth ? stream_of(handle, __func__) : NULL;
  if (!stream)
    LEAVE(result ? result : context_depth ? INVALID_HANDLE : INVALID_CONTEXT);
  if (stream->capturing)
    LEAVE(invalidate_captures());
  REFUSE_CAPTURE();
  drain(stream);
  LEAVE(result ? result : (int)state.sticky);
}
EXPORT int cuStreamBeginCapture_v2(void *handle, int mode) {
  ENTER(1);
  Stream *stream = stream_of(handle, __func__);
  if (!stream || !handle || (uintptr_t)handle <= 2 || mode < 0 || mode > 2)
    LEAVE(INVALID_VALUE);
  if (stream->capturing)
    LEAVE(ILLEGAL_STATE);
  stream->capturing = 1;
  stream->invalidated = 0;
  stream->owner = pthread_self();
  stream->mode = mode;
  capturing += mode != 2;
  state.global_captures += mode == 0;
  LEAVE(SUCCESS);
}
EXPORT int cuThreadExchangeStreamCaptureMode(int *mode) {
  ENTER(0);
  if (*mode < 0 || *mode > 2)
    LEAVE(INVALID_VALUE);
  const int before = capture_mode;
  capture_mode = *mode;
  *mode = before;
  LEAVE(SUCCESS);
}
EXPORT int cuStreamIsCapturing(void *handle, int *status) {
  ENTER(1);
  const Stream *stream = stream_of(handle, __func__);
  if (!stream)
    LEAVE(INVALID_HANDLE);
  *status = !stream->capturing ? 0 : stream->invalidated ? 2 : 1;
  LEAVE(SUCCESS);
}
// The capture ends whatever comes back, as the driver has it.
EXPORT int cuStreamEndCapture(void *handle, void **graph) {
  pthread_mutex_lock(&state.mutex);
  int result = enter(__func__, 1);
  Stream *stream = stream_of(handle, __func__);
  *graph = NULL;
  if (!stream || !stream->capturing || !pthread_equal(stream->owner, pthread_self()))
    LEAVE(INVALID_VALUE);
  stream->capturing = 0;
  capturing -= stream->mode != 2;
  state.global_captures -= stream->mode == 0;
  if (!result && stream->invalidated)
    result = CAPTURE_INVALIDATED;
  if (result) {
    discard(&stream->captured);
    LEAVE(result);
  }
  Graph *own = make(GRAPH, sizeof(Graph));
  own->ops = stream->captured;
  if (!own->ops.first)
    own->ops.last = NULL;
  stream->captured = (Queue){0};
  *graph = own;
  LEAVE(SUCCESS);
}
EXPORT int cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags) {
  ENTER(1);
  if (flags)
    LEAVE(INVALID_VALUE);
  if (!check_live(graph, GRAPH, __func__))
    LEAVE(INVALID_HANDLE);
  Graph *own = make(EXEC, sizeof(Graph));
  for (Op *op = ((Graph *)graph)->ops.first; op; op = op->next)
    enqueue(&own->ops, copy_of(op));
  *exec = own;
  trace("instantiate\n");
  LEAVE(SUCCESS);
}
EXPORT int cuGraphLaunch(void *exec, void *stream) {
  ENTER(1);
  if (!check_live(exec, EXEC, __func__))
    LEAVE(INVALID_HANDLE);
  const Stream *own = stream_of(stream, __func__);
  if (!own || own->object.device != ((Graph *)exec)->object.device)
    LEAVE(INVALID_HANDLE);
  trace("graph\n");
  for (Op *op = ((Graph *)exec)->ops.first; op; op = op->next)
    if ((result = submit(stream, copy_of(op), __func__)))
      break;
  LEAVE(result);
}
static int destroy_graph(void *graph, int kind, const char *where) {
  if (!check_live(graph, kind, where))
    return INVALID_HANDLE;
  discard(&((Graph *)graph)->ops);
  end(graph);
  return SUCCESS;
}
EXPORT int cuGraphDestroy(void *graph) {
  ENTER(0);
  LEAVE(destroy_graph(graph, GRAPH, __func__));
}
EXPORT int cuGraphExecDestroy(void *exec) {
  ENTER(0);
  LEAVE(destroy_graph(exec, EXEC, __func__));
}
EXPORT int cuEventCreate(void **event, unsigned flags) {
  ENTER(1);
  if (flags & ~7u)
    LEAVE(INVALID_VALUE);
  *event = make(EVENT, sizeof(Event));
  ((Event *)*event)->timed = !(flags & 2);
  LEAVE(SUCCESS);
}
EXPORT int cuEventDestroy_v2(void *event) {
  ENTER(1);
  if (!check_live(event, EVENT, __func__))
    LEAVE(INVALID_HANDLE);
  end(event);
  LEAVE(SUCCESS);
}
EXPORT int cuEventRecord(void *event, void *stream) {
  ENTER(1);
  if (!check_live(event, EVENT, __func__))
    LEAVE(INVALID_HANDLE);
  Stream *own = stream_of(stream, __func__);
  if (!own || own->object.device != ((Event *)event)->object.device)
    LEAVE(INVALID_HANDLE);
  Op *op = new_op(RECORD);
  op->event = event;
  ((Event *)event)->captured = own->capturing;
  if (!own->capturing) {
    op->bytes = ++((Event *)event)->records;
    ((Event *)event)->pending = own;
  }
  LEAVE(submit(stream, op, __func__));
}
EXPORT int cuEventQuery(void *event) {
  ENTER(1);
  if (!check_live(event, EVENT, __func__))
    LEAVE(INVALID_HANDLE);
  if (((Event *)event)->captured)
    LEAVE((invalidate_captures(), CAPTURED_EVENT));
  REFUSE_CAPTURE();
  LEAVE(((Event *)event)->pending ? NOT_READY : SUCCESS);
}
EXPORT int cuEventSynchronize(void *event) {
  ENTER(1);
  if (!check_live(event, EVENT, __func__))
    LEAVE(INVALID_HANDLE);
  if (((Event *)event)->captured)
    LEAVE((invalidate_captures(), CAPTURED_EVENT));
  REFUSE_CAPTURE();
  reach(event, ((Event *)event)->records);
  LEAVE((int)state.sticky);
}
EXPORT int cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
  ENTER(1);
  if (flags)
    LEAVE(INVALID_VALUE);
  if (!check_live(event, EVENT, __func__))
    LEAVE(INVALID_HANDLE);
  // A stream that captures waits for what it has captured alone; another one would become a part of the capture.
  const Stream *waiting = stream_of(stream, __func__);
  if (waiting && waiting->capturing != ((Event *)event)->captured)
    LEAVE((invalidate_captures(), CAPTURE_ISOLATION));
  if (!((Event *)event)->pending)
    LEAVE(stream_of(stream, __func__) ? SUCCESS : INVALID_HANDLE);
  Op *op = new_op(WAIT);
  op->event = event, op->bytes = ((Event *)event)->records;
  LEAVE(submit(stream, op, __func__));
}
EXPORT int cuEventElapsedTime(float *milliseconds, void *first, void *second) {
  ENTER(1);
  if (!check_live(first, EVENT, __func__) || !check_live(second, EVENT, __func__))
    LEAVE(INVALID_HANDLE);
  if (!((Event *)first)->timed || !((Event *)second)->timed)
    LEAVE(INVALID_HANDLE);
  *milliseconds = (float)(((Event *)second)->time - ((Event *)first)->time);
  LEAVE(((Event *)first)->recorded && ((Event *)second)->recorded ? SUCCESS : NOT_READY);
}

#include "fake_code.h"
