// Reads a file in large pieces, so that a walk through it costs neither a request per record nor
// the memory of the whole.
#pragma once
#include <algorithm>
#include <cstdint>

#include "base/bytes.h"
#include "env/storage.h"

namespace pyrdma::spindle::dds {

class FileWindow {
 public:
  static constexpr std::uint64_t kBytes = 64 * 1024;

  /// Reads nothing behind `end`.
  FileWindow(File& file, std::uint64_t end) : file_(file), end_(end) {}
  /// Returns the bytes from `offset` on, at least `least` of them unless the file ends before. They
  /// are valid until the next call.
  ByteView at(std::uint64_t offset, std::uint64_t least) {
    const bool is_here = offset >= begin_ && offset + least <= begin_ + content_.size();
    if (!is_here) {
      begin_ = offset;
      content_.resize(std::min(std::max(least, kBytes), end_ - std::min(offset, end_)));
      content_.resize(file_.read(offset, content_));
    }
    return ByteView(content_).subspan(std::min<std::uint64_t>(offset - begin_, content_.size()));
  }

 private:
  File& file_;
  const std::uint64_t end_;
  std::uint64_t begin_ = 0;
  Bytes content_;
};

}  // namespace pyrdma::spindle::dds
