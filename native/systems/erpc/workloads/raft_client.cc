#include "systems/erpc/workloads/raft_client.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "systems/erpc/scopes.h"

namespace pyrdma::erpc {

namespace {

constexpr std::uint32_t kAnswerBytes = 24 + raft::kMaxValue;  // most of an encoded answer

raft::Key key_of(std::uint64_t number) {
  const std::uint64_t words[] = {number, mix64(number)};
  raft::Key key{};
  static_assert(sizeof words == sizeof key);
  std::memcpy(key.data(), words, sizeof words);
  return key;
}

}  // namespace

RaftLoadClient::RaftLoadClient(Endpoint& endpoint, const RaftLoadShape& shape, Rng rng,
                               measure::ThreadRecorder& recorder, measure::KvHistory* history)
    : endpoint_(endpoint),
      env_(endpoint.env()),
      shape_(shape),
      sessions_(endpoint, shape.members),
      rng_(rng),
      put_latency_(recorder.histogram("put")),
      get_latency_(recorder.histogram("get")),
      history_(history),
      word_(shape.first_client << 32U) {
  for (std::uint32_t i = 0; i < shape.in_flight; ++i)
    clients_.emplace_back(
        raft::KvClient(shape.first_client + i, {shape.members, shape.try_timeout, shape.pause, {}}),
        i);
}

std::uint64_t RaftLoadClient::tries() const {
  std::uint64_t sum = 0;
  for (const Client& client : clients_) sum += client.logic.tries();
  return sum;
}

void RaftLoadClient::find_leader() {
  is_over_ = true;  // one operation
  begin(clients_.front(), env_.now());
  serve();
  is_over_ = false;
}

void RaftLoadClient::run(measure::Interval& interval) {
  interval_ = &interval;
  const Time now = env_.now();
  for (Client& client : clients_) begin(client, now);
  serve();
}

void RaftLoadClient::begin(Client& client, Time now) {
  const Scope step(env_, scope::load_issue);
  ++busy_;
  client.began = now;
  client.key = rng_.below(shape_.keys);
  client.is_get = rng_.uniform() < shape_.reads;
  if (client.is_get) {
    client.logic.get(now, key_of(client.key));
  } else {
    client.word = ++word_;
    raft::Value value;
    value.size = static_cast<std::uint8_t>(shape_.value_bytes);
    for (std::size_t at = 0; at < shape_.value_bytes; at += sizeof word_)
      std::memcpy(value.bytes.data() + at, &word_, sizeof word_);
    client.logic.put(now, key_of(client.key), value.view());
  }
  try_now(client, now);
}

// A member without a connected session counts as one that does not answer.
void RaftLoadClient::try_now(Client& client, Time now) {
  while (const auto bytes = client.logic.request(now)) {
    const auto session = sessions_.find(client.logic.target());
    if (!session) {
      client.logic.failed(now);
      continue;
    }
    if (free_tries_.empty()) {
      free_tries_.push_back(static_cast<std::uint32_t>(tries_.size()));
      tries_.push_back({endpoint_.allocate(kAnswerBytes), endpoint_.allocate(kAnswerBytes)});
    }
    const std::uint32_t index = free_tries_.back();
    free_tries_.pop_back();
    Try& each = tries_[index];
    each.client = client.index;
    each.number = client.logic.tries();
    each.request->resize(static_cast<std::uint32_t>(bytes->size()));
    std::memcpy(each.request->data(), bytes->data(), bytes->size());
    endpoint_.enqueue_request({*session, raft::kCommandRequest, each.request, each.response,
                               &RaftLoadClient::end, this, index});
  }
  wake_ = std::min(wake_, client.logic.next());
}

void RaftLoadClient::end(void* context, std::uint64_t tag, Outcome outcome) {
  auto& load = *static_cast<RaftLoadClient*>(context);
  const Scope step(load.env_, scope::load_end);
  const Try& each = load.tries_[tag];
  Client& client = load.clients_[each.client];
  const Time now = load.endpoint_.recent();
  load.free_tries_.push_back(static_cast<std::uint32_t>(tag));
  if (outcome != Outcome::kOk) {
    // Only the last try matters: an earlier one has been given up.
    if (each.number == client.logic.tries()) client.logic.failed(now);
  } else if (const auto answer = client.logic.answer(now, each.response->bytes())) {
    load.take_answer(client, *answer, now);
  }
  if (client.logic.busy()) load.try_now(client, now);
}

void RaftLoadClient::take_answer(Client& client, const raft::KvAnswer& answer, Time now) {
  --busy_;
  std::uint64_t word = 0;
  if (answer.status != raft::KvStatus::kDone)
    complain("status " + std::to_string(static_cast<int>(answer.status)));
  else if (client.is_get && answer.found && !holds_word(answer.value, word))
    complain("a value that no client has written");
  if (history_ != nullptr) record(client, answer, word, now);
  if (interval_ == nullptr) return;
  if (interval_->count(now))
    (client.is_get ? get_latency_ : put_latency_).record(now - client.began);
  if (interval_->over(now)) is_over_ = true;
  if (!is_over_) begin(client, now);
}

// All words of a value are the same.
bool RaftLoadClient::holds_word(const raft::Value& value, std::uint64_t& word) const {
  if (value.size != shape_.value_bytes) return false;
  std::memcpy(&word, value.bytes.data(), sizeof word);
  for (std::size_t at = sizeof word; at < value.size; at += sizeof word) {
    if (std::memcmp(value.bytes.data() + at, &word, sizeof word) != 0) return false;
  }
  return true;
}

void RaftLoadClient::record(const Client& client, const raft::KvAnswer& answer, std::uint64_t word,
                            Time now) {
  const auto value = [](std::uint64_t w) {
    return check::Value::integer(static_cast<std::int64_t>(w));
  };
  if (client.is_get)
    history_->ended(client.index, client.began, now, check::Function::kGet, client.key,
                    check::Value::none(), answer.found ? value(word) : check::Value::none());
  else
    history_->ended(client.index, client.began, now, check::Function::kPut, client.key,
                    value(client.word), value(client.word));
}

void RaftLoadClient::complain(const std::string& what) {
  if (problem_.empty()) problem_ = what;
}

void RaftLoadClient::serve() {
  while (busy_ != 0) {
    const Time now = env_.now();
    wake_ = kForever;
    for (Client& client : clients_) {
      if (!client.logic.busy()) continue;
      try_now(client, now);
      if (now - client.began <= shape_.patience) continue;
      throw Error(ErrorCode::kTimeout, "no member has answered an operation of node " +
                                           std::to_string(env_.node()) + " in " +
                                           std::to_string(client.logic.tries()) +
                                           " tries: " + endpoint_.describe_pending());
    }
    const Time due = wake_;
    endpoint_.run_until([&] { return busy_ == 0 || wake_ < due || !problem_.empty(); }, due);
    if (problem_.empty()) continue;
    throw Error(ErrorCode::kInternal,
                "an answer of the replicated store has " + problem_ + "; report this as a bug");
  }
}

void RaftLoadClient::say_finished(std::uint64_t number, Time wait) {
  const Time deadline = env_.now() + wait;
  const auto ended = [](void* context, std::uint64_t, Outcome) {
    --static_cast<RaftLoadClient*>(context)->unanswered_;
  };
  for (const NodeId member : shape_.members) {
    std::optional<SessionId> session;
    endpoint_.run_until([&] { return (session = sessions_.find(member)).has_value(); }, deadline);
    if (!session) continue;  // it is down
    MsgBuffer* const request = endpoint_.allocate(sizeof number);
    std::memcpy(request->data(), &number, sizeof number);
    ++unanswered_;
    endpoint_.enqueue_request(
        {*session, raft::kFinishedRequest, request, endpoint_.allocate(0), ended, this, 0});
  }
  endpoint_.run_until([&] { return unanswered_ == 0; }, deadline);
}

}  // namespace pyrdma::erpc
