// The part of the Python module that belongs to Tailwind.
#include <pybind11/stl.h>

#include "base/error.h"
#include "bindings/bind.h"
#include "systems/tailwind/bindings/stores.h"
#include "systems/tailwind/log/scan.h"
#include "systems/tailwind/log/segment.h"
#include "systems/tailwind/options.h"

namespace pyrdma::tailwind {

void bind(pybind11::module_& module);

namespace {

namespace py = pybind11;

py::bytes replica(const std::vector<std::pair<std::string, std::string>>& objects) {
  std::vector<std::byte> memory(64U << 20);
  LogMemory log_memory(memory);
  Segment segment(log_memory, 1, 1);
  const auto view = [](const std::string& text) { return std::as_bytes(std::span(text)); };
  std::uint64_t version = 0;
  for (const auto& [key, value] : objects) {
    if (key.size() > kMostKey || value.size() > kMostValue ||
        !segment.has_room(key.size() + value.size())) {
      throw Error(ErrorCode::kInvalidArgument, "the objects do not fit a segment of " +
                                                   std::to_string(Segment::kCapacity) +
                                                   " bytes; give fewer or shorter ones");
    }
    EntryHeader header;
    header.type = EntryType::kObject;
    header.version = ++version;
    segment.append(header, view(key), view(value));
  }
  std::string bytes;
  segment.for_pieces(0, segment.end(), [&](ByteView piece, std::uint32_t) {
    bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  });
  return py::bytes(bytes);
}

py::tuple scan_bytes(const std::string& bytes) {
  const Scan found = scan(std::as_bytes(std::span(bytes)));
  return py::make_tuple(found.valid, found.entries, to_string(found.end));
}

}  // namespace

void bind(pybind11::module_& module) {
  const auto names = [](const auto& list) {
    return std::vector<std::string>(list.begin(), list.end());
  };
  module.doc() = "A store with one-sided log replication, after the Tailwind paper.";
  module.attr("replications") = names(kReplicationNames);
  module.attr("durabilities") = names(kDurabilityNames);
  module.attr("placements") = names(kPlacementNames);
  module.attr("header_bytes") = sizeof(EntryHeader);
  module.attr("checksum_bytes") = sizeof(ChecksumEntry);
  module.def("replica", &replica,
             "Return the bytes of a replica: objects of (key, value), each with its checksum.");
  module.def("scan", &scan_bytes,
             "Scan a replica: return the valid bytes, the objects in them, and why it ended.");
  bindings::bind_stores(module);
}

}  // namespace pyrdma::tailwind
