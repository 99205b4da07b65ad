#include "systems/erpc/raft/kv_messages.h"

#include <algorithm>

namespace pyrdma::erpc::raft {

bool Value::operator==(const Value& other) const {
  return std::ranges::equal(view(), other.view());
}

Value Value::of(ByteView bytes) {
  Value value;
  value.size = static_cast<std::uint8_t>(std::min(bytes.size(), kMaxValue));
  std::copy_n(bytes.begin(), value.size, value.bytes.begin());
  return value;
}

Bytes encode(const KvCommand& command) {
  Bytes bytes;
  bytes.reserve(40 + command.value.size);
  ByteWriter out(bytes);
  out.put(static_cast<std::uint8_t>(command.operation));
  out.put(command.value.size);
  out.put(std::uint16_t{0});
  out.put(std::uint32_t{0});
  out.put(command.client);
  out.put(command.sequence);
  out.put(ByteView(command.key));
  out.put(command.value.view());
  return bytes;
}

std::optional<KvCommand> decode_command(ByteView bytes) {
  ByteReader in(bytes);
  const auto operation = in.get<std::uint8_t>();
  const auto size = in.get<std::uint8_t>();
  const bool zeros = in.get<std::uint16_t>() == 0 && in.get<std::uint32_t>() == 0;
  KvCommand command;
  command.client = in.get<std::uint64_t>();
  command.sequence = in.get<std::uint64_t>();
  const ByteView key = in.bytes(kKeyBytes);
  if (!in.ok() || !zeros || operation < 1 || operation > 2 || size > kMaxValue ||
      size != in.left() || command.sequence == 0 || (operation == 2 && size != 0))
    return std::nullopt;
  command.operation = static_cast<KvOperation>(operation);
  std::ranges::copy(key, command.key.begin());
  command.value = Value::of(in.bytes(size));
  return command;
}

Bytes encode(const KvAnswer& answer) {
  Bytes bytes;
  bytes.reserve(24 + answer.value.size);
  ByteWriter out(bytes);
  out.put(static_cast<std::uint8_t>(answer.status));
  out.put(static_cast<std::uint8_t>(answer.found));
  out.put(answer.value.size);
  out.put(std::uint8_t{0});
  out.put(answer.leader);
  out.put(answer.sequence);
  out.put(answer.version);
  out.put(answer.value.view());
  return bytes;
}

std::optional<KvAnswer> decode_answer(ByteView bytes) {
  ByteReader in(bytes);
  const auto status = in.get<std::uint8_t>();
  const auto found = in.get<std::uint8_t>();
  const auto size = in.get<std::uint8_t>();
  const auto zero = in.get<std::uint8_t>();
  KvAnswer answer;
  answer.leader = in.get<std::uint32_t>();
  answer.sequence = in.get<std::uint64_t>();
  answer.version = in.get<std::uint64_t>();
  if (!in.ok() || zero != 0 || status < 1 || status > 6 || found > 1 || size > kMaxValue ||
      size != in.left())
    return std::nullopt;
  answer.status = static_cast<KvStatus>(status);
  answer.found = found == 1;
  answer.value = Value::of(in.bytes(size));
  return answer;
}

}  // namespace pyrdma::erpc::raft
