#include "systems/tailwind/client/client.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "systems/tailwind/scopes.h"

namespace pyrdma::tailwind {

namespace {

constexpr std::uint32_t kReceives = 256;
constexpr Time kShortestPause = 20 * kMicrosecond;

}  // namespace

Client::Client(Env& env, const Options& options, std::uint32_t number, Time patience)
    : env_(env),
      options_((check(options, env.nodes()), options)),
      coordinator_{options.coordinator, Transport::kNewest},
      patience_(patience),
      transport_(env, options_, ServerId::of_client(env.node(), env.incarnation(), number),
                 kReceives) {
  locate();
  if (!run_until([&] { return client_ != 0; }, env_.now() + patience_)) {
    throw Error(ErrorCode::kTimeout, "the coordinator at node " +
                                         std::to_string(options_.coordinator) +
                                         " does not answer; does it run there?")
        .blaming({options_.coordinator});
  }
}

// ---- the coordinator ----

void Client::locate() {
  if (is_locating_) return;
  is_locating_ = true;
  const Bytes asks_for_number(client_ == 0 ? 1 : 0);
  transport_.call(coordinator_, Opcode::kLocate, asks_for_number,
                  env_.now() + options_.call_timeout, [this](CallEnd end, ByteView answer) {
                    is_locating_ = false;
                    if (end == CallEnd::kAnswered) return take_view(answer);
                    transport_.defer(env_.now() + options_.retry_pause, [this] { locate(); });
                  });
}

void Client::take_view(ByteView answer) {
  ByteReader in(answer);
  const std::uint64_t number = in.get<std::uint64_t>();
  auto view = ClusterView::get(in);
  if (!view || !in.done()) return;
  if (client_ == 0) client_ = number;
  if (view->epoch < view_.epoch) return;
  for (const ServerId life : gone(view_, *view)) transport_.close(life);
  view_ = std::move(*view);
}

void Client::await_servers(std::size_t count) {
  const Time deadline = env_.now() + patience_;
  std::size_t up = 0;
  while (true) {
    up = static_cast<std::size_t>(
        std::ranges::count(view_.servers, ServerState::kUp, &ListedServer::state));
    if (up >= count) return;
    if (env_.now() >= deadline) {
      throw Error(ErrorCode::kTimeout, std::to_string(up) + " servers are up, and " +
                                           std::to_string(count) +
                                           " are needed; do the others run?");
    }
    locate();
    run_until([&] { return !is_locating_; }, deadline);
    const Time pause = env_.now() + options_.retry_pause;
    run_until([] { return false; }, std::min(pause, deadline));
  }
}

void Client::connect(std::uint64_t table) {
  std::size_t under_way = 0;
  for (const Tablet& tablet : view_.tablets) {
    if (tablet.range.table != table) continue;
    ++under_way;
    transport_.call(tablet.owner, Opcode::kPing, {}, env_.now() + patience_,
                    [&](CallEnd, ByteView) { --under_way; });
  }
  run_until([&] { return under_way == 0; }, kForever);
}

std::uint64_t Client::create_table(std::string_view name, const std::vector<NodeId>& owners) {
  const Time deadline = env_.now() + patience_;
  std::uint64_t table = 0;
  std::string refusal;
  while (table == 0) {
    std::vector<ServerId> ids;
    for (const ListedServer& server : view_.servers) {
      if (server.state == ServerState::kUp &&
          (owners.empty() || std::ranges::find(owners, server.id.node) != owners.end()))
        ids.push_back(server.id);
    }
    if (ids.size() >= std::max<std::size_t>(owners.size(), 1)) {
      Bytes payload;
      ByteWriter out(payload);
      out.put(static_cast<std::uint32_t>(ids.size()));
      for (const ServerId id : ids) out.put(id.number());
      out.put(std::as_bytes(std::span(name)));
      bool has_ended = false;
      transport_.call(coordinator_, Opcode::kCreateTable, payload,
                      std::min(deadline, env_.now() + options_.call_timeout),
                      [&](CallEnd end, ByteView answer) {
                        has_ended = true;
                        ByteReader in(answer);
                        if (end != CallEnd::kAnswered) return;
                        table = in.get<std::uint64_t>();
                        const ByteView why = in.bytes(in.left());
                        refusal.assign(reinterpret_cast<const char*>(why.data()), why.size());
                      });
      run_until([&] { return has_ended; }, kForever);
    }
    if (table == 0 && env_.now() >= deadline) {
      throw Error(ErrorCode::kTimeout, "table '" + std::string(name) +
                                           "': " + std::to_string(ids.size()) +
                                           " of its owners are up; do the servers run?" +
                                           (refusal.empty() ? "" : " The coordinator: " + refusal));
    }
    locate();
    run_until([&] { return !is_locating_; }, deadline);
  }
  return table;
}

// ---- operations ----

void Client::start(Opcode opcode, std::uint64_t table, ByteView key, ByteView value, OnEnd on_end) {
  const std::uint64_t number = next_number_++;
  Operation& made = operations_[number];
  made.number = number;
  made.opcode = opcode;
  made.table = table;
  made.hash = key_hash(table, key);
  made.key.assign(key.begin(), key.end());
  made.value.assign(value.begin(), value.end());
  made.on_end = std::move(on_end);
  if (opcode != Opcode::kRead) {
    made.sequence = next_sequence_++;
    open_.insert(made.sequence);
  }
  send(made);
}

void Client::send(Operation& operation) {
  const Scope step(env_, scope::client_send);
  const Tablet* tablet = view_.find(operation.table, operation.hash);
  if (tablet == nullptr) {
    locate();
    return send_later(operation);
  }
  ++operation.attempts;
  StoreRequest request;
  request.table = operation.table;
  if (operation.sequence != 0) request.id = {client_, operation.sequence, *open_.begin()};
  request.key = operation.key;
  request.value = operation.value;
  Bytes payload;
  ByteWriter out(payload);
  request.put(out);
  transport_.call(tablet->owner, operation.opcode, payload, env_.now() + options_.call_timeout,
                  [this, number = operation.number](CallEnd end, ByteView answer) {
                    take(number, end, answer);
                  });
}

// Most servers can say more in a moment: the cleaner makes room, or a tablet has moved. A pause of
// a millisecond at once would be the latency of such an update. It doubles up to retry_pause.
void Client::send_later(Operation& operation) {
  const Time shortest = std::min(options_.retry_pause, kShortestPause);
  operation.pause = std::clamp(2 * operation.pause, shortest, options_.retry_pause);
  const Time at = env_.now() + operation.pause;
  transport_.defer(at, [this, number = operation.number] {
    if (const auto known = operations_.find(number); known != operations_.end())
      send(known->second);
  });
  next_tick_ = std::min(next_tick_, at);
}

void Client::take(std::uint64_t number, CallEnd end, ByteView bytes) {
  const Scope step(env_, scope::client_take);
  const auto at = operations_.find(number);
  if (at == operations_.end()) return;
  ByteReader in(bytes);
  const auto answer = end == CallEnd::kAnswered ? StoreAnswer::get(in) : std::nullopt;
  if (!answer || answer->status == StoreStatus::kRetry || answer->status == StoreStatus::kNotHere) {
    env_.reached("tailwind/sent_again");
    locate();
    return send_later(at->second);
  }
  Result result;
  result.status = answer->status;
  result.version = answer->version;
  result.value.assign(answer->value.begin(), answer->value.end());
  result.attempts = at->second.attempts;
  const Operation ended = std::move(at->second);
  operations_.erase(at);
  open_.erase(ended.sequence);
  ended.on_end(result);
}

bool Client::poll() {
  const Scope step(env_, scope::client_turn);
  const bool has_polled = transport_.poll(requests_);
  requests_.clear();
  const Time now = env_.now();
  if (now < next_tick_) return has_polled;
  next_tick_ = now + transport_.tick();
  transport_.keep_time();
  next_tick_ = std::min(next_tick_, transport_.next_timer());
  return true;
}

bool Client::run_until(FunctionRef<bool()> ready, Time deadline) {
  while (!ready()) {
    if (env_.now() >= deadline) return false;
    env_.poll_until([&] { return poll(); }, std::min(deadline, next_tick_), &transport_.watch());
    transport_.expect_completions();
  }
  return true;
}

Result Client::run(Opcode opcode, std::uint64_t table, ByteView key, ByteView value) {
  std::optional<Result> result;
  start(opcode, table, key, value, [&](const Result& ended) { result = ended; });
  const std::uint64_t number = next_number_ - 1;
  if (!run_until([&] { return result.has_value(); }, env_.now() + patience_)) {
    const std::string server = describe(table, key);
    const std::uint32_t attempts = operations_.at(number).attempts;
    open_.erase(operations_.at(number).sequence);  // servers may forget the results before it
    operations_.erase(number);
    throw Error(ErrorCode::kTimeout,
                server + " has not answered in " + std::to_string(patience_ / kMillisecond) +
                    " ms and " + std::to_string(attempts) +
                    " attempts; do enough servers run for a recovery?",
                false);
  }
  return *result;
}

Result Client::read(std::uint64_t table, ByteView key) {
  return run(Opcode::kRead, table, key, {});
}
Result Client::write(std::uint64_t table, ByteView key, ByteView value) {
  return run(Opcode::kWrite, table, key, value);
}
Result Client::remove(std::uint64_t table, ByteView key) {
  return run(Opcode::kRemove, table, key, {});
}

std::string Client::describe(std::uint64_t table, ByteView key) const {
  const Tablet* tablet = view_.find(table, key_hash(table, key));
  return tablet == nullptr ? "the server of table " + std::to_string(table)
                           : to_string(tablet->owner);
}

}  // namespace pyrdma::tailwind
