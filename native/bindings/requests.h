// Requests and completions as rows of structured NumPy arrays, and requests as Python objects.
#pragma once
#include <pybind11/numpy.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "bindings/objects.h"

namespace pyrdma::bindings {

/// A row of the array that poll returns. The fields are the columns.
struct CompletionRow {
  std::uint64_t wr_id;
  std::uint8_t status, opcode, flags, unused;
  std::uint32_t qp_num, byte_count, immediate, source_qpn, source_node, vendor_error, stride;
};

/// A row of the array that post takes: a request with one local buffer.
struct RequestRow {
  std::uint64_t wr_id;
  std::uint8_t opcode, flags;
  std::uint16_t unused;
  std::uint32_t length, lkey, rkey;
  std::uint64_t local_addr, remote_addr;
  std::uint32_t immediate, remote_qpn, remote_qkey, unused2;
  std::uint64_t compare_add, swap;
};

struct PyRequest {
  fabric::WorkRequest request;
  std::vector<fabric::Sge> sges;
  std::shared_ptr<PyAddressHandle> handle;
};

struct PyReceive {
  std::uint64_t wr_id = 0;
  std::vector<fabric::Sge> sges;
};

/// Native requests. Their buffer lists live as long as this object.
struct Batch {
  std::vector<fabric::WorkRequest> requests;
  std::vector<fabric::Sge> sges;
  std::vector<PyRequest> kept;
};

/// Converts a list of Request or a structured array. `handle` applies to all rows of an array.
/// Throws Error for opcodes that cannot be posted.
Batch read_requests(const pybind11::object& requests,
                    const std::shared_ptr<PyAddressHandle>& handle);

/// With `check`, throws CompletionFailed for the first completion that is no success.
pybind11::array_t<CompletionRow> to_rows(const std::vector<fabric::Completion>& completions,
                                         bool check);

/// Throws Error(kExhausted) when the queue has overrun its entries.
void check_overrun(const fabric::CompletionQueue& queue);

}  // namespace pyrdma::bindings
