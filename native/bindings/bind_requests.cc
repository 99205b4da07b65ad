#include <pybind11/native_enum.h>
#include <pybind11/stl.h>

#include <cstring>

#include "bindings/argument.h"
#include "bindings/bind.h"
#include "bindings/errors.h"
#include "bindings/requests.h"

namespace pyrdma::bindings {

namespace {

template <class T>
py::bytes pack(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

template <class T>
T unpack(const Arg<"packed", py::bytes>& packed) {
  const std::string text = packed.value;
  T value;
  if (text.size() != sizeof value) {
    throw Error(ErrorCode::kInvalidArgument,
                "packed has " + std::to_string(text.size()) + " bytes; give the " +
                    std::to_string(sizeof value) + " that to_bytes returned");
  }
  std::memcpy(&value, text.data(), sizeof value);
  return value;
}

constexpr int kRequestFlags = fabric::kSignaled | fabric::kInline | fabric::kFence;

fabric::Opcode checked_opcode(std::uint64_t opcode, std::size_t position) {
  if (opcode <= static_cast<std::uint64_t>(fabric::Opcode::kFetchAdd))
    return static_cast<fabric::Opcode>(opcode);
  throw Error(ErrorCode::kInvalidArgument,
              "request " + std::to_string(position) + ": opcode is " + std::to_string(opcode) +
                  "; give one that can be posted, 0 (WRITE) to 6 (FETCH_ADD)");
}

using Sges = Arg<"sges", std::vector<fabric::Sge>>;
using WrId = Arg<"wr_id", std::uint64_t>;

PyRequest make_request(
    const Arg<"opcode", fabric::Opcode>& opcode, const Sges& sges, const WrId& wr_id,
    const Arg<"flags", std::uint8_t, 0, kRequestFlags>& flags,
    const Arg<"remote_addr", std::uint64_t>& remote_addr, const Arg<"rkey", std::uint32_t>& rkey,
    const Arg<"immediate", std::uint32_t>& immediate,
    const Arg<"compare_add", std::uint64_t>& compare_add, const Arg<"swap", std::uint64_t>& swap,
    const Arg<"address_handle", std::optional<std::shared_ptr<PyAddressHandle>>>& given) {
  std::shared_ptr<PyAddressHandle> handle = given.value.value_or(nullptr);
  PyRequest made;
  made.request.opcode = checked_opcode(static_cast<std::uint64_t>(opcode.value), 0);
  made.request.wr_id = wr_id;
  made.request.flags = flags;
  made.request.remote_addr = remote_addr;
  made.request.rkey = rkey;
  made.request.immediate = immediate;
  made.request.compare_add = compare_add;
  made.request.swap = swap;
  if (handle) {
    made.request.remote_qpn = handle->peer().qp_num;
    made.request.remote_qkey = handle->peer().qkey;
  }
  made.sges = sges;
  made.handle = std::move(handle);
  return made;
}

/// Registers the row types with NumPy, which imports NumPy. It does not run with the import of the
/// module, because node processes import that.
void describe_rows() {
  static const bool once = [] {
    PYBIND11_NUMPY_DTYPE(CompletionRow, wr_id, status, opcode, flags, qp_num, byte_count, immediate,
                         source_qpn, source_node, vendor_error, stride);
    PYBIND11_NUMPY_DTYPE(RequestRow, wr_id, opcode, flags, length, lkey, rkey, local_addr,
                         remote_addr, immediate, remote_qpn, remote_qkey, compare_add, swap);
    return true;
  }();
  static_cast<void>(once);
}

void read_rows(const py::array_t<RequestRow>& rows, const std::shared_ptr<PyAddressHandle>& handle,
               Batch& batch) {
  if (rows.ndim() != 1)
    throw Error(ErrorCode::kInvalidArgument,
                "the request array has " + std::to_string(rows.ndim()) + " dimensions; give one");
  const auto view = rows.unchecked<1>();
  const auto count = static_cast<std::size_t>(view.shape(0));
  batch.requests.resize(count);
  batch.sges.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const RequestRow& row = view(static_cast<py::ssize_t>(i));
    batch.sges[i] = {row.local_addr, row.length, row.lkey};
    fabric::WorkRequest& request = batch.requests[i];
    request.wr_id = row.wr_id;
    request.sges = &batch.sges[i];
    request.sge_count = 1;
    request.opcode = checked_opcode(row.opcode, i);
    if (row.flags > kRequestFlags)
      throw Error(ErrorCode::kInvalidArgument,
                  "request " + std::to_string(i) + ": flags is " + std::to_string(row.flags) +
                      "; give SIGNALED, INLINE and FENCE, together at most " +
                      std::to_string(kRequestFlags));
    request.flags = row.flags;
    request.immediate = row.immediate;
    request.remote_addr = row.remote_addr;
    request.rkey = row.rkey;
    request.remote_qpn = handle && row.remote_qpn == 0 ? handle->peer().qp_num : row.remote_qpn;
    request.remote_qkey = handle && row.remote_qkey == 0 ? handle->peer().qkey : row.remote_qkey;
    request.compare_add = row.compare_add;
    request.swap = row.swap;
  }
}

void bind_enums(py::module_& verbs) {
  py::native_enum<fabric::Opcode>(verbs, "Opcode", "enum.IntEnum",
                                  "Operation of a request or a completion.")
      .value("WRITE", fabric::Opcode::kWrite)
      .value("WRITE_IMM", fabric::Opcode::kWriteImm)
      .value("SEND", fabric::Opcode::kSend)
      .value("SEND_IMM", fabric::Opcode::kSendImm)
      .value("READ", fabric::Opcode::kRead)
      .value("COMPARE_SWAP", fabric::Opcode::kCompareSwap)
      .value("FETCH_ADD", fabric::Opcode::kFetchAdd)
      .value("RECEIVE", fabric::Opcode::kReceive)
      .value("RECEIVE_WRITE_IMM", fabric::Opcode::kReceiveWriteImm)
      .finalize();
  py::native_enum<fabric::Status>(verbs, "Status", "enum.IntEnum",
                                  "Outcome of a request, with the meanings of ibv_wc_status.")
      .value("SUCCESS", fabric::Status::kSuccess)
      .value("LOCAL_LENGTH", fabric::Status::kLocalLength)
      .value("LOCAL_QP_OPERATION", fabric::Status::kLocalQpOperation)
      .value("LOCAL_PROTECTION", fabric::Status::kLocalProtection)
      .value("FLUSHED", fabric::Status::kFlushed)
      .value("REMOTE_INVALID_REQUEST", fabric::Status::kRemoteInvalidRequest)
      .value("REMOTE_ACCESS", fabric::Status::kRemoteAccess)
      .value("REMOTE_OPERATION", fabric::Status::kRemoteOperation)
      .value("RETRY_EXCEEDED", fabric::Status::kRetryExceeded)
      .value("RNR_RETRY_EXCEEDED", fabric::Status::kRnrRetryExceeded)
      .value("GENERAL", fabric::Status::kGeneral)
      .finalize();
  py::native_enum<fabric::QpState>(verbs, "QpState", "enum.IntEnum", "State of a queue pair.")
      .value("RESET", fabric::QpState::kReset)
      .value("INIT", fabric::QpState::kInit)
      .value("READY_TO_RECEIVE", fabric::QpState::kReadyToReceive)
      .value("READY_TO_SEND", fabric::QpState::kReadyToSend)
      .value("SEND_QUEUE_ERROR", fabric::QpState::kSendQueueError)
      .value("ERROR", fabric::QpState::kError)
      .finalize();
  verbs.attr("SIGNALED") = static_cast<int>(fabric::kSignaled);
  verbs.attr("INLINE") = static_cast<int>(fabric::kInline);
  verbs.attr("FENCE") = static_cast<int>(fabric::kFence);
  verbs.attr("LOCAL_WRITE") = static_cast<int>(fabric::kLocalWrite);
  verbs.attr("REMOTE_WRITE") = static_cast<int>(fabric::kRemoteWrite);
  verbs.attr("REMOTE_READ") = static_cast<int>(fabric::kRemoteRead);
  verbs.attr("REMOTE_ATOMIC") = static_cast<int>(fabric::kRemoteAtomic);
  verbs.attr("RELAXED_ORDERING") = static_cast<int>(fabric::kRelaxedOrdering);
  verbs.attr("ALL_ACCESS") = static_cast<int>(fabric::kAllAccess);
  verbs.attr("HAS_IMMEDIATE") = static_cast<int>(fabric::kHasImmediate);
  verbs.attr("HAS_GRH") = static_cast<int>(fabric::kHasGrh);
  verbs.attr("CONGESTED") = static_cast<int>(fabric::kCongested);
  verbs.attr("GRH_BYTES") = static_cast<int>(fabric::kGrhBytes);
}

void bind_addresses(py::module_& verbs) {
  py::class_<fabric::QpAddress>(verbs, "QpAddress",
                                "Address by which a peer connects to a queue pair. Immutable.")
      .def_readonly("node", &fabric::QpAddress::node, "Node of the queue pair.")
      .def_readonly("qp_num", &fabric::QpAddress::qp_num, "Number of the queue pair.")
      .def_readonly("psn", &fabric::QpAddress::psn, "Its first packet sequence number.")
      .def_readonly("qkey", &fabric::QpAddress::qkey,
                    "The key that its datagrams must carry, for UD; for DC, the access key.")
      .def_readonly("reads", &fabric::QpAddress::reads,
                    "Reads and atomics of a peer that it serves at once.")
      .def("to_bytes", &pack<fabric::QpAddress>, "Encode it, to send it to a peer.")
      .def_static("from_bytes", &unpack<fabric::QpAddress>, py::arg("packed"),
                  "Decode what `to_bytes` returned.");
  py::class_<fabric::RemoteRegion>(
      verbs, "RemoteRegion", "Address and key by which a peer reaches a memory region. Immutable.")
      .def(
          py::init(
              [](const Arg<"addr", std::uint64_t>& addr, const Arg<"length", std::uint64_t>& length,
                 const Arg<"rkey", std::uint32_t>& rkey, const Arg<"node", std::uint32_t>& node) {
                return fabric::RemoteRegion{addr, length, rkey, node};
              }),
          py::arg("addr"), py::arg("length"), py::arg("rkey"), py::arg("node"))
      .def_readonly("addr", &fabric::RemoteRegion::addr, "Its first address at its node.")
      .def_readonly("length", &fabric::RemoteRegion::length, "Its size in bytes.")
      .def_readonly("rkey", &fabric::RemoteRegion::rkey, "The key that a peer's request names.")
      .def_readonly("node", &fabric::RemoteRegion::node, "Node of the region.")
      .def("to_bytes", &pack<fabric::RemoteRegion>, "Encode it, to send it to a peer.")
      .def_static("from_bytes", &unpack<fabric::RemoteRegion>, py::arg("packed"),
                  "Decode what `to_bytes` returned.");
  py::class_<fabric::Sge>(verbs, "Sge", "A local buffer: address, length in bytes, key.")
      .def(py::init([](const Arg<"addr", std::uint64_t>& addr,
                       const Arg<"length", std::uint32_t>& length,
                       const Arg<"lkey", std::uint32_t>& lkey) {
             return fabric::Sge{addr, length, lkey};
           }),
           py::arg("addr"), py::arg("length"), py::arg("lkey"))
      .def_readonly("addr", &fabric::Sge::addr, "Its first address.")
      .def_readonly("length", &fabric::Sge::length, "Its length in bytes.")
      .def_readonly("lkey", &fabric::Sge::lkey, "The local key of its memory region.");
}

}  // namespace

Batch read_requests(const py::object& requests, const std::shared_ptr<PyAddressHandle>& handle) {
  Batch batch;
  if (py::isinstance<py::array>(requests)) {
    describe_rows();
    if (!py::isinstance<py::array_t<RequestRow>>(requests)) {
      throw Error(ErrorCode::kInvalidArgument,
                  "the array's dtype is " + py::str(requests.attr("dtype")).cast<std::string>() +
                      "; give one of dtype pyrdma.verbs.REQUEST_DTYPE");
    }
    read_rows(requests.cast<py::array_t<RequestRow>>(), handle, batch);
    return batch;
  }
  batch.kept = read_argument<std::vector<PyRequest>>("requests", requests);
  batch.requests.reserve(batch.kept.size());
  for (PyRequest& kept : batch.kept) {
    kept.request.sges = kept.sges.data();
    kept.request.sge_count = static_cast<std::uint32_t>(kept.sges.size());
    batch.requests.push_back(kept.request);
  }
  return batch;
}

void check_overrun(const fabric::CompletionQueue& queue) {
  if (!queue.overrun()) return;
  throw Error(ErrorCode::kExhausted,
              "the completion queue overran its " + std::to_string(queue.entries()) +
                  " entries and is unusable; create one with more entries, or poll more often");
}

py::array_t<CompletionRow> to_rows(const std::vector<fabric::Completion>& completions, bool check) {
  for (const fabric::Completion& completion : completions)
    if (check && completion.status != fabric::Status::kSuccess) throw CompletionFailed(completion);
  describe_rows();
  py::array_t<CompletionRow> rows(static_cast<py::ssize_t>(completions.size()));
  CompletionRow* row = rows.mutable_data();
  for (const fabric::Completion& c : completions) {
    *row++ = {c.wr_id,
              static_cast<std::uint8_t>(c.status),
              static_cast<std::uint8_t>(c.opcode),
              c.flags,
              0,
              c.qp_num,
              c.byte_count,
              c.immediate,
              c.source_qpn,
              c.source_node,
              c.vendor_error,
              c.stride};
  }
  return rows;
}

void bind_requests(py::module_& verbs) {
  verbs.def(
      "completion_dtype",
      [] {
        describe_rows();
        return py::dtype::of<CompletionRow>();
      },
      "Return the dtype of the arrays of `CompletionQueue.poll`.");
  verbs.def(
      "request_dtype",
      [] {
        describe_rows();
        return py::dtype::of<RequestRow>();
      },
      "Return the dtype of the arrays that `QueuePair.post` takes.");
  bind_enums(verbs);
  bind_addresses(verbs);
  py::class_<PyAddressHandle, std::shared_ptr<PyAddressHandle>>(
      verbs, "AddressHandle", "Destination of datagrams and of dynamically connected requests.")
      .def_property_readonly("peer", &PyAddressHandle::peer, "The address that it leads to.")
      .def("close", &PyAddressHandle::close,
           "Free the handle. InvalidArgument while a queue pair has sent with it.");
  py::class_<PyRequest>(verbs, "Request",
                        "One send-queue request; pyrdma.verbs.write, read, send, ... make them.")
      .def(py::init(&make_request), py::arg("opcode"), py::arg("sges"), py::arg("wr_id") = 0,
           py::arg("flags") = static_cast<int>(fabric::kSignaled), py::arg("remote_addr") = 0,
           py::arg("rkey") = 0, py::arg("immediate") = 0, py::arg("compare_add") = 0,
           py::arg("swap") = 0, py::arg("address_handle") = py::none())
      .def_property_readonly(
          "wr_id", [](const PyRequest& self) { return self.request.wr_id; },
          "Identifier that the completion returns.")
      .def_property_readonly(
          "opcode", [](const PyRequest& self) { return self.request.opcode; }, "The operation.");
  py::class_<PyReceive>(verbs, "Receive", "One receive request: the buffer of the next message.")
      .def(py::init([](const Sges& sges, const WrId& wr_id) {
             return PyReceive{wr_id, sges};
           }),
           py::arg("sges"), py::arg("wr_id") = 0)
      .def_readonly("wr_id", &PyReceive::wr_id, "Identifier that the completion returns.");
}

}  // namespace pyrdma::bindings
