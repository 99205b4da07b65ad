// ThreadTrace prints the trace lines of the real world to standard error.
#pragma once
#include <cinttypes>
#include <cstdio>

#include "env/env.h"
#include "env/trace.h"

namespace pyrdma {

class ThreadTrace final : public Trace {
 public:
  explicit ThreadTrace(NodeId node) : node_(node) {}
  void event(Time when, std::string_view what, std::string_view details) override {
    if (!enabled()) return;
    // One call prints the line, so that lines of several threads do not mix.
    std::fprintf(stderr, "%" PRId64 " %" PRIu32 " %.*s %.*s\n", when, node_,
                 static_cast<int>(what.size()), what.data(), static_cast<int>(details.size()),
                 details.data());
  }

 private:
  NodeId node_;
};

}  // namespace pyrdma
