// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "passes/Watch.h"

using namespace rlx;

static thread_local Working *innermost = nullptr;

static double secondsSince(Watch::Clock::time_point begin) {
  return std::chrono::duration<double>(Watch::Clock::now() - begin).count();
}

Watch::Watch(double seconds)
    : limited(seconds > 0),
      deadline(Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                  std::chrono::duration<double>(limited ? seconds : 0))) {}

bool Watch::isOver() {
  if (stopped)
    return true;
  if (!limited || Clock::now() < deadline)
    return false;
  std::lock_guard<std::mutex> guard(lock);
  if (!late.exchange(true))
    found = innermost && innermost->watch == this && !innermost->place.first.empty()
                ? innermost->place
                : last;
  stopped = true;
  return true;
}

Watch::Place Watch::place() const {
  std::lock_guard<std::mutex> guard(lock);
  return found;
}

std::vector<Watch::Work> Watch::work() const {
  std::lock_guard<std::mutex> guard(lock);
  return {seconds.begin(), seconds.end()};
}

Watch *Watch::current() { return innermost ? innermost->watch : nullptr; }

void Watch::add(const Place &place, double own) {
  std::lock_guard<std::mutex> guard(lock);
  seconds[place] += own;
  last = place;
}

Working::Working(Watch *watch, std::string pass, std::string unit)
    : watch(watch), outer(innermost), place(std::move(pass), std::move(unit)),
      begin(Watch::Clock::now()) {
  innermost = this;
}

Working::~Working() {
  innermost = outer;
  double whole = secondsSince(begin);
  if (outer)
    outer->inner += whole;
  if (watch && !place.first.empty())
    watch->add(place, whole - inner);
}
