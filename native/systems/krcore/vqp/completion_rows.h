// The software completion queue of a virtual queue pair (section 4.4).
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "fabric/types.h"

namespace pyrdma::krcore {

/// A row of the software completion queue. A request without a signal has one too, which nobody
/// sees unless the request fails.
struct CompletionEntry {
  std::uint64_t wr_id = 0;
  std::uint64_t ticket = 0;  // of a zero-copy send, which waits for its receiver
  fabric::Opcode opcode = fabric::Opcode::kWrite;
  fabric::Status status = fabric::Status::kSuccess;
  bool is_signaled = false, is_ready = false;

  /// The request succeeded, and its owner asked for no completion.
  bool is_silent() const { return is_ready && !is_signaled && status == fabric::Status::kSuccess; }
};

/// The rows in the order of their requests. Their numbers are never used again. The memory grows
/// with the most rows at a time.
class CompletionRows {
 public:
  std::size_t size() const { return static_cast<std::size_t>(end_ - begin_); }
  bool empty() const { return begin_ == end_; }
  /// Numbers of the oldest row and of the next one.
  std::uint64_t begin() const { return begin_; }
  std::uint64_t end() const { return end_; }
  CompletionEntry& operator[](std::uint64_t number) { return rows_[number & (places_ - 1)]; }
  /// Returns the newest row that is ready, or was until its owner took it. Null if it is not known,
  /// or there was none.
  const CompletionEntry* newest_ready() {
    std::uint64_t after = end_;
    while (after != begin_ && !(*this)[after - 1].is_ready) --after;
    return after == 0 || end_ - after >= places_ ? nullptr : &(*this)[after - 1];
  }
  CompletionEntry& front() { return (*this)[begin_]; }
  bool contains(std::uint64_t number) const { return number - begin_ < size(); }
  void pop_front() { ++begin_; }
  void pop_silent() {
    while (!empty() && front().is_silent()) ++begin_;
  }
  void clear() {
    begin_ = end_;
    failed_ = kNone;
  }
  /// A request has ended. None succeeds behind one that has failed, as on a real queue pair. It may
  /// have: a long message may be read before completions are taken, and its receiver drops what
  /// follows a lost message, which has left this node. The first end of a row counts: the answer to
  /// a long message may come behind its flush, which those behind it have felt.
  void end(std::uint64_t number, fabric::Status status) {
    CompletionEntry& row = (*this)[number];
    if (row.is_ready) return;
    const bool is_ok = status == fabric::Status::kSuccess;
    row.is_ready = true;
    row.status = is_ok && number > failed_ ? fabric::Status::kFlushed : status;
    if (is_ok || number > failed_) return;
    failed_ = number;
    for (std::uint64_t later = number + 1; later < end_; ++later) {
      CompletionEntry& each = (*this)[later];
      if (each.is_ready && each.status == fabric::Status::kSuccess)
        each.status = fabric::Status::kFlushed;
    }
  }
  /// Since clear().
  bool has_failed() const { return failed_ != kNone; }
  /// Returns the row's number.
  std::uint64_t push_back(CompletionEntry row) {
    reserve(1);
    (*this)[end_] = row;
    return end_++;
  }
  /// Makes room for so many more rows.
  void reserve(std::size_t count) {
    if (size() + count > places_) [[unlikely]]
      grow(size() + count);
  }
  /// Adds a row for which there is room; it has what an earlier one left there.
  CompletionEntry& extend() { return (*this)[end_++]; }

 private:
  [[gnu::noinline]] void grow(std::size_t count) {
    const std::size_t places = std::bit_ceil(std::max<std::size_t>(count, 16));
    std::vector<CompletionEntry> more(places);
    for (std::uint64_t i = begin_; i != end_; ++i) more[i & (places - 1)] = (*this)[i];
    rows_ = std::move(more);
    places_ = places;
  }
  static constexpr std::uint64_t kNone = ~0ULL;
  std::vector<CompletionEntry> rows_;
  std::size_t places_ = 0;  // a power of two
  std::uint64_t begin_ = 0, end_ = 0;
  std::uint64_t failed_ = kNone;  // the oldest that has failed
};

}  // namespace pyrdma::krcore
