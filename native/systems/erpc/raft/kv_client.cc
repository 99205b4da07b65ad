#include "systems/erpc/raft/kv_client.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace pyrdma::erpc::raft {

KvClient::KvClient(std::uint64_t id, const Options& options) : options_(options) {
  if (options_.members.empty())
    throw Error(ErrorCode::kInvalidArgument, "raft: a client needs at least 1 member, got 0");
  command_.client = id;
}

void KvClient::begin(Time now) {
  if (busy_)
    throw Error(ErrorCode::kInvalidArgument,
                "raft: client " + std::to_string(command_.client) +
                    " has an operation open; wait for its end or abandon it");
  busy_ = true;
  tried_ = false;
  first_ = true;
  next_ = now;
  ++command_.sequence;
}

void KvClient::put(Time now, const Key& key, ByteView value) {
  if (value.size() > kMaxValue)
    throw Error(ErrorCode::kInvalidArgument, "raft: the value has " + std::to_string(value.size()) +
                                                 " bytes; give at most " +
                                                 std::to_string(kMaxValue));
  begin(now);
  command_.operation = KvOperation::kPut;
  command_.key = key;
  command_.value = Value::of(value);
}

void KvClient::get(Time now, const Key& key) {
  begin(now);
  command_.operation = KvOperation::kGet;
  command_.key = key;
  command_.value = {};
}

void KvClient::turn_to_next() { target_ = (target_ + 1) % options_.members.size(); }

std::optional<Bytes> KvClient::request(Time now) {
  if (!busy_ || now < next_) return std::nullopt;
  if (tried_) turn_to_next();  // the last try has timed out
  if (!first_ && !options_.bugs.keeps_number()) ++command_.sequence;
  first_ = false;
  tried_ = true;
  ++tries_;
  next_ = now + options_.timeout;
  return encode(command_);
}

void KvClient::failed(Time now) {
  if (!busy_ || !tried_) return;
  tried_ = false;
  turn_to_next();
  next_ = now + options_.pause;
}

std::optional<KvAnswer> KvClient::answer(Time now, ByteView bytes) {
  const auto answer = decode_answer(bytes);
  if (!answer || !busy_ || answer->sequence != command_.sequence) {
    ++dropped_;
    return std::nullopt;
  }
  switch (answer->status) {
    case KvStatus::kNotLeader: {
      if (!tried_) return std::nullopt;  // an old answer: the next try is already planned
      tried_ = false;
      const auto& members = options_.members;
      const auto hint = std::ranges::find(members, answer->leader - 1);
      if (answer->leader != 0 && hint != members.end()) {
        target_ = static_cast<std::size_t>(hint - members.begin());
        next_ = now;
      } else {
        turn_to_next();
        next_ = now + options_.pause;
      }
      return std::nullopt;
    }
    case KvStatus::kBusy:
      tried_ = false;
      next_ = now + options_.pause;
      return std::nullopt;
    default:
      busy_ = false;
      return answer;
  }
}

}  // namespace pyrdma::erpc::raft
