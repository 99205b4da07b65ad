// A timeline of a run: what each thread, each stage of a NIC and each port of a switch did when. It
// is written in the Trace Event format, which Perfetto and chrome://tracing show. The recorder only
// listens: a run that is recorded is the same run.
#pragma once
#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "env/sim/event_queue.h"

namespace pyrdma {

struct SimNodeThreads;
struct SimThread;

/// The part of virtual time that is recorded, in picoseconds, and the most events of it. The events
/// that the simulator finds first stay.
struct TimelineOptions {
  Picos from = 0, to = kNever;
  std::uint64_t most_events = 200'000;
};

/// The kinds of rows, in their order within a node; the last three are of the network.
enum class TimelineRow : std::uint8_t {
  kThread,
  kRequester,
  kLink,
  kReceiver,
  kResponder,
  kCompleter,
  kFaults,    // of a node
  kPort,      // of the last switch, towards a NIC
  kRackLink,  // between racks
  kCluster,   // faults of several nodes
};

/// `index` is the number of a NIC among those of all nodes (its port), of a node, or of a link.
struct TimelinePlace {
  TimelineRow row;
  std::uint32_t index;
};

/// Names a request by its initiator's NIC and queue pair, and by its number there.
struct TimelineRequest {
  static constexpr std::uint64_t kNone = ~0ULL;
  std::uint32_t port = 0, queue_pair = 0;
  std::uint64_t sequence = kNone;
  auto operator<=>(const TimelineRequest&) const = default;
};

/// What an event says beyond its place and time.
struct TimelineWhat {
  enum class Part : std::uint8_t { kPlain, kPost, kPoll, kResponse };
  const char* name;  // a literal
  TimelineRequest request = {};
  std::uint32_t bytes = 0;
  Part part = Part::kPlain;
};

class Timeline {
 public:
  /// `threads` are those of the nodes, in the order of the nodes.
  Timeline(const TimelineOptions& options, const std::vector<const SimNodeThreads*>& threads,
           std::uint32_t devices_per_node);

  /// The thread goes on at its clock.
  void resumes(const SimThread& thread);
  /// The thread waits from its clock on.
  void waits(const SimThread& thread);
  TimelinePlace place_of(const SimThread& thread) { return {TimelineRow::kThread, row_of(thread)}; }

  void slice(TimelinePlace place, Picos from, Picos to, const TimelineWhat& what);
  void mark(TimelinePlace place, Picos at, const TimelineWhat& what);
  /// Faults of this name of a node, or all faults of all nodes, end now, before their time.
  void end_faults(Picos now, std::uint32_t node = kAllNodes, const char* what = "");

  /// Entry `position` of a completion queue announces that the request has been delivered.
  void deliver(const void* queue, std::uint64_t position, const TimelineRequest& request) {
    deliveries_[{queue, position}] = request;
  }
  /// A thread takes the entry. Returns the request that was delivered, or none.
  TimelineRequest take_delivery(const void* queue, std::uint64_t position);
  /// The entries of the queue have moved, or the queue ends.
  void forget_deliveries(const void* queue);

  /// Ends the recording. Every thread waits.
  void finish();
  std::uint64_t events() const { return events_.size(); }
  std::uint64_t left_out() const { return left_out_; }
  /// The least time of an event that is left out; kNever if none is.
  Picos complete_until() const { return complete_until_; }
  /// Writes the file in pieces.
  void write(FunctionRef<void(std::string_view)> sink) const;

 private:
  static constexpr std::uint32_t kAllNodes = ~0U;
  static constexpr Picos kMark = -1;
  struct Event {
    Picos at, duration;  // kMark: an instant
    TimelineWhat what;
    TimelinePlace place;
  };
  struct ThreadRow {
    std::string name;
    std::uint32_t process;
    Picos from, to;  // the slice that may still grow
  };
  friend class TimelineWriter;

  void add(const Event& event);
  std::uint32_t row_of(const SimThread& thread);
  void end_slices();

  TimelineOptions options_;
  std::unordered_map<const SimNodeThreads*, std::uint32_t> node_of_;
  std::uint32_t nodes_, devices_;
  std::unordered_map<const SimThread*, std::uint32_t> rows_;
  std::vector<ThreadRow> threads_;
  const SimThread* running_ = nullptr;  // the running thread, or none
  std::map<std::pair<const void*, std::uint64_t>, TimelineRequest> deliveries_;
  std::vector<Event> events_;
  bool is_full_ = false;
  std::uint64_t left_out_ = 0;
  Picos complete_until_ = kNever;
};

}  // namespace pyrdma
