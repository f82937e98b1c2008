// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Only LLVM's C API is used, whose functions keep their form between LLVM releases.
#include "loader.h"

#include "error.h"
#include "float_conversions.h"

#include <algorithm>
#include <cstring>
#include <elf.h>
#include <llvm-c/Core.h>
#include <llvm-c/Error.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/Orc.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <memory>
#include <mutex>
#include <pthread.h>

namespace rlx::runtime {
namespace {

//===----------------------------------------------------------------------===//
// Functions that compiled code may call, whatever the process offers
//===----------------------------------------------------------------------===//

// A 16-bit float is passed and returned in the low half of the register that holds a `float`, on
// x86-64 as on AArch64, so `float` stands for it here; older compilers have no type for it.
float returnedHalf(uint16_t bits) { return bitsOf<float>(uint32_t(bits)); }
uint16_t passedHalf(float half) { return uint16_t(bitsOf<uint32_t>(half)); }

uint16_t halfOf(float x) { return narrowFloat<32, 23, 10>(bitsOf<uint32_t>(x)); }
float truncsfhf2(float x) { return returnedHalf(halfOf(x)); }
float truncdfhf2(double x) { return returnedHalf(narrowFloat<64, 52, 10>(bitsOf<uint64_t>(x))); }
float truncsfbf2(float x) { return returnedHalf(narrowFloat<32, 23, 7>(bitsOf<uint32_t>(x))); }
float truncdfbf2(double x) { return returnedHalf(narrowFloat<64, 52, 7>(bitsOf<uint64_t>(x))); }
float extendhfsf2(float half) { return widenHalf(passedHalf(half)); }
double extendhfdf2(float half) { return widenHalf(passedHalf(half)); }

/// x to a whole power by repeated squaring, for llvm.powi.
template <typename Float> Float powi(Float x, int n) {
  Float result = 1;
  for (unsigned rest = n < 0 ? 0u - unsigned(n) : unsigned(n);; x *= x) {
    if (rest & 1)
      result *= x;
    if ((rest >>= 1) == 0)
      return n < 0 ? 1 / result : result;
  }
}
float powisf2(float x, int n) { return powi(x, n); }
double powidf2(double x, int n) { return powi(x, n); }

const HostSymbol kHelpers[] = {
    {"__truncsfhf2", reinterpret_cast<void *>(truncsfhf2)},
    {"__truncdfhf2", reinterpret_cast<void *>(truncdfhf2)},
    {"__truncsfbf2", reinterpret_cast<void *>(truncsfbf2)},
    {"__truncdfbf2", reinterpret_cast<void *>(truncdfbf2)},
    {"__extendhfsf2", reinterpret_cast<void *>(extendhfsf2)},
    {"__extendhfdf2", reinterpret_cast<void *>(extendhfdf2)},
    {"__gnu_f2h_ieee", reinterpret_cast<void *>(halfOf)},
    {"__gnu_h2f_ieee", reinterpret_cast<void *>(widenHalf)},
    {"__powisf2", reinterpret_cast<void *>(powisf2)},
    {"__powidf2", reinterpret_cast<void *>(powidf2)},
};

//===----------------------------------------------------------------------===//
// LLVM
//===----------------------------------------------------------------------===//

/// One thread at a time uses LLVM, and none of them while the process forks: LLVM's own locks would
/// stay locked in the child.
std::mutex llvmMutex;

const bool forkHandlers = [] {
  pthread_atfork([] { llvmMutex.lock(); }, [] { llvmMutex.unlock(); }, [] { llvmMutex.unlock(); });
  return true;
}();

std::string take(LLVMErrorRef error) {
  char *message = LLVMGetErrorMessage(error); // consumes the error
  std::string text = message;
  LLVMDisposeErrorMessage(message);
  return text;
}

std::string take(char *message) {
  std::string text = message;
  LLVMDisposeMessage(message);
  return text;
}

void initialiseTarget() {
  static const bool done = [] {
    if (LLVMInitializeNativeTarget() || LLVMInitializeNativeAsmPrinter())
      throw ExecutionError("this build of LLVM has no back end for this machine");
    return true;
  }();
  (void)done;
}

/// Says what is wrong with the outline of an object, or returns "". LLVM reports most damage, but
/// may read beyond the end of an object that was cut off.
std::string outlineProblem(std::string_view object) {
#if defined(__x86_64__)
  constexpr unsigned machine = EM_X86_64;
#elif defined(__aarch64__)
  constexpr unsigned machine = EM_AARCH64;
#else
#error "rlx_mlir runs on x86-64 and AArch64"
#endif
  Elf64_Ehdr header;
  if (object.size() < sizeof(header))
    return "it has " + std::to_string(object.size()) + " bytes, fewer than an ELF header";
  std::memcpy(&header, object.data(), sizeof(header));
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
    return "it is not an ELF file";
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_machine != machine)
    return "it is for ELF machine " + std::to_string(header.e_machine) + ", this is machine " +
           std::to_string(machine);
  if (header.e_type != ET_REL)
    return "it is ELF type " + std::to_string(header.e_type) +
           ", not a relocatable object (type 1)";
  auto inside = [&](uint64_t offset, uint64_t bytes) {
    return offset <= object.size() && bytes <= object.size() - offset;
  };
  uint64_t tableBytes = uint64_t(header.e_shnum) * sizeof(Elf64_Shdr);
  if (header.e_shentsize != sizeof(Elf64_Shdr) || !inside(header.e_shoff, tableBytes))
    return "its section table lies beyond its end at byte " + std::to_string(object.size());
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section, object.data() + header.e_shoff + i * sizeof(section), sizeof(section));
    if (section.sh_type != SHT_NOBITS && !inside(section.sh_offset, section.sh_size))
      return "its section " + std::to_string(i) + " lies beyond its end at byte " +
             std::to_string(object.size());
  }
  return "";
}

} // namespace

struct ObjectCode::Session {
  LLVMOrcLLJITRef jit = nullptr;
  /// What the linker said: a failed lookup itself only says that something failed.
  std::string reported;

  ~Session() {
    if (jit == nullptr)
      return;
    if (LLVMErrorRef error = LLVMOrcDisposeLLJIT(jit))
      LLVMConsumeError(error);
  }

  static void report(void *self, LLVMErrorRef error) {
    std::string &text = static_cast<Session *>(self)->reported;
    text += (text.empty() ? "" : "; ") + take(error);
  }

  /// Throws `what`, `error` and everything that was reported so far.
  [[noreturn]] void fail(const std::string &what, LLVMErrorRef error) {
    std::string reason = take(error);
    if (!reported.empty())
      reason += "; " + reported;
    throw ExecutionError(what + ": " + reason);
  }

  void define(const std::vector<HostSymbol> &functions) {
    std::vector<LLVMOrcCSymbolMapPair> symbols;
    // Weak: an object that brings its own wins.
    const uint8_t flags = LLVMJITSymbolGenericFlagsExported | LLVMJITSymbolGenericFlagsCallable |
                          LLVMJITSymbolGenericFlagsWeak;
    auto add = [&](const HostSymbol &symbol) {
      symbols.push_back({LLVMOrcLLJITMangleAndIntern(jit, symbol.name),
                         {reinterpret_cast<LLVMOrcExecutorAddress>(symbol.address), {flags, 0}}});
    };
    std::for_each(std::begin(kHelpers), std::end(kHelpers), add);
    std::for_each(functions.begin(), functions.end(), add);
    LLVMOrcMaterializationUnitRef unit = LLVMOrcAbsoluteSymbols(symbols.data(), symbols.size());
    if (LLVMErrorRef error = LLVMOrcJITDylibDefine(LLVMOrcLLJITGetMainJITDylib(jit), unit)) {
      LLVMOrcDisposeMaterializationUnit(unit);
      fail("cannot define the functions of the host program", error);
    }
  }
};

ObjectCode::ObjectCode(const std::vector<std::string_view> &objects,
                       const std::vector<HostSymbol> &functions) {
  for (size_t i = 0; i < objects.size(); ++i)
    if (std::string problem = outlineProblem(objects[i]); !problem.empty())
      throw ExecutionError("object " + std::to_string(i) + " cannot be loaded: " + problem);

  std::lock_guard<std::mutex> guard(llvmMutex);
  initialiseTarget();
  auto made = std::make_unique<Session>();
  if (LLVMErrorRef error = LLVMOrcCreateLLJIT(&made->jit, nullptr))
    made->fail("cannot create a linker for this machine", error);
  LLVMOrcExecutionSessionSetErrorReporter(LLVMOrcLLJITGetExecutionSession(made->jit),
                                          Session::report, made.get());
  made->define(functions);
  LLVMOrcJITDylibRef library = LLVMOrcLLJITGetMainJITDylib(made->jit);
  for (size_t i = 0; i < objects.size(); ++i) {
    std::string name = "object " + std::to_string(i);
    LLVMMemoryBufferRef copy = LLVMCreateMemoryBufferWithMemoryRangeCopy(
        objects[i].data(), objects[i].size(), name.c_str());
    if (LLVMErrorRef error = LLVMOrcLLJITAddObjectFile(made->jit, library, copy))
      made->fail(name + " cannot be loaded", error);
  }
  session = made.release();
}

ObjectCode::~ObjectCode() {
  std::lock_guard<std::mutex> guard(llvmMutex);
  delete session;
}

void *ObjectCode::lookup(const std::string &name) {
  std::lock_guard<std::mutex> guard(llvmMutex);
  LLVMOrcExecutorAddress address = 0;
  if (LLVMErrorRef error = LLVMOrcLLJITLookup(session->jit, &address, name.c_str()))
    session->fail("symbol '" + name + "' cannot be loaded", error);
  return reinterpret_cast<void *>(address);
}

void *ObjectCode::find(const std::string &name) {
  std::lock_guard<std::mutex> guard(llvmMutex);
  LLVMOrcExecutorAddress address = 0;
  if (LLVMErrorRef error = LLVMOrcLLJITLookup(session->jit, &address, name.c_str())) {
    LLVMConsumeError(error);
    return nullptr;
  }
  return reinterpret_cast<void *>(address);
}

HostTarget hostTarget() {
  std::lock_guard<std::mutex> guard(llvmMutex);
  return {take(LLVMGetDefaultTargetTriple()), take(LLVMGetHostCPUName()),
          take(LLVMGetHostCPUFeatures())};
}

} // namespace rlx::runtime
