// The software completion queue of a virtual queue pair (section 4.4).
#pragma once
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
  CompletionEntry& operator[](std::uint64_t number) { return rows_[number & (rows_.size() - 1)]; }
  CompletionEntry& front() { return (*this)[begin_]; }
  bool contains(std::uint64_t number) const { return number - begin_ < size(); }
  void pop_front() { ++begin_; }
  void clear() { begin_ = end_; }
  /// Returns the row's number.
  std::uint64_t push_back(CompletionEntry row) {
    if (size() == rows_.size()) grow();
    (*this)[end_] = row;
    return end_++;
  }

 private:
  [[gnu::noinline]] void grow() {
    std::vector<CompletionEntry> more(std::bit_ceil(rows_.size() + 16));
    for (std::uint64_t i = begin_; i != end_; ++i) more[i & (more.size() - 1)] = (*this)[i];
    rows_ = std::move(more);
  }
  std::vector<CompletionEntry> rows_;  // a power of two
  std::uint64_t begin_ = 0, end_ = 0;
};

}  // namespace pyrdma::krcore
