// A malicious peer holds the token. It writes arbitrary words at any time into the session's block
// and its own control segment, between attaching, requests and the rendezvous. No other node
// touches memory of another owner, hangs or ends.
#include <array>

#include "base/error.h"
#include "base/hostile_test.h"
#include "fabric/shm/pair_test.h"

namespace pyrdma::fabric::shm {
namespace {

enum class Place : std::uint8_t {
  kSession,  // the part before the clock; a node copies the clock once and trusts it
  kEntries,
  kIndex,
  kLog,
  kHeader,
  kSegments,
  kRegion,
  kQueuePair,
  kReceives,
  kCompletions,
  kCount
};
enum class Action : std::uint8_t {
  kSend,
  kWrite,
  kRead,
  kAdd,
  kPoll,
  kFind,
  kPublish,
  kAttach,
  kQuiet,
  kEnd
};

struct Range {
  std::byte* begin;
  std::size_t bytes;
};

class Victim {
 public:
  explicit Victim(Transport transport) : pair_(options(transport)) {
    target_.make(*pair_.a.env, target_options());
    for (int i = 0; i < 4; ++i) pair_.b.receive(pair_.b.region->sge(0, 64));
    pair_.a.device().rendezvous().publish_value("known", 1);
  }

  void spoil(Place place, std::uint64_t at, std::uint64_t value, std::uint64_t bytes) {
    const Range range = where(place);
    const std::size_t offset = at % range.bytes / 4 * 4;
    std::byte* word = range.begin + offset;
    if (is_lock(word)) return;  // a lock that is never released costs each waiter kLockTimeout
    if (bytes == 8 && offset % 8 == 0 && offset + 8 <= range.bytes && !is_lock(word + 4)) {
      __atomic_store_n(reinterpret_cast<std::uint64_t*>(word), value, __ATOMIC_RELAXED);
    } else {
      __atomic_store_n(reinterpret_cast<std::uint32_t*>(word), static_cast<std::uint32_t>(value),
                       __ATOMIC_RELAXED);
    }
    node().change_epoch();
  }

  void act(Action action) {
    End& a = pair_.a;
    const Sge local = a.region->sge(0, 32);
    switch (action) {
      case Action::kSend:
        pair_.post(Opcode::kSend, local);
        break;
      case Action::kWrite:
        pair_.post(Opcode::kWrite, local);
        break;
      case Action::kRead:
        pair_.post(Opcode::kRead, local);
        break;
      case Action::kAdd:
        pair_.post(Opcode::kFetchAdd, a.region->sge(0, 8));
        break;
      case Action::kPoll:
        poll(a);
        poll(pair_.b);
        break;
      case Action::kFind:
        a.device().rendezvous().await("known", a.env->now());
        break;
      case Action::kPublish:
        a.device().rendezvous().publish_value("more" + std::to_string(published_++), 1);
        break;
      case Action::kAttach: {
        MappingTable mappings;
        for (NodeId other = 0; other < 2; ++other) {
          Peer peer(a.node().session(), other, a.node().session().status(other).incarnation,
                    mappings);
          FoundRegion found;
          if (peer.attach()) peer.find_region(pair_.b.region->rkey(), found);
        }
        break;
      }
      case Action::kQuiet:
        a.qp->is_quiet();
        target_.qp->is_quiet();  // looks for initiators among the peer's queue pairs
        break;
      case Action::kEnd:
        a.node().session().declare_dead(1, 0);
        break;
    }
  }
  bool owns_its_memory() const {
    const auto* bytes = reinterpret_cast<const unsigned char*>(pair_.a.region->data());
    return std::all_of(bytes + 4096, bytes + 8192, [](unsigned char byte) { return byte == 0; });
  }

 private:
  static QpOptions target_options() {
    QpOptions options;
    options.transport = Transport::kDc;
    options.dc_target = true;
    return options;
  }
  static QpOptions options(Transport transport) {
    QpOptions options;
    options.transport = transport;
    options.retry_count = 0;
    options.timeout_us = 1;
    options.rnr_retry = 0;
    return options;
  }
  Node& node() { return pair_.b.node(); }
  static void poll(End& end) {
    std::array<Completion, 16> batch;
    const std::size_t count = end.completions->poll(batch);
    for (std::size_t i = 0; i < count; ++i) ASSERT_LE(batch[i].status, Status::kGeneral);
  }
  Range where(Place place) {
    SessionBlock& session = node().session();
    Control& control = node().control();
    auto* base = reinterpret_cast<std::byte*>(&control);
    const auto range = [](auto& object) {
      return Range{reinterpret_cast<std::byte*>(&object), sizeof object};
    };
    switch (place) {
      case Place::kSession:
        return {reinterpret_cast<std::byte*>(&session), offsetof(SessionBlock, clock)};
      case Place::kEntries:
        return {reinterpret_cast<std::byte*>(&session.entries), 2 * sizeof(NodeEntry)};
      case Place::kIndex:
        return range(session.index[hash_text("known") % kIndexSlots]);
      case Place::kLog:
        return {reinterpret_cast<std::byte*>(&session.log_end), 8};
      case Place::kHeader:
        return range(control.header);
      case Place::kSegments:
        return range(control.segments[0]);
      case Place::kRegion:
        for (RegionEntry& region : control.regions) {
          if (relaxed(region.key) == pair_.b.region->rkey()) return range(region);
        }
        return range(control.regions[0]);
      case Place::kQueuePair:
        return range(control.queue_pairs[qp_slot(pair_.b.qp->qp_num())]);
      case Place::kReceives:
        return {base + receives_, sizeof(ReceiveRing) + 4 * sizeof(ReceiveEntry)};
      default:
        return {base + completions_, sizeof(CompletionRing) + 8 * sizeof(CompletionEntry)};
    }
  }
  bool is_lock(const std::byte* word) {
    auto* base = reinterpret_cast<std::byte*>(&node().control());
    return word == base + receives_ || word == base + completions_;
  }

  Pair pair_;
  End target_;  // of node 0
  int published_ = 0;
  std::uint64_t receives_ =
      relaxed(node().control().queue_pairs[qp_slot(pair_.b.qp->qp_num())].receives);
  std::uint64_t completions_ =
      relaxed(node().control().queue_pairs[qp_slot(pair_.b.qp->qp_num())].completions);
};

constexpr auto kActions = static_cast<std::uint64_t>(Action::kEnd) + 1;

std::vector<std::string> good_peers() {
  std::vector<std::string> seeds;
  for (int i = 0; i < 2 * static_cast<int>(Place::kCount); ++i) {
    const auto place = static_cast<char>(i / 2);
    std::string seed(1, static_cast<char>(i % 2));  // the transport
    for (char action = 0; action < static_cast<char>(Action::kEnd); ++action) {
      seed += place;
      seed += std::string("\x04\0\x08", 3);
      seed += std::string("\xff\xff\xff\xff\0\0\0\0", 8);
      seed += static_cast<char>(128 + action);
    }
    seeds.push_back(seed);
  }
  return seeds;
}

void write_arbitrary_words(std::string_view input) {
  hostile::Reader reader(input.substr(0, 400));
  Victim victim(reader.number(1) % 2 == 0 ? Transport::kRc : Transport::kDc);
  while (!reader.done()) {
    const std::uint64_t what = reader.number(1);
    try {
      if (what >= 128) {
        victim.act(static_cast<Action>(what % 128 % kActions));
      } else {
        const auto place = static_cast<Place>(what % static_cast<std::uint64_t>(Place::kCount));
        const std::uint64_t at = reader.number(2);
        const std::uint64_t bytes = reader.number(1);
        victim.spoil(place, at, reader.number(8), bytes);
      }
    } catch (const Error&) {       // an allowed outcome
    } catch (const NodeKilled&) {  // the peer's words declared this node dead
    }
  }
  PYRDMA_MUST(victim.owns_its_memory());
}

PYRDMA_HOSTILE(SharedMemory, good_peers(), write_arbitrary_words)

#if !defined(PYRDMA_LIBFUZZER)  // a program of libFuzzer has one target
void name(std::string_view input) {
  const std::size_t half = input.size() / 2;
  try {
    open_session_block(std::string(input.substr(0, half)), std::string(input.substr(half)), 2);
    PYRDMA_MUST(false);
  } catch (const Error& error) {
    PYRDMA_MUST(error.code() == ErrorCode::kInvalidArgument ||
                error.code() == ErrorCode::kUnavailable);
  }
}

PYRDMA_HOSTILE(SessionNames,
               (std::vector<std::string>{"shm-1-0-1", "shm-1-3-77" + std::string(64, 'a')}), name)
#endif

}  // namespace
}  // namespace pyrdma::fabric::shm
