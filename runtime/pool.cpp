// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "pool.h"

#include "error.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cfenv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

namespace rlx::runtime {
namespace {

using Clock = std::chrono::steady_clock;

/// How long a thread spins before it gives up its CPU. Longer than the serial gaps between two
/// kernels, far shorter than what a user would notice as load.
constexpr auto kSpinTime = std::chrono::microseconds(50);
/// How long the caller yields, after spinning, before it sleeps until its workers are done.
constexpr auto kYieldTime = std::chrono::milliseconds(1);

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  // `yield` does nothing on most cores; `isb` takes about as long as x86's `pause`.
  __asm__ __volatile__("isb" ::: "memory");
#endif
}

void futexWait(std::atomic<uint32_t> &word, uint32_t expected) {
  syscall(SYS_futex, reinterpret_cast<uint32_t *>(&word), FUTEX_WAIT_PRIVATE, expected, nullptr,
          nullptr, 0);
}

void futexWake(std::atomic<uint32_t> &word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t *>(&word), FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr,
          0);
}

/// Keeps this thread off a CPU while it lives; a thread that runs there moves at once. Where the
/// thread may use no other CPU, it does nothing.
///
/// Left to itself, a kernel may wake a worker on the CPU where its caller computes, and leave the
/// two there in turns for more than 10 ms, with another CPU idle.
class Aside {
public:
  explicit Aside(int cpu) {
    if (cpu < 0 || cpu >= CPU_SETSIZE || sched_getaffinity(0, sizeof(all), &all) != 0)
      return;
    others = all;
    CPU_CLR(cpu, &others);
    moved = CPU_COUNT(&others) > 0 && sched_setaffinity(0, sizeof(others), &others) == 0;
  }

  ~Aside() {
    // Whoever set this thread's CPUs meanwhile is right.
    cpu_set_t now;
    if (moved && sched_getaffinity(0, sizeof(now), &now) == 0 && CPU_EQUAL(&now, &others))
      sched_setaffinity(0, sizeof(all), &all);
  }

  Aside(const Aside &) = delete;
  Aside &operator=(const Aside &) = delete;

private:
  cpu_set_t all, others;
  bool moved = false;
};

//===----------------------------------------------------------------------===//
// The pool
//===----------------------------------------------------------------------===//

/// What one worker and the caller say to each other; a cache line pair of its own, since
/// neighbouring lines are prefetched together.
struct alignas(128) Slot {
  /// 2e: the range of region e is on offer. 2e + 1: it is taken. 0: nothing was offered yet.
  /// Whoever changes 2e to 2e + 1 does the range.
  std::atomic<uint64_t> state{0};
  /// 1 while the worker sleeps, or is about to; also the futex that it sleeps on.
  std::atomic<uint32_t> asleep{0};
};

bool onOffer(uint64_t state) { return state != 0 && (state & 1) == 0; }

/// True on workers, and on a caller while it is in a region.
thread_local bool inRegion = false;
/// True in ranges of the host program.
thread_local bool inHostRange = false;

class Pool {
public:
  void run(RangeFn fn, void *context, int64_t units, int threads);
  // Without the turn, which a range's own region holds.
  int workerCount() const { return workers.load(std::memory_order_relaxed); }

private:
  static constexpr uint32_t kCallerSleeps = 1u << 31;

  static void *workerMain(void *slot);
  void serve(int worker);
  uint64_t waitForOffer(Slot &slot);
  void grow(int wanted);
  void offer(Slot &slot);
  void takeOver(int worker);
  void waitForWorkers();

  void runRange(int range, int thread) {
    // units * range / threads, without an overflow.
    int64_t quotient = units / threads, rest = units % threads;
    int64_t begin = quotient * range + rest * range / threads;
    int64_t end = quotient * (range + 1) + rest * (range + 1) / threads;
    fn(context, begin, end, thread);
  }

  void finishRange() {
    if (left.fetch_sub(1, std::memory_order_acq_rel) == (kCallerSleeps | 1))
      futexWake(left);
  }

  // The region: written by the caller before it offers ranges, read by whoever took one, and not
  // written again before every range is done.
  RangeFn fn = nullptr;
  void *context = nullptr;
  int64_t units = 0;
  int threads = 0;

  std::mutex turn; // held by the host thread whose region it is
  uint64_t region = 0;
  std::atomic<int> workers{0}; // changed by who has the turn
  int cpus = 1;

  /// True where the last region had more threads than there are CPUs: spinning would then take the
  /// CPU from the thread that is waited for.
  alignas(128) std::atomic<bool> crowded{false};
  /// Where the caller of the last region ran when it began.
  std::atomic<int> callerCpu{-1};
  /// Ranges of workers that are not done yet, and kCallerSleeps.
  alignas(128) std::atomic<uint32_t> left{0};
  Slot slots[kMaxThreads]; // slot 0 is not used: the caller is thread 0
};

/// Never destroyed: workers use it until the process is gone.
alignas(Pool) unsigned char poolStorage[sizeof(Pool)];
Pool &pool() { return *std::launder(reinterpret_cast<Pool *>(poolStorage)); }

/// Waits for `ready` for `kSpinTime`; false when the time is over. Leaves the CPU to others, now
/// and then, while `inTheWay` is true.
template <typename Ready, typename InTheWay> bool spin(Ready ready, InTheWay inTheWay) {
  Clock::time_point end{};
  for (;;) {
    if (inTheWay())
      sched_yield();
    for (int i = 0; i < 64; ++i) {
      if (ready())
        return true;
      relax();
    }
    Clock::time_point now = Clock::now();
    if (end == Clock::time_point{})
      end = now + kSpinTime;
    else if (now >= end)
      return false;
  }
}

uint64_t Pool::waitForOffer(Slot &slot) {
  auto inTheWay = [this] {
    if (crowded.load(std::memory_order_relaxed))
      return true;
    int caller = callerCpu.load(std::memory_order_relaxed);
    if (sched_getcpu() == caller)
      Aside moves(caller);
    return sched_getcpu() == caller;
  };
  uint64_t state = 0;
  auto offered = [&] { return onOffer(state = slot.state.load(std::memory_order_acquire)); };
  while (!spin(offered, inTheWay)) {
    // Both sides write their own word and then read the other's, in one order for all threads:
    // either this thread sees the offer, or the caller sees that it has to wake this thread.
    slot.asleep.store(1, std::memory_order_seq_cst);
    if (!onOffer(slot.state.load(std::memory_order_seq_cst))) {
      Aside wakesElsewhere(callerCpu.load(std::memory_order_relaxed));
      futexWait(slot.asleep, 1);
    }
    slot.asleep.store(0, std::memory_order_relaxed);
  }
  return state;
}

void Pool::serve(int worker) {
  Slot &slot = slots[worker];
  for (;;) {
    uint64_t state = waitForOffer(slot);
    if (!slot.state.compare_exchange_strong(state, state + 1, std::memory_order_acq_rel))
      continue; // the caller took the range over
    runRange(worker, worker);
    finishRange();
  }
}

void *Pool::workerMain(void *slot) {
  inRegion = true;
  // Results must not depend on the rounding and denormal modes of the thread that happened to
  // create this one.
  std::fesetenv(FE_DFL_ENV);
  pool().serve(static_cast<int>(static_cast<Slot *>(slot) - pool().slots));
  return nullptr;
}

/// Creates workers up to number `wanted`. Where the system refuses, the caller takes their ranges
/// over.
void Pool::grow(int wanted) {
  if (workers >= wanted)
    return;
  cpus = availableCpus();
  // Signals belong to the threads of the host program.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  while (workers < wanted) {
    pthread_t thread;
    if (pthread_create(&thread, &attributes, workerMain, &slots[workers + 1]) != 0)
      break;
    pthread_setname_np(thread, "rlx-worker");
    ++workers;
  }
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Pool::offer(Slot &slot) {
  slot.state.store(2 * region, std::memory_order_seq_cst);
  if (slot.asleep.load(std::memory_order_seq_cst) != 0) {
    slot.asleep.store(0, std::memory_order_relaxed);
    futexWake(slot.asleep);
  }
}

void Pool::takeOver(int worker) {
  uint64_t offered = 2 * region;
  std::atomic<uint64_t> &state = slots[worker].state;
  if (state.load(std::memory_order_relaxed) != offered ||
      !state.compare_exchange_strong(offered, offered + 1, std::memory_order_acq_rel))
    return;
  runRange(worker, 0);
  left.fetch_sub(1, std::memory_order_relaxed);
}

void Pool::waitForWorkers() {
  auto done = [this] { return left.load(std::memory_order_acquire) == 0; };
  if (spin(done, [this] { return crowded.load(std::memory_order_relaxed); }))
    return;
  Clock::time_point end = Clock::now() + kYieldTime;
  do {
    if (done())
      return;
    sched_yield();
  } while (Clock::now() < end);
  uint32_t value = left.fetch_or(kCallerSleeps, std::memory_order_acq_rel) | kCallerSleeps;
  while (value != kCallerSleeps) {
    futexWait(left, value);
    value = left.load(std::memory_order_acquire);
  }
}

void Pool::run(RangeFn newFn, void *newContext, int64_t newUnits, int newThreads) {
  std::lock_guard<std::mutex> guard(turn);
  inRegion = true;
  grow(newThreads - 1);
  fn = newFn;
  context = newContext;
  units = newUnits;
  threads = newThreads;
  ++region;
  bool overfull = threads > cpus;
  if (crowded.load(std::memory_order_relaxed) != overfull)
    crowded.store(overfull, std::memory_order_relaxed);
  int cpu = sched_getcpu();
  if (callerCpu.load(std::memory_order_relaxed) != cpu)
    callerCpu.store(cpu, std::memory_order_relaxed);
  left.store(static_cast<uint32_t>(threads - 1), std::memory_order_relaxed);
  for (int worker = 1; worker < threads; ++worker)
    offer(slots[worker]);
  runRange(0, 0);
  // Workers are woken first to last, so the last is the likeliest to be asleep still.
  for (int worker = threads - 1; worker > 0; --worker)
    takeOver(worker);
  waitForWorkers();
  inRegion = false;
}

//===----------------------------------------------------------------------===//
// fork()
//===----------------------------------------------------------------------===//

std::atomic<uint64_t> generation{0};
/// Guards the list of mutexes below; held while the process forks.
std::mutex registryMutex;
ForkSafeMutex *registry = nullptr;

void resetPool() {
  // Only the forking thread lives on in the child: nobody uses what is overwritten here.
  inRegion = false;
  new (poolStorage) Pool;
}

} // namespace

void resetMutexesAfterFork() {
  for (ForkSafeMutex *entry = registry; entry != nullptr; entry = entry->next)
    new (&entry->mutex) std::mutex;
}

namespace {

/// Makes the pool and its fork handlers when the library is loaded.
const bool poolMade = [] {
  new (poolStorage) Pool;
  pthread_atfork([] { registryMutex.lock(); }, [] { registryMutex.unlock(); },
                 [] {
                   registryMutex.unlock();
                   generation.fetch_add(1);
                   resetPool();
                   resetMutexesAfterFork();
                 });
  return true;
}();

} // namespace

ForkSafeMutex::ForkSafeMutex() {
  std::lock_guard<std::mutex> guard(registryMutex);
  next = registry;
  if (next)
    next->previous = this;
  registry = this;
}

ForkSafeMutex::~ForkSafeMutex() {
  std::lock_guard<std::mutex> guard(registryMutex);
  (previous ? previous->next : registry) = next;
  if (next)
    next->previous = previous;
}

uint64_t forkGeneration() { return generation.load(std::memory_order_relaxed); }

void parallelFor(RangeFn fn, void *context, int64_t units, int threads) {
  if (units <= 0)
    return;
  int team = static_cast<int>(std::min<int64_t>({units, threads, kMaxThreads}));
  if (team <= 1 || inRegion)
    fn(context, 0, units, 0);
  else
    pool().run(fn, context, units, team);
}

int workerCount() { return pool().workerCount(); }

HostRange::HostRange() : outer(inHostRange) { inHostRange = true; }
HostRange::~HostRange() { inHostRange = outer; }

void HostRange::refuse(const char *what) {
  if (inHostRange)
    throw InputError(std::string(what) +
                     " inside a range of a parallel loop: it could wait for ever for a thread that "
                     "waits for the loop's end");
}

//===----------------------------------------------------------------------===//
// How many threads
//===----------------------------------------------------------------------===//

int availableCpus() {
  // The kernel refuses a mask shorter than its own, which may be longer than cpu_set_t.
  for (int cpus = CPU_SETSIZE; cpus <= (1 << 20); cpus *= 2) {
    cpu_set_t *mask = CPU_ALLOC(cpus);
    if (mask == nullptr)
      break;
    size_t bytes = CPU_ALLOC_SIZE(cpus);
    bool known = sched_getaffinity(0, bytes, mask) == 0;
    bool tooShort = !known && errno == EINVAL;
    int count = known ? CPU_COUNT_S(bytes, mask) : 0;
    CPU_FREE(mask);
    if (count > 0)
      return count;
    if (!tooShort)
      break;
  }
  return std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
}

namespace {

std::vector<std::string> split(const std::string &text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

/// What a file has; nothing where it can't be read. Streams of C++ would bring all of its locales
/// into libraries that are linked with this.
std::string contentsOf(const std::string &path) {
  std::string contents;
  FILE *file = std::fopen(path.c_str(), "re");
  if (file == nullptr)
    return contents;
  char buffer[4096];
  while (const size_t count = std::fread(buffer, 1, sizeof(buffer), file))
    contents.append(buffer, count);
  std::fclose(file);
  return contents;
}

bool contains(const std::vector<std::string> &list, const char *word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

/// The path of `group` below a mount that shows the hierarchy from `mountRoot` on: "" for the mount
/// itself, also where the group lies outside of what the mount shows, as it does in some
/// containers.
std::string pathBelowMount(std::string group, const std::string &mountRoot) {
  if (group.find("..") != std::string::npos)
    return "";
  if (mountRoot != "/") {
    if (group.compare(0, mountRoot.size(), mountRoot) != 0)
      return "";
    group.erase(0, mountRoot.size());
    if (!group.empty() && group[0] != '/')
      return "";
  }
  return group == "/" ? "" : group;
}

/// The quota written in `folder`, in CPUs; version 1 or 2 files.
std::optional<double> quotaOfFolder(const std::string &folder, bool version2) {
  const std::string text = version2 ? contentsOf(folder + "/cpu.max")
                                    : contentsOf(folder + "/cpu.cfs_quota_us") + " " +
                                          contentsOf(folder + "/cpu.cfs_period_us");
  char *rest = nullptr;
  const double quota = std::strtod(text.c_str(), &rest); // 0 for the word `max`
  const double period = std::strtod(rest, nullptr);
  if (!(quota > 0) || !(period > 0))
    return std::nullopt;
  return quota / period;
}

/// `text` as a number from 1 to `maximum`; 0 where it isn't one.
int parseThreads(const char *text, int maximum) {
  int value = 0;
  if (*text == '\0')
    return 0;
  for (; *text != '\0'; ++text) {
    if (*text < '0' || *text > '9')
      return 0;
    value = value * 10 + (*text - '0');
    if (value > maximum)
      return 0;
  }
  return value;
}

} // namespace

std::optional<double> cpuQuota(const std::string &root) {
  // Lines of /proc/self/cgroup: "0::/path" (version 2) or "3:cpu,cpuacct:/path" (version 1).
  std::string group1, group2;
  for (const std::string &line : split(contentsOf(root + "/proc/self/cgroup"), '\n')) {
    size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos)
      continue;
    std::string controllers = line.substr(first + 1, second - first - 1);
    if (controllers.empty())
      group2 = line.substr(second + 1);
    else if (contains(split(controllers, ','), "cpu"))
      group1 = line.substr(second + 1);
  }

  std::optional<double> tightest;
  for (const std::string &line : split(contentsOf(root + "/proc/self/mountinfo"), '\n')) {
    // id, parent, device, root, mount point, options, any number of tags, "-", type, source,
    // options
    std::vector<std::string> fields = split(line, ' ');
    auto dash = std::find(fields.begin(), fields.end(), "-");
    if (fields.end() - dash < 4 || dash - fields.begin() < 6)
      continue;
    bool version2 = dash[1] == "cgroup2";
    if (!version2 && (dash[1] != "cgroup" || !contains(split(dash[3], ','), "cpu")))
      continue;
    const std::string &group = version2 ? group2 : group1;
    if (group.empty())
      continue;
    // A group is also bound by the limits of the groups that it lies in.
    std::string below = pathBelowMount(group, fields[3]);
    for (;;) {
      std::optional<double> quota = quotaOfFolder(root + fields[4] + below, version2);
      if (quota && (!tightest || *quota < *tightest))
        tightest = quota;
      if (below.empty())
        break;
      below.erase(below.rfind('/'));
    }
  }
  return tightest;
}

int defaultThreads() {
  if (const char *text = std::getenv("RLX_NUM_THREADS")) {
    int threads = parseThreads(text, kMaxThreads);
    if (threads == 0)
      throw InputError("RLX_NUM_THREADS must be a whole number from 1 to " +
                       std::to_string(kMaxThreads) + ", but it is '" + text + "'");
    return threads;
  }
  int threads = std::min(availableCpus(), kMaxThreads);
  // Rounded down: a team that is larger than its quota is stopped in the middle of a region.
  if (std::optional<double> quota = cpuQuota(""))
    threads = std::max(1, std::min(threads, static_cast<int>(std::min(*quota, 1e6))));
  // Not ours to judge: a list such as "4,2" or a mistake changes nothing.
  if (const char *text = std::getenv("OMP_NUM_THREADS"))
    if (int limit = parseThreads(text, 1 << 20))
      threads = std::min(threads, limit);
  return threads;
}

} // namespace rlx::runtime
