#include "runtime/dropped_work.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/error.h"

namespace pyrdma::runtime {

// A step of other work may add work; the step holds the lock.
void DroppedWork::add(std::unique_ptr<Unfinished> work) {
  if (stepping_) return added_.push_back(std::move(work));
  const std::lock_guard lock(mutex_);
  work_.push_back(std::move(work));
  count_.store(work_.size(), std::memory_order_release);
}

// The thread of the caller destroys the work, because the work may hold its blocks. Another object
// may get the address of this one: it must not hear of this one's errors.
void DroppedWork::forget(const void* object) {
  static constexpr char kNoObject = 0;  // that of work which outlives its own
  if (!any() && !has_errors()) return;
  const std::lock_guard lock(mutex_);
  for (const auto& work : work_) {
    if (work->object_ == object) work->object_ = work->outlive() ? &kNoObject : nullptr;
  }
  for (Failure& failure : failures_) {
    if (failure.object == object) failure.object = nullptr;
  }
}

bool DroppedWork::step() {
  const std::lock_guard lock(mutex_);
  struct Stepping {
    bool& flag;
    ~Stepping() { flag = false; }
  } const stepping{stepping_ = true};
  bool ended = false, again = true;
  while (again) {  // the end of one may let another go on, and nothing else wakes a waiter then
    again = false;
    for (const auto& work : work_) {
      const void* const object = work->object_;
      if (object == nullptr) continue;
      try {
        if (!work->poll()) continue;
        work->object_ = nullptr;
        again = ended = true;
      } catch (const Error& failure) {
        if (!std::exchange(work->reported_, true))
          failures_.push_back({object, std::current_exception()});
        if (failure.code() == ErrorCode::kTimeout) continue;
        work->object_ = nullptr;
        again = ended = true;
      }
    }
  }
  std::erase_if(work_, [](const auto& work) { return work->object_ == nullptr; });
  for (auto& work : added_) work_.push_back(std::move(work));
  added_.clear();
  count_.store(work_.size(), std::memory_order_release);
  has_errors_.store(!failures_.empty(), std::memory_order_release);
  return ended;
}

bool DroppedWork::give_up() {
  const std::lock_guard lock(mutex_);
  const bool reported = std::all_of(work_.begin(), work_.end(), [](const auto& work) {
    return work->reported_ || work->object_ == nullptr;
  });
  work_.clear();
  count_.store(0, std::memory_order_release);
  return reported;
}

void DroppedWork::report(const void* object) {
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(failures_.begin(), failures_.end(),
                                    [&](const Failure& each) { return each.object == object; });
    if (found == failures_.end()) return;
    error = std::move(found->error);
    failures_.erase(found);
    has_errors_.store(!failures_.empty(), std::memory_order_release);
  }
  std::rethrow_exception(error);
}

void DroppedWork::report_all() {
  std::vector<Failure> failures;
  {
    const std::lock_guard lock(mutex_);
    failures = std::exchange(failures_, {});
    has_errors_.store(false, std::memory_order_release);
  }
  if (!failures.empty()) std::rethrow_exception(failures.front().error);
}

}  // namespace pyrdma::runtime
