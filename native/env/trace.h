// Readable event traces: golden tests and replay read them, so the text is stable. Off by default;
// `enabled()` guards the cost of building an entry.
#pragma once
#include <string>
#include <string_view>

#include "base/units.h"

namespace pyrdma {

class Trace {
 public:
  virtual ~Trace() = default;
  bool enabled() const { return enabled_; }
  void enable(bool on) { enabled_ = on; }
  /// One line: what happened on this node, now.
  virtual void event(Time when, std::string_view what, std::string_view details) = 0;

 private:
  bool enabled_ = false;
};

}  // namespace pyrdma
