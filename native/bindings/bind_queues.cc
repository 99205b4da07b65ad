// Bindings of posting and polling.
#include <pybind11/stl.h>

#include "bindings/argument.h"
#include "bindings/bind.h"
#include "bindings/requests.h"
#include "bindings/waiting.h"

namespace pyrdma::bindings {

namespace {

using Peer = Arg<"peer", std::optional<fabric::QpAddress>>;

py::array_t<CompletionRow> poll(PyCompletionQueue& self,
                                const Arg<"max", std::size_t, 1, 1 << 20>& max,
                                const Arg<"timeout_s", double, 0, 1'000'000>& timeout_s,
                                const Arg<"check", bool>& check) {
  std::vector<fabric::Completion> found(max);
  std::size_t count = 0;
  wait_sliced(self.session(), self.node(), duration_of(timeout_s, "timeout_s"),
              [&](Env& env, Time deadline) {
                const PyCompletionQueue::Use use(self);
                return env.poll_until(
                    [&] {
                      const PyCompletionQueue::Call call(self);  // others poll between two looks
                      fabric::CompletionQueue& queue = self.native();
                      check_overrun(queue);
                      return (count = queue.poll(found)) != 0;
                    },
                    deadline, &self.native().watch());
              });
  found.resize(count);
  return to_rows(found, check);
}

// The NIC copies inline payloads without a key check, so this code checks the address.
void check_inline(PyQueuePair& self, const Batch& batch) {
  for (const fabric::WorkRequest& request : batch.requests) {
    if ((request.flags & fabric::kInline) == 0) continue;
    for (std::uint32_t i = 0; i < request.sge_count; ++i) {
      const fabric::Sge& sge = request.sges[i];
      if (sge.length == 0 || self.session().covered(self.node(), sge.addr, sge.length)) continue;
      throw Error(ErrorCode::kInvalidArgument,
                  "request " + std::to_string(request.wr_id) +
                      ": its inline payload lies in no open memory region of its node");
    }
  }
}

/// `what` is "request" or "receive"; `check` names the fields that the queue pair may refuse.
void accept(const fabric::PostResult& result, std::size_t wanted, const std::string& what,
            const char* check) {
  if (result.accepted == wanted || result.error == fabric::PostError::kQueueFull) return;
  std::string posted;
  if (result.accepted == 1) posted = "; " + what + " 0 was posted";
  if (result.accepted > 1)
    posted = "; " + what + "s 0 to " + std::to_string(result.accepted - 1) + " were posted";
  throw Error(ErrorCode::kInvalidArgument,
              what + ' ' + std::to_string(result.accepted) +
                  " was refused: " + fabric::to_string(result.error) + "; " +
                  (result.error == fabric::PostError::kInvalidState ? "connect the queue pair first"
                                                                    : check) +
                  posted);
}

std::uint32_t post(
    PyQueuePair& self, const py::object& requests,
    const Arg<"address_handle", std::optional<std::shared_ptr<PyAddressHandle>>>& given) {
  const std::shared_ptr<PyAddressHandle> handle = given.value.value_or(nullptr);
  if (handle) {
    same_node(self, *handle, "address handle");
    self.keep(handle);
  }
  Batch batch = read_requests(requests, handle);
  for (const PyRequest& kept : batch.kept) {
    if (!kept.handle) continue;
    same_node(self, *kept.handle, "address handle");
    self.keep(kept.handle);
  }
  const fabric::PostResult result = self.session().call([&] {
    const PyQueuePair::Call call(self);
    fabric::QueuePair& qp = self.native();
    check_inline(self, batch);
    for (std::size_t i = 0; i < batch.requests.size(); ++i) {
      const auto& own = batch.kept.empty() ? handle : batch.kept[i].handle;
      batch.requests[i].address_handle = own ? &own->native() : nullptr;
    }
    return qp.post(batch.requests);
  });
  accept(result, batch.requests.size(), "request",
         "check its opcode, number of buffers and inline length");
  return result.accepted;
}

template <class Queue>
std::uint32_t post_receive(Queue& self, const Arg<"receives", std::vector<PyReceive>>& receives) {
  std::vector<fabric::ReceiveRequest> requests;
  for (const PyReceive& receive : receives.value) {
    requests.push_back(
        {receive.wr_id, receive.sges.data(), static_cast<std::uint32_t>(receive.sges.size())});
  }
  const fabric::PostResult result = self.session().call([&] {
    const typename Queue::Call call(self);
    return self.native().post_receive(requests);
  });
  accept(result, requests.size(), "receive", "check its number of buffers");
  return result.accepted;
}

constexpr const char* kPollText = R"(Take completions off the queue.

Parameters
----------
max
    The most completions to take, 1 to 2**20.
timeout_s
    Wait for the first one up to this many seconds of the cluster's clock.
check
    Raise `pyrdma.CompletionError` for a completion whose status is not SUCCESS.

Returns
-------
array, shape (0 to max,), dtype COMPLETION_DTYPE
    Empty if none came in time. `pyrdma.Exhausted` if the queue has overrun its entries.)";

constexpr const char* kConnectText = R"(Make the queue pair ready to send.

Parameters
----------
peer
    The `address` of the other queue pair, for RC and UC. UD and DC take none.)";

constexpr const char* kModifyText = R"(Change the state, as ibv_modify_qp does.

Parameters
----------
state
    The new state. `InvalidArgument` if the present one does not lead there.
peer
    The `address` of the other queue pair, for the step to READY_TO_RECEIVE of RC and UC.)";

constexpr const char* kPostText = R"(Post requests in order, in one call with one doorbell.

Parameters
----------
requests
    A list of requests, or an array of dtype REQUEST_DTYPE. From the first invalid one on,
    none is posted; `InvalidArgument` names it and says which were posted.
address_handle
    Destination of those without one of their own, on a UD or DC queue pair.

Returns
-------
int
    Number of accepted requests, which is smaller than given when the send queue is full.)";

constexpr const char* kPostReceiveText = R"(Post buffers for the next messages, in order.

Parameters
----------
receives
    Messages take them in this order.

Returns
-------
int
    Number of accepted receives, which is smaller than given when the queue is full.)";

}  // namespace

void bind_queues(py::module_& verbs) {
  py::class_<PyCompletionQueue, std::shared_ptr<PyCompletionQueue>>(
      verbs, "CompletionQueue", "Queue of the completions of requests.")
      .def_property_readonly(
          "entries",
          [](PyCompletionQueue& self) {
            return self.session().call([&] { return self.native().entries(); });
          },
          "The most completions that the queue holds.")
      .def("poll", &poll, py::arg("max") = 16, py::arg("timeout_s") = 0.0, py::arg("check") = true,
           kPollText)
      .def("close", &PyCompletionQueue::close,
           "Free the queue. InvalidArgument while a queue pair uses it.");
  py::class_<PySharedReceiveQueue, std::shared_ptr<PySharedReceiveQueue>>(
      verbs, "SharedReceiveQueue", "Receives for many queue pairs.")
      .def("post_receive", &post_receive<PySharedReceiveQueue>, py::arg("receives"),
           kPostReceiveText)
      .def("close", &PySharedReceiveQueue::close,
           "Free the queue. InvalidArgument while a queue pair uses it.");
  py::class_<PyQueuePair, std::shared_ptr<PyQueuePair>>(verbs, "QueuePair",
                                                        "One end of a connection.")
      .def_property_readonly(
          "qp_num",
          [](PyQueuePair& self) {
            return self.session().call([&] { return self.native().qp_num(); });
          },
          "Number of the queue pair, unique at its device.")
      .def_property_readonly(
          "state",
          [](PyQueuePair& self) {
            return self.session().call([&] { return self.native().state(); });
          },
          "The state now.")
      .def_property_readonly(
          "address",
          [](PyQueuePair& self) {
            return self.session().call([&] { return self.native().address(); });
          },
          "What a peer needs to connect to it.")
      .def(
          "connect",
          [](PyQueuePair& self, const Peer& peer) {
            self.session().call([&] {
              const PyQueuePair::Call call(self);
              self.native().connect(peer.value.value_or(fabric::QpAddress{}));
            });
          },
          py::arg("peer") = py::none(), kConnectText)
      .def(
          "modify",
          [](PyQueuePair& self, const Arg<"state", fabric::QpState>& state, const Peer& peer) {
            self.session().call([&] {
              const PyQueuePair::Call call(self);
              self.native().modify(state, peer.value ? &*peer.value : nullptr);
            });
          },
          py::arg("state"), py::arg("peer") = py::none(), kModifyText)
      .def("post", &post, py::arg("requests"), py::arg("address_handle") = py::none(), kPostText)
      .def("post_receive", &post_receive<PyQueuePair>, py::arg("receives"), kPostReceiveText)
      .def("close", &PyQueuePair::close, "Free the queue pair, with the receives that it holds.");
}

}  // namespace pyrdma::bindings
