// The changes of the coordinator's state, and the encoding of their fields. The coordinator's
// commands write them, and whoever loads its file reads them. Any thread may call the functions.
// Each costs a copy of the field. What is missing when a change is read is reported by its reader:
// ByteReader::ok().
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "systems/tailwind/coordinator/state.h"
#include "systems/tailwind/server_id.h"

namespace pyrdma::tailwind {

enum class Change : std::uint8_t {
  kSnapshot = 1,
  kEnlist,
  kDeclareDead,
  kRaiseVersion,
  kCreateTable,
  kRecordCut,
  kMoveTablets,
  kForget,
  kReserveClients,
};

inline ByteWriter begin_change(Bytes& bytes, Change change) {
  ByteWriter out(bytes);
  out.put(static_cast<std::uint8_t>(change));
  return out;
}

inline Bytes change_of(Change change, ServerId server) {
  Bytes bytes;
  begin_change(bytes, change).put(server.number());
  return bytes;
}

inline ServerId get_server(ByteReader& in) { return ServerId::of(in.get<std::uint64_t>()); }

inline void put_size(ByteWriter& out, std::size_t size) {
  out.put(static_cast<std::uint32_t>(size));
}

/// Calls take() for each element of a list, until no byte is left.
template <class Take>
void get_list(ByteReader& in, Take&& take) {
  const auto count = in.get<std::uint32_t>();
  for (std::uint32_t i = 0; i < count && in.ok(); ++i) take();
}

inline void put_name(ByteWriter& out, std::string_view name) {
  put_size(out, name.size());
  out.put(std::as_bytes(std::span(name)));
}

inline std::string get_name(ByteReader& in) {
  const ByteView bytes = in.bytes(in.get<std::uint32_t>());
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline void put_cut(ByteWriter& out, const LogCut& cut) {
  put_size(out, cut.size());
  for (const SegmentCut& segment : cut) {
    out.put(segment.segment);
    out.put(segment.valid);
  }
}

inline LogCut get_cut(ByteReader& in) {
  LogCut cut;
  get_list(in, [&] {
    const auto segment = in.get<std::uint64_t>();
    cut.push_back({segment, in.get<std::uint32_t>()});
  });
  return cut;
}

}  // namespace pyrdma::tailwind
