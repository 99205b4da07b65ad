// What the library asks of its environment: raft_io and raft_fsm. No function here throws, waits or
// calls the library back; each puts its work into a queue of the turn.
#include "systems/erpc/raft/libraft/libraft_member.h"

#ifdef PYRDMA_LIBRAFT

#include <cstring>

namespace pyrdma::erpc::raft {

void LibraftMember::fill_io() {
  io_.version = 1;  // without async_work: snapshots are taken inside the turn
  io_.impl = this;
  io_.init = [](struct raft_io*, raft_id, const char*) { return 0; };
  io_.close = [](struct raft_io* io, raft_io_close_cb done) { of(io).io_closed_ = done; };
  io_.load = [](struct raft_io* io, raft_term* term, raft_id* vote, struct raft_snapshot** snapshot,
                raft_index* start_index, struct raft_entry* entries[], size_t* count) {
    return of(io).load(term, vote, snapshot, start_index, entries, count);
  };
  io_.start = [](struct raft_io* io, unsigned, raft_io_tick_cb tick, raft_io_recv_cb recv) {
    of(io).tick_ = tick;
    of(io).recv_ = recv;
    return 0;
  };
  // begin_group() stores the first entry itself, and recovery by hand is not offered.
  io_.bootstrap = [](struct raft_io*, const struct raft_configuration*) { return RAFT_INVALID; };
  io_.recover = [](struct raft_io*, const struct raft_configuration*) { return RAFT_INVALID; };
  io_.set_term = [](struct raft_io* io, raft_term term) {
    LibraftMember& self = of(io);
    self.state_dirty_ = true;
    self.term_to_store_ = term;
    self.vote_to_store_ = 0;
    return 0;
  };
  io_.set_vote = [](struct raft_io* io, raft_id vote) {
    LibraftMember& self = of(io);
    self.state_dirty_ = true;
    self.vote_to_store_ = vote;
    return 0;
  };
  io_.send = [](struct raft_io* io, struct raft_io_send* request, const struct raft_message* m,
                raft_io_send_cb done) { return of(io).send(request, *m, done); };
  io_.append = [](struct raft_io* io, struct raft_io_append* request,
                  const struct raft_entry entries[], unsigned count, raft_io_append_cb done) {
    if (of(io).closing_) return RAFT_CANCELED;
    of(io).append(request, entries, count, done);
    return 0;
  };
  io_.truncate = [](struct raft_io* io, raft_index from) {
    if (of(io).closing_) return RAFT_CANCELED;
    of(io).truncate(from);
    return 0;
  };
  io_.snapshot_put = [](struct raft_io* io, unsigned trailing, struct raft_io_snapshot_put* request,
                        const struct raft_snapshot* snapshot, raft_io_snapshot_put_cb done) {
    if (of(io).closing_) return RAFT_CANCELED;
    of(io).put_snapshot(trailing, request, *snapshot, done);
    return 0;
  };
  io_.snapshot_get = [](struct raft_io* io, struct raft_io_snapshot_get* request,
                        raft_io_snapshot_get_cb done) {
    if (of(io).closing_) return RAFT_CANCELED;
    of(io).gets_.push_back({request, done});
    return 0;
  };
  io_.time = [](struct raft_io* io) {
    return static_cast<raft_time>(of(io).now_ / of(io).options_.unit);
  };
  io_.random = [](struct raft_io* io, int min, int max) {
    if (max <= min) return min;
    return min + static_cast<int>(of(io).random_.below(static_cast<std::uint64_t>(max - min)));
  };

  fsm_.version = 1;
  fsm_.data = this;
  fsm_.apply = [](struct raft_fsm* fsm, const struct raft_buffer* command, void** result) {
    *result = nullptr;
    return of(fsm).apply(*command);
  };
  fsm_.snapshot = [](struct raft_fsm* fsm, struct raft_buffer* buffers[], unsigned* count) {
    return of(fsm).take_snapshot(buffers, count);
  };
  fsm_.restore = [](struct raft_fsm* fsm, struct raft_buffer* buffer) {
    LibraftMember& self = of(fsm);
    const auto* first = static_cast<const std::byte*>(buffer->base);
    if (!self.state_.restore(ByteView(first, buffer->len))) return RAFT_MALFORMED;
    self.lib_.free(buffer->base);  // the library leaves it to the state machine
    return 0;
  };
}

int LibraftMember::load(raft_term* term, raft_id* vote, struct raft_snapshot** snapshot,
                        raft_index* start_index, struct raft_entry** entries,
                        size_t* count) noexcept {
  *term = store_.term();
  *vote = store_.vote();
  *snapshot = store_.snapshot() == nullptr ? nullptr : make_snapshot(*store_.snapshot(), true);
  *start_index = store_.first_index();
  *count = loaded_.size();
  *entries = nullptr;
  if (loaded_.empty()) return 0;
  *entries = lib_.take_array<struct raft_entry>(loaded_.size());
  for (std::size_t i = 0; i < loaded_.size(); ++i) {
    struct raft_entry& entry = (*entries)[i];
    entry = {};
    entry.term = loaded_[i].term;
    entry.type = static_cast<unsigned short>(loaded_[i].type);
    entry.buf.len = loaded_[i].payload.size();
    entry.buf.base = lib_.take(entry.buf.len);
    std::memcpy(entry.buf.base, loaded_[i].payload.data(), entry.buf.len);
  }
  return 0;
}

// Without its data, a snapshot that is sent has one byte: what is sent is read from the store.
struct raft_snapshot* LibraftMember::make_snapshot(const StoredSnapshot& stored,
                                                   bool with_data) const {
  const ByteView data = with_data ? ByteView(stored.data) : ByteView(stored.data).first(1);
  auto* snapshot = lib_.take_array<struct raft_snapshot>(1);
  *snapshot = {};
  snapshot->index = stored.index;
  snapshot->term = stored.term;
  lib_.configuration_init(&snapshot->configuration);
  fill_servers(snapshot->configuration, stored.servers);
  snapshot->configuration_index = stored.servers_index;
  snapshot->n_bufs = 1;
  snapshot->bufs = lib_.take_array<struct raft_buffer>(1);
  snapshot->bufs[0].len = data.size();
  snapshot->bufs[0].base = lib_.take(data.size());
  std::memcpy(snapshot->bufs[0].base, data.data(), data.size());
  return snapshot;
}

int LibraftMember::send(struct raft_io_send* request, const struct raft_message& m,
                        raft_io_send_cb done) {
  if (closing_) return RAFT_CANCELED;
  const bool is_snapshot = m.type == RAFT_IO_INSTALL_SNAPSHOT;
  Outgoing out{static_cast<NodeId>(m.server_id - 1), {}, request, done};
  if (is_snapshot) {
    if (joins_transfer(out)) return 0;
    out.snapshot_term = raft_.current_term;
  }
  out.bytes = encode_message(m);
  if (out.bytes.size() > (is_snapshot ? options_.max_snapshot : options_.max_message)) {
    ++counters_.too_long;
    return RAFT_TOOBIG;
  }
  outbox_.push_back(std::move(out));
  return 0;
}

// The library gives a snapshot up after a timeout and sends it anew, however long its way is. One
// that is on its way in this term goes on; the new request ends with it. The follower then lacks
// the entries since that snapshot, which the library sends next.
bool LibraftMember::joins_transfer(const Outgoing& out) {
  if (!options_.bugs.keeps_transfer()) return false;
  for (auto& [number, going] : in_flight_) {
    if (going.to != out.to || going.snapshot_term != raft_.current_term) continue;
    env_.reached("erpc/raft/transfer_goes_on");
    going.joined.push_back({out.request, out.done});
    return true;
  }
  return false;
}

void LibraftMember::append(struct raft_io_append* request, const struct raft_entry* entries,
                           unsigned count, raft_io_append_cb done) {
  watch_role();
  Work work(Work::Kind::kAppend);
  work.append = request;
  work.append_done = done;
  work.entries = entries;
  work.count = count;
  work_.push_back(std::move(work));
  for (unsigned i = 0; i < count; ++i) {
    configuration_moved_ = configuration_moved_ || entries[i].type == RAFT_CHANGE;
    // The library leaves the bytes of its barrier as they were in memory.
    if (entries[i].type == RAFT_BARRIER && led_)
      std::memset(entries[i].buf.base, 0, entries[i].buf.len);
  }
  if (options_.observer == nullptr) return;
  // The library's log already ends with these entries.
  const std::uint64_t first = lib_.last_index(&raft_) - count + 1;
  for (unsigned i = 0; i < count; ++i) {
    const ByteView payload(static_cast<const std::byte*>(entries[i].buf.base), entries[i].buf.len);
    options_.observer->appended(
        env_.node(), {first + i, entries[i].term,
                      StableStore::digest_of(static_cast<EntryType>(entries[i].type), payload)});
  }
}

void LibraftMember::truncate(std::uint64_t from) {
  env_.reached("erpc/raft/truncated");
  watch_role();
  log_cut_ = true;
  Work work(Work::Kind::kTruncate);
  work.from = from;
  work_.push_back(std::move(work));
  if (options_.observer != nullptr) options_.observer->truncated(env_.node(), from - 1);
}

void LibraftMember::put_snapshot(unsigned trailing, struct raft_io_snapshot_put* request,
                                 const struct raft_snapshot& snapshot,
                                 raft_io_snapshot_put_cb done) {
  Work work(Work::Kind::kSnapshot);
  work.put = request;
  work.put_done = done;
  work.trailing = trailing;
  work.snapshot.index = snapshot.index;
  work.snapshot.term = options_.bugs.snapshot_term(snapshot.term, raft_.current_term);
  work.snapshot.servers = servers_of(snapshot.configuration);
  work.snapshot.servers_index = snapshot.configuration_index;
  if (trailing == 0) {
    log_cut_ = true;
  } else if (options_.bugs.reads_configuration()) {
    auto [at, servers] = configuration_at(snapshot.index);
    work.snapshot.servers = std::move(servers);
    work.snapshot.servers_index = at;
  }
  for (unsigned i = 0; i < snapshot.n_bufs; ++i) {
    const auto* first = static_cast<const std::byte*>(snapshot.bufs[i].base);
    work.snapshot.data.insert(work.snapshot.data.end(), first, first + snapshot.bufs[i].len);
  }
  work_.push_back(std::move(work));
}

int LibraftMember::apply(const struct raft_buffer& command) {
  watch();
  const std::uint64_t index = lib_.last_applied(&raft_) + 1;
  const ByteView payload(static_cast<const std::byte*>(command.base), command.len);
  if (options_.observer != nullptr)
    options_.observer->applied(env_.node(), index,
                               StableStore::digest_of(EntryType::kCommand, payload));
  result_ = state_.apply(index, payload);
  return 0;
}

int LibraftMember::take_snapshot(struct raft_buffer** buffers, unsigned* count) {
  const Bytes bytes = state_.snapshot();
  *buffers = lib_.take_array<struct raft_buffer>(1);
  *count = 1;
  (*buffers)[0].len = bytes.size();
  (*buffers)[0].base = lib_.take(bytes.size());
  std::memcpy((*buffers)[0].base, bytes.data(), bytes.size());
  return 0;
}

}  // namespace pyrdma::erpc::raft

#endif
