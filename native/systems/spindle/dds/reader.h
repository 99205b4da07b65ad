// A topic at a subscriber that keeps samples: the last ones in memory, and with Qos::kLogged all of
// them in a log. Any thread may call it.
//
// A reader that lacks samples gets them from the reader of another node, in parts: a joiner while
// nothing is delivered, and a node that restarts. The one that lacks them asks. It goes on from
// where it is, with any reader that has the same samples.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "env/scope.h"
#include "env/sync.h"
#include "systems/spindle/dds/sample_log.h"
#include "systems/spindle/dds/topic.h"
#include "systems/spindle/subgroup.h"

namespace pyrdma::spindle::dds {

class Reader {
 public:
  /// Opens the log `name` of a logged topic. Throws as SampleLog does.
  Reader(Env& env, const Topic& topic, const std::string& name, bool cut_damage, Bugs bugs);

  /// Keeps what was delivered.
  void take(std::span<const Message> messages);
  std::vector<Sample> read(std::uint64_t from, std::size_t most);
  /// Samples that this subscriber has had.
  std::uint64_t count();
  bool is_logged() const { return log_ != nullptr; }
  /// Makes the log durable.
  void sync();

  // Catching up.

  /// Begins to ask. `cuts`: samples of the log that the other reader lacks, or has others for, go;
  /// otherwise they are an error.
  void begin_to_ask(bool cuts);
  /// Returns the next question; nothing once this reader has all samples, durably in its log.
  std::optional<Bytes> ask();
  /// Returns the answer to a question: at most ControlChannel::kMostPart bytes of samples, which it
  /// reads from the disk with one request.
  Bytes answer(ByteView question);
  /// Takes an answer. Returns false if it is not one, has samples that do not verify, or is of a
  /// log that disagrees with this one, which must not be cut.
  bool take(ByteView answer);

 private:
  struct Asking {
    bool cuts = false, is_done = false;
    // While the end of what both logs have is searched: they agree up to one number, and not up to
    // the other one.
    bool is_searching = false;
    std::uint64_t agreed = 0, differs = 0;
    std::uint64_t asked = 0;       // the number in the last question
    Bytes part;                    // of the next sample
    std::uint64_t not_synced = 0;  // bytes that were logged
  };

  std::uint64_t samples() const;
  void keep(NodeId publisher, ByteView sample);
  void finish_batch();
  Bytes part_of_history(std::uint64_t from, std::uint64_t skipped, std::uint64_t most) const;
  bool take_samples();
  bool search(bool agrees, std::uint64_t others);
  void cut(std::uint64_t number);

  Env& env_;
  const Topic& topic_;
  const Bugs bugs_;
  Mutex mutex_;
  std::deque<Sample> history_;
  std::uint64_t count_ = 0;  // samples so far, without a log
  std::uint64_t since_sync_ = 0;
  std::unique_ptr<SampleLog> log_;
  Footprint footprint_;  // of the history, which copies fill
  Asking asking_;
};

}  // namespace pyrdma::spindle::dds
