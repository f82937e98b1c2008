// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a compilation is ended early, and what is said of where its time went.

#ifndef RLX_PASSES_WATCH_H
#define RLX_PASSES_WATCH_H

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace rlx {

/// Observes a compilation, whose threads ask it whether to go on: before each pass of MLIR and each
/// application of a pattern, before each optional pass of LLVM, and before code generation of each
/// function. What is under way then isn't interrupted.
class Watch {
public:
  using Clock = std::chrono::steady_clock;
  /// A pass, and the function that it ran on, empty where it ran on more than one.
  using Place = std::pair<std::string, std::string>;
  using Work = std::pair<Place, double>;

  /// The time is up so many seconds from now; never where they are 0.
  explicit Watch(double seconds);

  /// Ends the compilation; from any thread.
  void stop() { stopped = true; }
  /// Whether it is to end.
  bool isOver();
  /// Whether it ends because its time was up.
  bool isLate() const { return late; }
  /// What ran when its time was up.
  Place place() const;
  /// Seconds of each place, without those of what ran inside of it; of all threads together.
  std::vector<Work> work() const;

  /// The watch of what this thread does, or null.
  static Watch *current();

private:
  friend class Working;
  void add(const Place &place, double seconds);

  std::atomic<bool> stopped{false}, late{false};
  bool limited;
  Clock::time_point deadline;
  mutable std::mutex lock;
  std::map<Place, double> seconds;
  Place last, found;
};

/// A piece of work of this thread, from here to the end of the scope; they nest.
class Working {
public:
  /// Work whose pass is empty is only a frame for what runs inside of it.
  Working(Watch *watch, std::string pass, std::string unit);
  ~Working();
  Working(const Working &) = delete;
  Working &operator=(const Working &) = delete;

private:
  friend class Watch;
  Watch *watch;
  Working *outer;
  Watch::Place place;
  Watch::Clock::time_point begin;
  double inner = 0;
};

} // namespace rlx

#endif // RLX_PASSES_WATCH_H
