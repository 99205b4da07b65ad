// Bindings of the low-level verbs: the devices of a cluster and the objects that they make.
#include <pybind11/stl.h>

#include <optional>

#include "base/quote.h"
#include "bindings/argument.h"
#include "bindings/bind.h"
#include "bindings/waiting.h"

namespace pyrdma::bindings {

namespace {

using DomainPtr = std::shared_ptr<PyDomain>;
using QueuePtr = std::shared_ptr<PyCompletionQueue>;
using SharedPtr = std::shared_ptr<PySharedReceiveQueue>;
using Size = Arg<"size", std::size_t, 1>;
using Access = Arg<"access", std::uint32_t, 0, fabric::kAllAccess | fabric::kRelaxedOrdering>;
using MaxSges = Arg<"max_sges", std::uint32_t, 1>;
using ServiceLevel = Arg<"service_level", std::uint32_t>;
using TrafficClass = Arg<"traffic_class", std::uint32_t>;

fabric::Transport transport_of(const std::string& name) {
  if (name == "rc") return fabric::Transport::kRc;
  if (name == "uc") return fabric::Transport::kUc;
  if (name == "ud") return fabric::Transport::kUd;
  if (name == "dc") return fabric::Transport::kDc;
  throw Error(ErrorCode::kInvalidArgument,
              "transport is " + in_quotes(name) + "; give rc, uc, ud or dc");
}

py::dict capabilities_of(const PyDevice& self) {
  const fabric::Capabilities c = self.session->call([&] { return self.native().capabilities(); });
  using namespace py::literals;
  return py::dict(
      "rc"_a = c.rc, "uc"_a = c.uc, "ud"_a = c.ud, "dc"_a = c.dc, "atomics"_a = c.atomics,
      "srq"_a = c.srq, "device_memory"_a = c.device_memory,
      "max_queue_entries"_a = c.max_queue_entries, "max_completions"_a = c.max_completions,
      "max_sges"_a = c.max_sges, "max_inline"_a = c.max_inline,
      "max_outstanding_reads"_a = c.max_outstanding_reads, "max_datagram"_a = c.max_datagram,
      "max_receive_strides"_a = c.max_receive_strides, "max_message"_a = c.max_message,
      "link_gbps"_a = c.link_gbps, "device_memory_bytes"_a = c.device_memory_bytes);
}

std::shared_ptr<PyRegion> allocate(const DomainPtr& self, std::size_t bytes, std::uint32_t access,
                                   bool on_device) {
  return self->session().call([&] {
    const PyDomain::Use use(*self);
    fabric::Device& device = self->device();
    auto native = on_device ? device.allocate_device_memory(self->native(), bytes, access)
                            : device.allocate(self->native(), bytes, access);
    return make_owned<PyRegion>(self, std::move(native));
  });
}

std::shared_ptr<PyQueuePair> queue_pair(
    const DomainPtr& self, const Arg<"send_queue", QueuePtr>& send_queue,
    const Arg<"receive_queue", std::optional<QueuePtr>>& receive_queue,
    const Arg<"transport", std::string>& transport,
    const Arg<"send_entries", std::uint32_t, 1>& send_entries,
    const Arg<"receive_entries", std::uint32_t>& receive_entries, const MaxSges& max_sges,
    const Arg<"max_inline", std::uint32_t>& max_inline,
    const Arg<"shared_receives", std::optional<SharedPtr>>& shared_receives,
    const Arg<"dc_target", bool>& dc_target,
    const Arg<"retry_count", std::uint32_t, 0, 7>& retry_count,
    const Arg<"rnr_retry", std::uint32_t, 0, 7>& rnr_retry,
    const Arg<"timeout_us", std::uint32_t, 1>& timeout_us,
    const Arg<"pkey_index", std::uint32_t>& pkey_index, const ServiceLevel& service_level,
    const TrafficClass& traffic_class,
    const Arg<"receive_strides", std::uint32_t, 1>& receive_strides) {
  const QueuePtr sends = send_queue, other = receive_queue.value.value_or(sends);
  const SharedPtr shared = shared_receives.value.value_or(nullptr);
  same_node(*self, *sends, "send_queue");
  same_node(*self, *other, "receive_queue");
  if (shared) same_node(*self, *shared, "shared_receives");
  fabric::QpOptions options;
  options.transport = transport_of(transport);
  options.send_entries = send_entries;
  options.receive_entries = receive_entries;
  options.max_sges = max_sges;
  options.max_inline = max_inline;
  options.dc_target = dc_target;
  options.retry_count = retry_count;
  options.rnr_retry = rnr_retry;
  options.timeout_us = timeout_us;
  options.pkey_index = pkey_index;
  options.path = {service_level, traffic_class};
  options.receive_strides = receive_strides;
  return self->session().call([&] {
    // The work of the kernel takes time, in which another task may run.
    const PyDomain::Use of_domain(*self);
    const PyCompletionQueue::Use of_sends(*sends), of_receives(*other);
    std::optional<PySharedReceiveQueue::Use> of_shared;
    if (shared) of_shared.emplace(*shared);
    auto native = self->device().create_queue_pair(self->native(), sends->native(), other->native(),
                                                   options, shared ? &shared->native() : nullptr);
    return make_owned<PyQueuePair>(self, sends, other, shared, std::move(native));
  });
}

std::vector<PyDevice> devices(const std::shared_ptr<Session>& session) {
  std::vector<PyDevice> found;
  for (const NodeId node : session->call([&] { return session->world().local_nodes(); }))
    found.push_back({session, node});
  return found;
}

std::vector<PyDevice> devices_of(const std::shared_ptr<Session>& session, NodeId node) {
  std::vector<PyDevice> found;
  const std::uint32_t count = session->call([&] { return session->env(node).devices(); });
  for (std::uint32_t index = 0; index < count; ++index) found.push_back({session, node, index});
  return found;
}

void kill(Session& session, NodeId node) {
  session.call([&] { session.env(node); });
  const py::gil_scoped_release release;
  session.exclusively([&] { session.world().kill(node); });
}

constexpr const char* kCapabilitiesText = R"(What the device can do, by name.

``rc``, ``uc``, ``ud``, ``dc``, ``atomics``, ``srq`` and ``device_memory`` are True or
False; the names that begin with ``max_`` are bounds. ``link_gbps`` is the rate of one link
in Gbit/s, 0 where there is no link or nobody knows its rate.)";

constexpr const char* kAllocateText = R"(Make zeroed, registered memory.

Parameters
----------
size
    Bytes, at least 1.
access
    The rights of the NIC and of peers, who have none by default: LOCAL_WRITE |
    REMOTE_WRITE, REMOTE_READ, LOCAL_WRITE | REMOTE_ATOMIC, or any combination. A request
    without the right ends with Status.REMOTE_ACCESS.)";

constexpr const char* kQueuePairText = R"(Make a queue pair in state RESET.

Parameters
----------
send_queue, receive_queue
    Queues of the completions of requests and of receives; None: one queue for both.
transport
    rc, uc, ud or dc.
send_entries, receive_entries
    The most requests and receives that it holds.
max_sges, max_inline
    The most buffers of a request, and bytes of an inline payload.
shared_receives
    Take receives from there.
dc_target
    Make a target of DC, which receives, not an initiator.
retry_count, rnr_retry
    Retries after a lost packet, and of a send without a receive at the peer; 7 of the
    latter is for ever.
timeout_us
    Time until a packet counts as lost.
pkey_index
    The partition, as a place in the port's table of P_Keys; 0 on sim and shm.
service_level, traffic_class
    0 to 15, and 0 to 255, for the network of a device of fabric verbs; 0 on sim and shm. A
    UD queue pair takes them from the address handle.
receive_strides
    Datagrams that a receive of a UD queue pair takes, at most the capability
    max_receive_strides. Each lands in the next equal part of the buffer; the column stride
    of its completion says in which.)";

void bind_cluster(py::module_& module) {
  py::class_<Session, std::shared_ptr<Session>>(module, "Cluster",
                                                "The nodes of a cluster that live in this process.")
      .def_property_readonly(
          "fabric",
          [](Session& s) { return std::string(s.call([&] { return s.world().fabric(); })); },
          "Name of the fabric: sim, shm or verbs.")
      .def_property_readonly(
          "nodes", [](Session& s) { return s.call([&] { return s.world().nodes(); }); },
          "Number of nodes of the whole cluster.")
      .def_property_readonly("devices", &devices, "The first device of each node of this process.")
      .def("devices_of", &devices_of, py::arg("node"), "All devices of a node of this process.")
      .def_property_readonly("closed", &Session::closed, "Whether `close` has been called.")
      .def("kill", &kill, py::arg("node"), "End a node, as by a power failure.")
      .def("close", &Session::close,
           "Free all objects. Arrays keep their memory; other objects then raise Unavailable.")
      .def("__enter__", [](const std::shared_ptr<Session>& self) { return self; })
      .def("__exit__", [](Session& self, const py::args& /*exception*/) { self.close(); });
}

void bind_device(py::module_& verbs) {
  py::class_<PyDevice>(verbs, "Device", "A node's RDMA device.")
      .def_readonly("node", &PyDevice::node, "Its node.")
      .def_readonly("index", &PyDevice::index, "Number of the device at its node.")
      .def_property_readonly(
          "name",
          [](const PyDevice& d) { return d.session->call([&] { return d.native().name(); }); },
          "Name of the device, such as mlx5_0.")
      .def_property_readonly("capabilities", &capabilities_of, kCapabilitiesText)
      .def_property_readonly(
          "now_ns",
          [](const PyDevice& d) {
            return d.session->call([&] { return d.session->env(d.node).now(); });
          },
          "The node's clock; virtual in the simulated world.")
      .def(
          "open", [](const PyDevice& d) { d.session->call([&] { d.native().open(); }); },
          "Allocate the device's context. In the simulated world it takes the driver's time.")
      .def(
          "sleep",
          [](const PyDevice& d, const Arg<"seconds", double, 0, 1'000'000>& seconds) {
            wait_sliced(*d.session, d.node, duration_of(seconds, "seconds"),
                        [](Env& env, Time until) {
                          env.sleep_until(until);
                          return false;
                        });
          },
          py::arg("seconds"), "Let time pass; virtual time in the simulated world.")
      .def(
          "protection_domain",
          [](const PyDevice& d) {
            return d.session->call([&] {
              return make_owned<PyDomain>(d.session, d.node, d.index,
                                          d.native().create_protection_domain());
            });
          },
          "Make a protection domain.")
      .def(
          "completion_queue",
          [](const PyDevice& d, const Arg<"entries", std::uint32_t, 1>& entries) {
            return d.session->call([&] {
              return make_owned<PyCompletionQueue>(d.session, d.node,
                                                   d.native().create_completion_queue(entries));
            });
          },
          py::arg("entries"),
          "Make a completion queue for `entries` completions, at most max_completions.");
}

void bind_domain(py::module_& verbs) {
  py::class_<PyDomain, DomainPtr>(verbs, "ProtectionDomain",
                                  "Protection domain: owner of memory and queue pairs.")
      .def(
          "allocate",
          [](const DomainPtr& self, const Size& bytes, const Access& access) {
            return allocate(self, bytes, access, false);
          },
          py::arg("size"), py::arg("access") = static_cast<std::uint32_t>(fabric::kLocalWrite),
          kAllocateText)
      .def(
          "allocate_device_memory",
          [](const DomainPtr& self, const Size& bytes, const Access& access) {
            return allocate(self, bytes, access, true);
          },
          py::arg("size"), py::arg("access") = static_cast<std::uint32_t>(fabric::kLocalWrite),
          "Make a region of the NIC's own memory, as `allocate` does of the host's.")
      .def("queue_pair", &queue_pair, py::arg("send_queue"), py::arg("receive_queue") = py::none(),
           py::arg("transport") = "rc", py::arg("send_entries") = 128,
           py::arg("receive_entries") = 128, py::arg("max_sges") = 4, py::arg("max_inline") = 0,
           py::arg("shared_receives") = py::none(), py::arg("dc_target") = false,
           py::arg("retry_count") = 7, py::arg("rnr_retry") = fabric::kInfiniteRetry,
           py::arg("timeout_us") = 1000, py::arg("pkey_index") = 0, py::arg("service_level") = 0,
           py::arg("traffic_class") = 0, py::arg("receive_strides") = 1, kQueuePairText)
      .def(
          "shared_receive_queue",
          [](const DomainPtr& self, const Arg<"entries", std::uint32_t, 1>& entries,
             const MaxSges& max_sges) {
            return self->session().call([&] {
              const PyDomain::Use use(*self);
              return make_owned<PySharedReceiveQueue>(
                  self,
                  self->device().create_shared_receive_queue(self->native(), entries, max_sges));
            });
          },
          py::arg("entries"), py::arg("max_sges") = 4,
          "Make a queue of `entries` receives, of at most `max_sges` buffers each.")
      .def(
          "address_handle",
          [](const DomainPtr& self, const Arg<"peer", fabric::QpAddress>& peer,
             const ServiceLevel& service_level, const TrafficClass& traffic_class) {
            return self->session().call([&] {
              const PyDomain::Use use(*self);
              return make_owned<PyAddressHandle>(
                  self,
                  self->device().create_address_handle(self->native(), peer,
                                                       {service_level, traffic_class}),
                  peer);
            });
          },
          py::arg("peer"), py::arg("service_level") = 0, py::arg("traffic_class") = 0,
          "Make a destination of UD and DC requests; the last two are those of `queue_pair`.")
      .def("close", &PyDomain::close, "Close the domain. Objects made in it stay usable.");
}

void bind_region(py::module_& verbs) {
  py::class_<PyRegion, std::shared_ptr<PyRegion>>(verbs, "MemoryRegion", "Registered memory.")
      .def_property_readonly(
          "array", &PyRegion::array,
          "The bytes as a NumPy array of uint8, without a copy. The array keeps the memory.")
      .def_property_readonly("remote", &PyRegion::remote, "The whole region, for a peer's request.")
      .def_property_readonly("lkey", &PyRegion::lkey, "The local key, for requests of its node.")
      .def_property_readonly(
          "size", [](const PyRegion& self) { return self.remote().length; }, "Size in bytes.")
      .def(
          "sge",
          [](const PyRegion& self, const Arg<"offset", std::size_t>& offset,
             const Arg<"length", std::size_t>& length) { return self.sge(offset, length); },
          py::arg("offset"), py::arg("length"),
          "Name `length` bytes from `offset` on as a local buffer of a request.")
      .def("close", &PyRegion::close,
           "Deregister the memory. BufferError while an array refers to the region.");
}

}  // namespace

void bind_fabric(py::module_& module) {
  bind_cluster(module);
  py::module_ verbs =
      module.def_submodule("verbs", "Low-level verbs; pyrdma.verbs is the documented interface.");
  bind_requests(verbs);
  bind_region(verbs);
  bind_queues(verbs);
  bind_domain(verbs);
  bind_device(verbs);
}

}  // namespace pyrdma::bindings
