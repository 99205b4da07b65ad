// How a server carries out requests.
#include <algorithm>

#include "systems/tailwind/recovery/recovery_master.h"
#include "systems/tailwind/scopes.h"
#include "systems/tailwind/server.h"

namespace pyrdma::tailwind {

namespace {

void put_status(Bytes& answer, BackupStatus status) {
  ByteWriter(answer).put(static_cast<std::uint8_t>(status));
}

}  // namespace

// ---- requests ----

// A client that frees replicas, or that names a living server dead, would cost what servers have
// promised.
bool Server::may_ask(const Incoming& request) const {
  const ServerId from = request.from;
  switch (asker_of(request.opcode)) {
    case Asker::kAnyone:
      return true;
    case Asker::kServer:
      return from.is_server() && from.node < options_.servers;
    case Asker::kCoordinator:
      return from.is_server() && from.node == options_.coordinator;
  }
  return false;
}

void Server::serve(Worker& worker, const Incoming& request, Bytes& answer) {
  const ByteView payload = request.payload();
  ByteWriter out(answer);
  if (!may_ask(request) && bugs_.checks_senders()) {
    env_.reached("tailwind/asker_refused");
    return;  // an empty answer
  }
  switch (request.opcode) {
    case Opcode::kRead:
    case Opcode::kWrite:
    case Opcode::kRemove:
      return serve_store(worker, request, answer);
    case Opcode::kOpen: {
      const auto open = whole<OpenRequest>(payload);
      return (open ? backup_.open(request.from, *open) : OpenAnswer()).put(out);
    }
    case Opcode::kBackupWrite: {
      const auto write = whole<BackupWriteRequest>(payload);
      return put_status(answer,
                        write ? backup_.write(request.from, *write) : BackupStatus::kOutOfBounds);
    }
    case Opcode::kSetVersion: {
      const auto version = whole<SetVersionRequest>(payload);
      return put_status(answer, version ? backup_.set_version(request.from, *version)
                                        : BackupStatus::kOutOfBounds);
    }
    case Opcode::kClose: {
      const auto close = whole<CloseRequest>(payload);
      return put_status(answer,
                        close ? backup_.close(request.from, *close) : BackupStatus::kOutOfBounds);
    }
    case Opcode::kFree: {
      const auto name = whole<ReplicaName>(payload);
      return put_status(answer,
                        name ? backup_.free(request.from, *name) : BackupStatus::kOutOfBounds);
    }
    case Opcode::kReadReplica: {
      const auto wanted = whole<ReadReplicaRequest>(payload);
      Bytes entries;
      return (wanted ? backup_.read_replica(*wanted, entries) : ReadReplicaAnswer()).put(out);
    }
    case Opcode::kAskWhole:
      return out.put(static_cast<std::uint8_t>(log_.is_whole_for(request.from)));
    case Opcode::kDamaged:
      if (const auto name = whole<ReplicaName>(payload)) log_.damaged(request.from, *name);
      return;
    case Opcode::kUpdate:
      take_view(payload);
      return out.put(view()->epoch);
    case Opcode::kStartReading:
      return start_reading(worker, payload, answer);
    case Opcode::kRecover:
      return recover(worker, payload, answer);
    case Opcode::kForget:
      return forget(payload);
    default:
      return;  // an empty answer: the request is another node's
  }
}

/// What a client's request has done, before it is committed.
struct Server::Started {
  bool reads = false;
  bool is_done = false;  // it has an outcome
  StoreStatus refusal = StoreStatus::kRetry;
  Outcome outcome;
  std::size_t bytes = 0;  // of key and value in the request
  Bytes value;            // that it has read
};

void Server::serve_store(Worker& worker, const Incoming& request, Bytes& answer) {
  const Scope step(env_, scope::serve);
  const Started started = start(request);
  const bool is_committed = started.is_done && log_.commit(worker, started.outcome.position,
                                                           env_.now() + options_.call_timeout);
  finish(started, is_committed, answer);
}

// All that is appended meanwhile goes to the backups with one write.
void Server::serve_together(Worker& worker, std::span<const std::unique_ptr<Incoming>> requests,
                            std::span<Bytes> answers) {
  std::vector<Started> all;
  all.reserve(requests.size());
  Position last;
  log_.hold();
  for (const auto& request : requests) {
    const Scope step(env_, scope::serve);
    all.push_back(start(*request));
    last = std::max(last, all.back().outcome.position);
  }
  log_.release();
  log_.commit(worker, last, env_.now() + options_.call_timeout);
  for (std::size_t i = 0; i < all.size(); ++i)
    finish(all[i], log_.is_committed(all[i].outcome.position), answers[i]);
}

Server::Started Server::start(const Incoming& request) {
  Started started;
  started.reads = request.opcode == Opcode::kRead;
  if (options_.write_work != 0 && !started.reads) env_.work(options_.write_work);
  const auto wanted = whole<StoreRequest>(request.payload());
  const View view = this->view();
  if (!wanted) {
    started.refusal = StoreStatus::kBadRequest;
  } else if (const std::uint64_t hash = key_hash(wanted->table, wanted->key);
             !owns(*view, wanted->table, hash)) {
    started.refusal = StoreStatus::kNotHere;
  } else if (has_lease()) {
    started.is_done = true;
    started.bytes = wanted->key.size() + wanted->value.size();
    started.outcome =
        started.reads ? objects_.read(wanted->table, hash, wanted->key, started.value)
        : request.opcode == Opcode::kWrite
            ? objects_.write(wanted->table, hash, wanted->key, wanted->value, wanted->id)
            : objects_.remove(wanted->table, hash, wanted->key, wanted->id);
  }
  return started;
}

// A value that was read under a lease is one that nobody else has changed. A write is committed at
// backups, which refuse it once somebody else may serve the tablet.
void Server::finish(const Started& started, bool is_committed, Bytes& answer) {
  StoreAnswer result;
  result.status = started.refusal;
  if (started.is_done && is_committed && (!started.reads || has_lease())) {
    const Outcome& outcome = started.outcome;
    const bool may_retry =
        outcome.status == StoreStatus::kLogFull && log_.may_make_room(started.bytes);
    result.status = may_retry ? StoreStatus::kRetry : outcome.status;
    result.version = outcome.version;
    result.value = started.value;
  }
  ByteWriter out(answer);
  result.put(out);
}

// ---- recovery ----

// Nothing of the dead server arrives any more when its connections have ended (section 3.4.4).
void Server::start_reading(Worker& worker, ByteView payload, Bytes& answer) {
  ByteReader in(payload);
  const ServerId dead = ServerId::of(in.get<std::uint64_t>());
  if (!in.done() || dead == id_) return;
  const auto close = [&] {
    backup_.stop_writes(dead);
    transport_.close(dead);
    while (!transport_.is_quiet(dead)) {
      const Time next = env_.now() + 5 * kMicrosecond;
      worker.wait([&] { return env_.now() >= next; }, next);
    }
  };
  if (bugs_.closes_first()) close();
  Inventory inventory = backup_.start_reading(dead);
  inventory.room = log_.room();
  ByteWriter out(answer);
  inventory.put(out);
}

void Server::forget(ByteView payload) {
  ByteReader in(payload);
  const ServerId dead = ServerId::of(in.get<std::uint64_t>());
  if (in.done() && dead != id_) backup_.forget(dead);
}

void Server::recover(Worker& worker, ByteView payload, Bytes& answer) {
  RecoverAnswer result;
  const auto work = whole<RecoverRequest>(payload);
  if (work && work->dead != id_) {
    std::vector<HashRange> ranges;
    for (const Tablet& tablet : work->tablets) ranges.push_back(tablet.range);
    objects_.purge(ranges);  // what an attempt has left whose answer was lost
    result.since = log_.begin_head();
    objects_.begin_replay(ranges);
    RecoveryMaster master(worker, transport_, options_, backup_, objects_, log_);
    result.is_done = result.since != Position() && master.run(*work, result);
    objects_.end_replay();
    if (!result.is_done) objects_.purge(ranges);
  }
  ByteWriter out(answer);
  result.put(out);
}

}  // namespace pyrdma::tailwind
