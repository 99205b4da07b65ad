// The results of updates, so that one that a client sends again happens once (RIFL; Lee et al.,
// "Implementing Linearizability at Large Scale and Low Latency", SOSP 2015). A result lies in the
// log behind the object that the update wrote, and a crash leaves both or none. It moves with the
// key: who recovers the key's tablet has it too.
//
// A result is kept until the client says that it knows it. Of a client that is gone the last ones
// stay: the clients of a run are few, and have no leases as RIFL's have.
//
// Any thread may call it.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "env/env.h"
#include "env/sync.h"
#include "systems/tailwind/log/entry.h"
#include "systems/tailwind/log/log_memory.h"
#include "systems/tailwind/rpc/messages.h"

namespace pyrdma::tailwind {

/// What an operation has done. Its answer may leave when the log is committed up to `position`.
struct Outcome {
  StoreStatus status = StoreStatus::kRetry;
  std::uint64_t version = 0;
  Position position;
};

#pragma pack(push, 1)
/// The contents of an entry of type kResult.
struct ResultContents {
  std::uint64_t table = 0, hash = 0;  // of the key
  std::uint64_t version = 0;
  StoreStatus status = StoreStatus::kRetry;
};
#pragma pack(pop)
static_assert(sizeof(ResultContents) == 25);

/// Returns nothing if the entry's contents are no result.
std::optional<ResultContents> read_result(const Entry& entry);
/// The entry of a result; `contents` outlives it.
NewEntry result_entry(std::uint64_t client, std::uint64_t sequence, const ResultContents& contents);

class Results {
 public:
  explicit Results(Env& env) : mutex_(env) {}

  enum class State : std::uint8_t {
    kNew,         // complete() or abandon() must follow
    kInProgress,  // another thread has begun it
    kDone,
    kTooOld,  // the client knows the result
    kWrong,   // the client acknowledges what it only asks for
  };
  struct Begun {
    State state = State::kNew;
    Outcome outcome;  // of one that is done
  };
  /// Begins an update, and forgets the results that the client knows. Appends their places to
  /// `dropped`; the caller drops them before it releases the lock of a key, see
  /// ObjectManager::wait_for_updates(). Requires id.client != 0.
  Begun begin(const UpdateId& id, std::vector<Place>& dropped);
  void complete(std::uint64_t client, std::uint64_t sequence, const ResultContents& contents,
                Position position, Place place);
  /// The update has failed, without an effect. It may begin again.
  void abandon(const UpdateId& id);

  /// A result of a recovered log is neither known nor acknowledged; complete() may follow.
  bool wants(std::uint64_t client, std::uint64_t sequence);
  /// Forgets the results of some keys and appends their places to `dropped`.
  void forget(std::span<const HashRange> ranges, std::vector<Place>& dropped);

  /// The result lies at this place, and is of use.
  bool is_at(std::uint64_t client, std::uint64_t sequence, Place place);
  /// The result lies at another place now. Returns false, and does nothing, if not is_at(from).
  bool move(std::uint64_t client, std::uint64_t sequence, Place from, Place to);
  /// Results that are kept. Costs a look at each client.
  std::uint64_t count();

 private:
  struct Record {
    ResultContents contents;
    Position position;
    Place place = 0;  // 0: in progress
  };
  struct Client {
    std::uint64_t acked = 0;  // all results before this one are known
    std::map<std::uint64_t, Record> records;
  };
  Record* find(std::uint64_t client, std::uint64_t sequence);

  Mutex mutex_;
  std::map<std::uint64_t, Client> clients_;
};

}  // namespace pyrdma::tailwind
