// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Modules, kernels and tensor maps of the stand-in for the driver.
#ifndef FAKE_CODE_H
#define FAKE_CODE_H

// Code ---------------------------------------------------------------------------------------------

static const char cubin_mark[] = "FAKE CUBIN\n";

/// Writes what the compiler says to the buffer of option 5, whose size is the value of option 6, not a pointer to it.
static void say(unsigned count, const int *options, void **values, const char *text) {
  size_t room = 0;
  for (unsigned i = 0; i < count; ++i)
    if (options[i] == 6)
      room = (size_t)(uintptr_t)values[i];
  for (unsigned i = 0; i < count; ++i)
    if (options[i] == 5 && room)
      snprintf(values[i], room, "%s", text);
}
/// Whether the driver takes PTX; what its compiler says otherwise goes to `log`.
static int check_ptx(const char *text, char *log) {
  int major = 0, minor = 0, chip = 0, used = 0;
  const char *version = strstr(text, ".version"), *target = strstr(text, ".target");
  log[0] = 0;
  if (!version || !target || sscanf(version, ".version %d.%d", &major, &minor) != 2 ||
      sscanf(target, ".target sm_%d%n", &chip, &used) != 1 || strstr(text, "syntax error"))
    return strcpy(log, "ptxas application ptx input, line 1; fatal   : Parsing error near 'x': syntax error\n"),
           INVALID_PTX;
  if (10 * major + minor > state.ptx)
    return UNSUPPORTED_PTX;
  const int own = 10 * state.major + state.minor;
  return target[used] == 'a' ? (chip == own ? SUCCESS : NO_BINARY) : chip <= own ? SUCCESS : NO_BINARY;
}

static void skip_to(const char **text, const char *stops) { *text += strcspn(*text, stops); }

/// Reads one declaration of a parameter, such as `.param .align 64 .b8 name[128]`.
static void add_parameter(Function *function, const char *text, size_t length) {
  char copy[512];
  snprintf(copy, sizeof copy, "%.*s", (int)(length < 511 ? length : 511), text);
  static const struct {
    const char *type;
    int bytes;
  } types[] = {{".u64", 8}, {".b64", 8}, {".s64", 8}, {".f64", 8}, {".u32", 4}, {".b32", 4}, {".s32", 4}, {".f32", 4},
               {".u16", 2}, {".b16", 2}, {".s16", 2}, {".f16", 2}, {".u8", 1},  {".b8", 1},  {".s8", 1}};
  int bytes = 0;
  for (size_t i = 0; i < sizeof types / sizeof *types; ++i) {
    const char *found = strstr(copy, types[i].type);
    if (found && !isalnum((unsigned char)found[strlen(types[i].type)]))
      bytes = types[i].bytes;
  }
  size_t alignment = (size_t)bytes;
  const char *own = strstr(copy, ".align"), *array = strchr(copy, '[');
  if (own && !strstr(copy, ".ptr"))
    alignment = (size_t)atoi(own + 6);
  if (array)
    bytes *= atoi(array + 1);
  if (!bytes || function->params == 64)
    return;
  function->param_bytes = (function->param_bytes + alignment - 1) / alignment * alignment;
  function->offsets[function->params] = (int)function->param_bytes;
  function->sizes[function->params++] = bytes;
  function->param_bytes += (size_t)bytes;
}

static void find_functions(Module *module) {
  const char *text = module->text;
  while ((text = strstr(text, ".entry")) != NULL) {
    Function *function = calloc(1, sizeof *function);
    text += 6;
    text += strspn(text, " \t\n");
    size_t length = strcspn(text, " \t\n({");
    snprintf(function->name, NAME, "%.*s", (int)length, text);
    text += length;
    skip_to(&text, "({");
    if (*text == '(')
      for (++text; *text && *text != ')'; text += *text == ',') {
        const char *start = text;
        skip_to(&text, ",)");
        add_parameter(function, start, (size_t)(text - start));
      }
    const char *body = strchr(text, '{'), *limit = strstr(text, ".maxntid");
    int x = 1024, y = 1, z = 1;
    if (limit && body && limit < body)
      sscanf(limit, ".maxntid %d, %d, %d", &x, &y, &z);
    function->threads = x * y * z;
    function->dynamic = 49152;
    function->module = module;
    function->next = module->functions;
    module->functions = function;
  }
}

EXPORT int cuModuleLoadDataEx(void **handle, const void *image, unsigned count, int *options, void **values) {
  ENTER(1);
  REFUSE_CAPTURE();
  for (unsigned i = 0; i < count; ++i)
    if (options[i] != 5 && options[i] != 6)
      LEAVE(INVALID_VALUE);
  const char *text = image;
  char log[256];
  const size_t mark = strlen(cubin_mark);
  if (!strncmp(text, cubin_mark, mark)) {
    text += mark;
    if (check_ptx(text, log))
      LEAVE(NO_BINARY);
  } else if ((result = check_ptx(text, log))) {
    say(count, options, values, log);
    LEAVE(result);
  }
  Module *module = make(MODULE, sizeof *module);
  module->text = strdup(text);
  module->bytes = strlen(text);
  find_functions(module);
  *handle = module;
  trace("module %s\n", text == image ? "ptx" : "cubin");
  LEAVE(SUCCESS);
}
EXPORT int cuModuleUnload(void *module) {
  ENTER(1);
  if (!check_live(module, MODULE, __func__))
    LEAVE(INVALID_HANDLE);
  end(module);
  LEAVE(SUCCESS);
}
EXPORT int cuModuleGetFunction(void **handle, void *module, const char *name) {
  ENTER(1);
  if (!check_live(module, MODULE, __func__))
    LEAVE(INVALID_HANDLE);
  for (Function *function = ((Module *)module)->functions; function; function = function->next)
    if (!strcmp(function->name, name)) {
      *handle = function;
      LEAVE(SUCCESS);
    }
  LEAVE(NOT_FOUND);
}
EXPORT int cuFuncGetAttribute(int *value, int attribute, void *function) {
  ENTER(1);
  *value = attribute == 0 ? ((Function *)function)->threads : attribute == 8 ? ((Function *)function)->dynamic : 0;
  LEAVE(SUCCESS);
}
EXPORT int cuFuncSetAttribute(void *function, int attribute, int value) {
  ENTER(1);
  if (attribute != 8 || value < 0 || value > shared_memory())
    LEAVE(INVALID_VALUE);
  ((Function *)function)->dynamic = value;
  LEAVE(SUCCESS);
}
EXPORT int cuFuncGetParamInfo(void *function, size_t index, size_t *offset, size_t *bytes) {
  ENTER(1);
  Function *own = function;
  if (index >= (size_t)own->params)
    LEAVE(INVALID_VALUE);
  *offset = (size_t)own->offsets[index], *bytes = (size_t)own->sizes[index];
  LEAVE(SUCCESS);
}
typedef struct {
  int id, padding;
  int value;
  char rest[60];
} Attribute;
typedef struct {
  unsigned grid[3], block[3], shared;
  void *stream;
  Attribute *attributes;
  unsigned count;
} Config;
EXPORT int cuLaunchKernelEx(const Config *config, void *handle, void **params, void **extra) {
  ENTER(1);
  Function *function = handle;
  if (!is_live(function->module, MODULE)) {
    misuse("launch of kernel %s after its module was unloaded\n", function->name);
    LEAVE(INVALID_HANDLE);
  }
  unsigned threads = config->block[0] * config->block[1] * config->block[2];
  if (extra || !config->grid[0] || !config->grid[1] || !config->grid[2] || !threads ||
      config->grid[0] > 2147483647u || config->grid[1] > 65535 || config->grid[2] > 65535 ||
      threads > (unsigned)function->threads || config->shared > (unsigned)function->dynamic ||
      (function->params && !params))
    LEAVE(INVALID_VALUE);
  Stream *stream = stream_of(config->stream, __func__);
  if (!stream || stream->object.device != function->module->object.device)
    LEAVE(INVALID_HANDLE);
  for (unsigned i = 0; i < config->count; ++i)
    if (config->attributes[i].id != 6 || state.major < 9 || (stream->capturing && state.version < 12030))
      LEAVE(NOT_SUPPORTED);
  Op *op = new_op(LAUNCH);
  op->function = function;
  memcpy(op->grid, config->grid, sizeof op->grid);
  memcpy(op->block, config->block, sizeof op->block);
  op->shared = config->shared;
  for (unsigned i = 0; i < config->count; ++i)
    op->pdl = config->attributes[i].value;
  op->params = calloc(1, function->param_bytes + 1);
  for (int i = 0; i < function->params; ++i)
    memcpy((char *)op->params + function->offsets[i], params[i], (size_t)function->sizes[i]);
  trace("launch %s %u,%u,%u %u,%u,%u shared=%u pdl=%d\n", function->name, op->grid[0], op->grid[1], op->grid[2],
        op->block[0], op->block[1], op->block[2], op->shared, op->pdl);
  LEAVE(submit(config->stream, op, __func__));
}

/// Writes a tensor map as the emulator of PTX reads it: "RLXTMAP1", address u64, then as bytes element type, rank,
/// swizzle, promotion, fill; at 24 sizes - 1 (u32), at 44 the box (u16), at 56 strides in bytes (u64).
EXPORT int cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, void *address, const uint64_t *sizes,
                                  const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave,
                                  int swizzle, int promotion, int fill) {
  ENTER(1);
  if (state.major < 9)
    LEAVE(NOT_SUPPORTED);
  static const int element[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
  static const int span[] = {1 << 30, 32, 64, 128};
  if ((uintptr_t)map % 64 || type < 0 || type > 12 || rank < 1 || rank > 5 || (uintptr_t)address % 16 || interleave ||
      swizzle < 0 || swizzle > 3 || promotion < 0 || promotion > 3 || fill < 0 || fill > 1)
    LEAVE(INVALID_VALUE);
  const int inner = (int)box[0] * element[type];
  const int is_float = type >= 6;
  if (inner % 16 || inner > span[swizzle] || (fill && !is_float))
    LEAVE(INVALID_VALUE);
  unsigned char *bytes = memset(map, 0, 128);
  memcpy(bytes, "RLXTMAP1", 8);
  memcpy(bytes + 8, &address, 8);
  const unsigned char codes[] = {(unsigned char)type, (unsigned char)rank, (unsigned char)swizzle,
                                 (unsigned char)promotion, (unsigned char)fill};
  memcpy(bytes + 16, codes, sizeof codes);
  for (uint32_t i = 0; i < rank; ++i) {
    const uint32_t size = (uint32_t)(sizes[i] - 1);
    const uint16_t edge = (uint16_t)box[i];
    if (!sizes[i] || sizes[i] > 1ull << 31 || !box[i] || box[i] > 256 || steps[i] != 1)
      LEAVE(INVALID_VALUE);
    memcpy(bytes + 24 + 4 * i, &size, 4);
    memcpy(bytes + 44 + 2 * i, &edge, 2);
    if (i + 1 < rank) {
      if (strides[i] % 16 || strides[i] >> 40)
        LEAVE(INVALID_VALUE);
      memcpy(bytes + 56 + 8 * i, &strides[i], 8);
    }
  }
  LEAVE(SUCCESS);
}

#endif // FAKE_CODE_H
