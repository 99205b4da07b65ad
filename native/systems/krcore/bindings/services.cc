#include "systems/krcore/bindings/services.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/per_node.h"
#include "systems/krcore/app.h"

namespace pyrdma::krcore::bindings {

namespace {

namespace py = pybind11;
using pyrdma::bindings::make_owned;
using pyrdma::bindings::PerNode;

/// An application of a script, with buffers for what it sends and receives.
class ScriptApp {
 public:
  ScriptApp(Service& service, std::uint32_t message_bytes)
      : app(service), message_bytes_(message_bytes) {}

  Queue create(std::uint32_t port) {
    VqpOptions options;
    options.receive_entries = kSlots;
    const Queue queue = app.create_queue(options);
    if (port == 0) return queue;
    try {
      app.bind(queue, port);
    } catch (...) {
      app.destroy(queue);
      throw;
    }
    return queue;
  }

  Time connect(Queue queue, NodeId node, std::uint32_t port) {
    const Time begin = app.env().now();
    app.connect(queue, node, port);
    return app.env().now() - begin;
  }

  void send(Queue queue, const std::string& bytes, Time timeout) {
    check_size(bytes.size());
    const Registration& own = scratch();
    std::memcpy(own.data, bytes.data(), bytes.size());
    request(queue, fabric::Opcode::kSend, bytes.size(), {}, timeout);
  }

  /// Carries out a one-sided request whose local bytes lie at the begin of the scratch region.
  void request(Queue queue, fabric::Opcode opcode, std::size_t bytes,
               const fabric::WorkRequest& wanted, Time timeout) {
    const Registration& own = scratch();
    const fabric::Sge sge{own.addr, static_cast<std::uint32_t>(bytes), own.key};
    fabric::WorkRequest request = wanted;
    request.opcode = opcode;
    request.sges = &sge;
    request.sge_count = 1;
    const PushResult pushed = app.push(queue, {&request, 1});
    fabric::Status status = pushed.status;
    if (pushed.error == fabric::PostError::kNone) {
      fabric::Completion done;
      if (app.wait(queue, {&done, 1}, app.env().now() + timeout) != 1) {
        throw Error(ErrorCode::kTimeout,
                    "krcore: a request has not ended after " +
                        std::to_string(static_cast<double>(timeout) * 1e-9) +
                        " s; its receiver may take no messages, or give a longer timeout_s",
                    false);
      }
      status = done.status;
    }
    if (status == fabric::Status::kFlushed) {
      const fabric::Status refusal = app.service().refusal(queue);
      if (refusal != fabric::Status::kSuccess) status = refusal;
    }
    if (status != fabric::Status::kSuccess) throw_status(status);
    if (pushed.error != fabric::PostError::kNone) {
      throw Error(ErrorCode::kInvalidArgument,
                  pushed.error == fabric::PostError::kInvalidState
                      ? "krcore: the queue is not connected; call connect() first"
                      : "krcore: the queue is full; wait for its completions");
    }
  }

  std::vector<std::pair<std::uint32_t, std::string>> pop(Queue queue, Time timeout) {
    const Registration& own = slots_of(queue);
    std::vector<Message> messages(kSlots);
    const std::size_t count = app.wait_messages(queue, messages, app.env().now() + timeout);
    std::vector<std::pair<std::uint32_t, std::string>> result;
    for (std::size_t i = 0; i < count; ++i) {
      const Message& message = messages[i];
      const std::byte* at = own.data + message.wr_id * message_bytes_;
      if (message.status == fabric::Status::kSuccess)
        result.emplace_back(message.reply.number(),
                            std::string(reinterpret_cast<const char*>(at), message.bytes));
      receive(queue, own, message.wr_id);
    }
    return result;
  }

  const Registration& scratch() {
    if (scratch_.data == nullptr) scratch_ = app.reg_mr(message_bytes_);
    return scratch_;
  }
  void check_size(std::size_t bytes) const {
    if (bytes <= message_bytes_) return;
    throw Error(ErrorCode::kInvalidArgument,
                "krcore: " + std::to_string(bytes) + " bytes are more than the " +
                    std::to_string(message_bytes_) +
                    " of the application's buffers; give the application a larger message_bytes");
  }

  App app;
  std::map<std::uint32_t, Registration> regions;

 private:
  static constexpr std::uint32_t kSlots = 16;

  [[noreturn]] static void throw_status(fabric::Status status) {
    std::string remedy;
    ErrorCode code = ErrorCode::kInvalidArgument;
    switch (status) {
      case fabric::Status::kRemoteAccess:
        remedy = "; the region does not exist any more, or does not grant that access there";
        break;
      case fabric::Status::kRemoteInvalidRequest:
        remedy = "; no queue is bound to the port, or its receive is too short";
        break;
      case fabric::Status::kRnrRetryExceeded:
        remedy = "; the receiver takes no messages";
        code = ErrorCode::kUnavailable;
        break;
      case fabric::Status::kFlushed:
        remedy = "; the queue has failed before: create another one";
        break;
      default:
        remedy = "; is the peer alive?";
        code = ErrorCode::kUnavailable;
    }
    throw Error(code, std::string("krcore: the request ended as '") + fabric::to_string(status) +
                          "'" + remedy);
  }

  const Registration& slots_of(Queue queue) {
    const auto known = slots_.find(queue.number());
    if (known != slots_.end()) return known->second;
    const Registration made = app.reg_mr(std::uint64_t{kSlots} * message_bytes_);
    for (std::uint64_t slot = 0; slot < kSlots; ++slot) receive(queue, made, slot);
    return slots_[queue.number()] = made;
  }
  void receive(Queue queue, const Registration& own, std::uint64_t slot) {
    const fabric::Sge sge{own.addr + slot * message_bytes_, message_bytes_, own.key};
    const fabric::ReceiveRequest request{slot, &sge, 1};
    app.post_receive(queue, {&request, 1});
  }

  std::uint32_t message_bytes_;
  Registration scratch_;
  std::map<std::uint32_t, Registration> slots_;  // of each queue that takes messages
};

class ServiceNode {
 public:
  ServiceNode(Env& env, const Options& options) : service(env, options) {}
  ScriptApp& app(std::uint64_t number) {
    const auto found = apps.find(number);
    if (found == apps.end()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "krcore: the application has been closed; make another one with app()");
    }
    return *found->second;
  }
  Service service;
  std::map<std::uint64_t, std::unique_ptr<ScriptApp>> apps;
};
using Services = PerNode<ServiceNode>;

std::shared_ptr<Services> make_services(std::shared_ptr<pyrdma::bindings::Session> session,
                                        const py::dict& given) {
  int policy = 1;
  bool is_public = false;
  const auto take = [&](const char* name, auto& value) {
    if (given.contains(name)) value = given[name].cast<std::remove_reference_t<decltype(value)>>();
  };
  take("public", is_public);
  Options options = is_public ? Options::public_code() : Options::paper();
  options.name = "krcore/python/" + std::to_string(session->next_run());
  take("meta_servers", options.meta_servers);
  take("cores", options.cores);
  take("dc_queue_pairs", options.dc_queue_pairs);
  take("rc_queue_pairs", options.rc_queue_pairs);
  if (given.contains("rc_policy")) {
    take("rc_policy", policy);
    options.rc_policy = static_cast<RcPolicy>(policy);
  }
  take("sample_interval_ns", options.sample_interval);
  take("frequent_requests", options.frequent_requests);
  take("message_bytes", options.message_bytes);
  take("zero_copy_above", options.zero_copy_above);
  take("arena_bytes", options.arena_bytes);
  take("regions", options.regions);
  take("lease_ns", options.lease);
  return make_owned<Services>(
      std::move(session),
      [options](Env& env) { return std::make_unique<ServiceNode>(env, options); }, -1);
}

Time nanoseconds(double seconds) { return static_cast<Time>(seconds * 1e9); }

std::vector<std::pair<std::string, double>> counters_of(ServiceNode& node) {
  Service& service = node.service;
  Counters& counters = service.counters();
  const auto number = [](std::uint64_t value) { return static_cast<double>(value); };
  return {{"connects", number(counters.connects)},
          {"rc_hits", number(counters.rc_hits)},
          {"cache_hits", number(counters.cache_hits)},
          {"meta_reads", number(service.meta_reads())},
          {"region_misses", number(counters.region_misses)},
          {"transfers", number(counters.transfers)},
          {"zero_copies", number(counters.zero_copies)},
          {"refused_messages", number(counters.refused_messages)},
          {"reposted", number(counters.reposted)},
          {"rc_made", number(counters.rc_made)},
          {"rc_reclaimed", number(counters.rc_reclaimed)},
          {"queue_pairs", number(service.physical_queue_pairs())},
          {"ending_regions", number(service.regions().ending())}};
}

}  // namespace

void bind_services(py::module_& module) {
  py::class_<Services, std::shared_ptr<Services>>(module, "Services")
      .def(py::init(&make_services))
      .def("app",
           [](Services& self, NodeId node, std::uint32_t message_bytes) {
             return self.on(node, [&](ServiceNode& each) {
               auto made = std::make_unique<ScriptApp>(each.service, message_bytes);
               const std::uint64_t number = made->app.number();
               each.apps[number] = std::move(made);
               return number;
             });
           })
      .def("close",
           [](Services& self, NodeId node, std::uint64_t app) {
             self.on(node, [&](ServiceNode& each) { each.apps.erase(app); });
           })
      .def("vqp",
           [](Services& self, NodeId node, std::uint64_t app, std::uint32_t port) {
             return self.on(node,
                            [&](ServiceNode& each) { return each.app(app).create(port).number(); });
           })
      .def("destroy",
           [](Services& self, NodeId node, std::uint64_t app, std::uint32_t vqp) {
             self.on(node, [&](ServiceNode& each) { each.app(app).app.destroy(VqpId::of(vqp)); });
           })
      .def("connect",
           [](Services& self, NodeId node, std::uint64_t app, std::uint32_t vqp, NodeId to,
              std::uint32_t port) {
             return self.on(node, [&](ServiceNode& each) {
               return each.app(app).connect(VqpId::of(vqp), to, port);
             });
           })
      .def("send",
           [](Services& self, NodeId node, std::uint64_t app, std::uint32_t vqp,
              const std::string& bytes, double timeout_s) {
             self.on(node, [&](ServiceNode& each) {
               each.app(app).send(VqpId::of(vqp), bytes, nanoseconds(timeout_s));
             });
           })
      .def("pop",
           [](Services& self, NodeId node, std::uint64_t app, std::uint32_t vqp, double timeout_s) {
             const auto found = self.on(node, [&](ServiceNode& each) {
               return each.app(app).pop(VqpId::of(vqp), nanoseconds(timeout_s));
             });
             py::list messages;
             for (const auto& [reply, bytes] : found)
               messages.append(py::make_tuple(reply, py::bytes(bytes)));
             return messages;
           })
      .def("reg_mr",
           [](Services& self, NodeId node, std::uint64_t app, std::uint64_t bytes,
              std::uint32_t access) {
             return self.on(node, [&](ServiceNode& each) {
               const Registration made = each.app(app).app.reg_mr(bytes, access);
               each.app(app).regions[made.key] = made;
               return std::make_pair(made.addr, made.key);
             });
           })
      .def("dereg_mr",
           [](Services& self, NodeId node, std::uint64_t app, std::uint32_t key) {
             self.on(node, [&](ServiceNode& each) {
               const auto found = each.app(app).regions.find(key);
               if (found == each.app(app).regions.end()) return;
               each.app(app).app.dereg_mr(found->second);
               each.app(app).regions.erase(found);
             });
           })
      .def("load",
           [](Services& self, NodeId node, std::uint64_t app, std::uint32_t key,
              std::uint64_t offset, std::uint64_t bytes) {
             return py::bytes(self.on(node, [&](ServiceNode& each) {
               const Registration& own = each.app(app).regions.at(key);
               return std::string(reinterpret_cast<const char*>(own.data + offset), bytes);
             }));
           })
      .def("store",
           [](Services& self, NodeId node, std::uint64_t app, std::uint32_t key,
              std::uint64_t offset, const std::string& bytes) {
             self.on(node, [&](ServiceNode& each) {
               const Registration& own = each.app(app).regions.at(key);
               std::memcpy(own.data + offset, bytes.data(), bytes.size());
             });
           })
      .def("read",
           [](Services& self, NodeId node, std::uint64_t app, std::uint32_t vqp, std::uint64_t addr,
              std::uint32_t key, std::uint32_t bytes, double timeout_s) {
             return py::bytes(self.on(node, [&](ServiceNode& each) {
               ScriptApp& user = each.app(app);
               user.check_size(bytes);
               fabric::WorkRequest wanted;
               wanted.remote_addr = addr;
               wanted.rkey = key;
               user.request(VqpId::of(vqp), fabric::Opcode::kRead, bytes, wanted,
                            nanoseconds(timeout_s));
               return std::string(reinterpret_cast<const char*>(user.scratch().data), bytes);
             }));
           })
      .def("write",
           [](Services& self, NodeId node, std::uint64_t app, std::uint32_t vqp, std::uint64_t addr,
              std::uint32_t key, const std::string& bytes, double timeout_s) {
             self.on(node, [&](ServiceNode& each) {
               ScriptApp& user = each.app(app);
               user.check_size(bytes.size());
               std::memcpy(user.scratch().data, bytes.data(), bytes.size());
               fabric::WorkRequest wanted;
               wanted.remote_addr = addr;
               wanted.rkey = key;
               user.request(VqpId::of(vqp), fabric::Opcode::kWrite, bytes.size(), wanted,
                            nanoseconds(timeout_s));
             });
           })
      .def("atomic",
           [](Services& self, NodeId node, std::uint64_t app, std::uint32_t vqp, std::uint64_t addr,
              std::uint32_t key, bool is_swap, std::uint64_t first, std::uint64_t second,
              double timeout_s) {
             return self.on(node, [&](ServiceNode& each) {
               ScriptApp& user = each.app(app);
               fabric::WorkRequest wanted;
               wanted.remote_addr = addr;
               wanted.rkey = key;
               wanted.compare_add = first;
               wanted.swap = second;
               user.request(VqpId::of(vqp),
                            is_swap ? fabric::Opcode::kCompareSwap : fabric::Opcode::kFetchAdd, 8,
                            wanted, nanoseconds(timeout_s));
               std::uint64_t old = 0;
               std::memcpy(&old, user.scratch().data, sizeof old);
               return old;
             });
           })
      .def("uses_reliable",
           [](Services& self, NodeId node, std::uint32_t vqp) {
             return self.on(node, [&](ServiceNode& each) {
               return each.service.uses_reliable(VqpId::of(vqp));
             });
           })
      .def("clear_caches",
           [](Services& self, NodeId node) {
             self.on(node, [](ServiceNode& each) { each.service.clear_caches(); });
           })
      .def("counters", [](Services& self, NodeId node) {
        return self.on(node, [](ServiceNode& each) { return counters_of(each); });
      });
}

}  // namespace pyrdma::krcore::bindings
