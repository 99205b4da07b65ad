// Readable event traces. Golden tests and replay read them, so the text is stable. Traces are off
// by default; `enabled()` guards the cost of building an entry.
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
  /// Adds one line: `what` happened on this node at `when`.
  virtual void event(Time when, std::string_view what, std::string_view details) = 0;

 private:
  bool enabled_ = false;
};

}  // namespace pyrdma
