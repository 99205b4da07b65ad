// An application of a script, and the functions by which Python uses it.
#pragma once
#include <pybind11/stl.h>

#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "bindings/program/waiting_method.h"
#include "systems/krcore/app.h"

namespace pyrdma::krcore::bindings {

namespace py = pybind11;

/// An application of a script, with buffers for what it sends and receives.
/// `A` is App, or ring::Application.
template <class A>
class ScriptApp {
 public:
  template <class... Of>
  explicit ScriptApp(std::uint32_t message_bytes, Of&&... of)
      : app(std::forward<Of>(of)...), message_bytes_(message_bytes) {}

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
    own_[queue.number()].is_bound = true;
    return queue;
  }

  Time connect(Queue queue, NodeId node, std::uint32_t port) {
    const Time begin = app.env().now();
    app.connect(queue, node, port);
    const Time took = app.env().now() - begin;
    own_[queue.number()].connected = {node, port};
    return took;
  }

  void destroy(Queue queue) {
    app.destroy(queue);
    const auto known = own_.find(queue.number());
    if (known == own_.end()) return;
    if (known->second.slots.data != nullptr) app.dereg_mr(known->second.slots);
    own_.erase(known);
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
    if (queue.number() == kNoReply) {
      throw Error(ErrorCode::kExhausted,
                  "krcore: nothing answers this message: all queue pairs that the application may "
                  "have were in use when it came; close some, or give the service more app_queues");
    }
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
      const fabric::Status refusal = app.refusal(queue);
      if (refusal != fabric::Status::kSuccess) status = refusal;
    }
    if (status != fabric::Status::kSuccess) throw_status(queue, status);
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
      // A message to a port is answered by another queue than that which has the port.
      const bool is_unanswered = !message.reply && own_[queue.number()].is_bound;
      if (message.status == fabric::Status::kSuccess)
        result.emplace_back(is_unanswered ? kNoReply : message.reply.number(),
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

  const Registration& region(std::uint32_t key) const {
    const auto known = regions.find(key);
    if (known != regions.end()) return known->second;
    throw Error(ErrorCode::kInvalidArgument,
                "krcore: the application has no such region, or has deregistered it; only its "
                "owner loads from it and stores to it");
  }

  A app;
  std::map<std::uint32_t, Registration> regions;

 private:
  static constexpr std::uint32_t kSlots = 16;
  static constexpr std::uint32_t kNoReply = ~0U;  // in place of a queue that answers

  struct OwnQueue {
    Registration slots;                                         // if it takes messages
    bool is_bound = false;                                      // to a port
    std::optional<std::pair<NodeId, std::uint32_t>> connected;  // node and port, by connect()
  };

  [[noreturn]] void throw_status(Queue queue, fabric::Status status) const {
    std::string remedy;
    ErrorCode code = ErrorCode::kInvalidArgument;
    switch (status) {
      case fabric::Status::kRemoteAccess:
        remedy = "; the region does not exist any more, or does not grant that access there";
        break;
      case fabric::Status::kRemoteInvalidRequest:
        remedy = "; " + no_receiver(queue) +
                 ", or the message is longer than the receiver's message_bytes";
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

  std::string no_receiver(Queue queue) const {
    const auto known = own_.find(queue.number());
    if (known == own_.end() || !known->second.connected) return "the peer's queue has ended";
    const auto& [node, port] = *known->second.connected;
    return "no queue of node " + std::to_string(node) + " is bound to port " +
           std::to_string(port) + " (bind one by vqp(bind=" + std::to_string(port) +
           "), and connect a new one here)";
  }

  const Registration& slots_of(Queue queue) {
    Registration& slots = own_[queue.number()].slots;
    if (slots.data != nullptr) return slots;
    slots = app.reg_mr(std::uint64_t{kSlots} * message_bytes_);
    for (std::uint64_t slot = 0; slot < kSlots; ++slot) receive(queue, slots, slot);
    return slots;
  }
  void receive(Queue queue, const Registration& own, std::uint64_t slot) {
    const fabric::Sge sge{own.addr + slot * message_bytes_, message_bytes_, own.key};
    const fabric::ReceiveRequest request{slot, &sge, 1};
    app.post_receive(queue, {&request, 1});
  }

  std::uint32_t message_bytes_;
  Registration scratch_;
  std::map<std::uint32_t, OwnQueue> own_;  // by the number of the queue
};

inline Time nanoseconds(double seconds) { return static_cast<Time>(seconds * 1e9); }

inline py::list messages_of(const std::vector<std::pair<std::uint32_t, std::string>>& found) {
  py::list messages;
  for (const auto& [reply, bytes] : found) messages.append(py::make_tuple(reply, py::bytes(bytes)));
  return messages;
}

/// Gives `each`, a class of Python, the functions of applications. `With()(owner, node, app, use)`
/// calls `use` with a ScriptApp, where its thread may be.
template <class Owner, class With, class Class>
void def_applications(Class& each) {
  const auto def = [&](const char* name, auto work, auto... convert) {
    pyrdma::bindings::def_waiting(each, name, work, convert...);
  };
  def("vqp", [](Owner& self, NodeId node, std::uint64_t app, std::uint32_t port) {
    return With()(self, node, app, [&](auto& user) { return user.create(port).number(); });
  });
  def("destroy", [](Owner& self, NodeId node, std::uint64_t app, std::uint32_t vqp) {
    With()(self, node, app, [&](auto& user) { user.destroy(VqpId::of(vqp)); });
  });
  def("connect", [](Owner& self, NodeId node, std::uint64_t app, std::uint32_t vqp, NodeId to,
                    std::uint32_t port) {
    return With()(self, node, app,
                  [&](auto& user) { return user.connect(VqpId::of(vqp), to, port); });
  });
  def("send", [](Owner& self, NodeId node, std::uint64_t app, std::uint32_t vqp,
                 const std::string& bytes, double timeout_s) {
    With()(self, node, app,
           [&](auto& user) { user.send(VqpId::of(vqp), bytes, nanoseconds(timeout_s)); });
  });
  def(
      "pop",
      [](Owner& self, NodeId node, std::uint64_t app, std::uint32_t vqp, double timeout_s) {
        return With()(self, node, app,
                      [&](auto& user) { return user.pop(VqpId::of(vqp), nanoseconds(timeout_s)); });
      },
      &messages_of);
  def("reg_mr",
      [](Owner& self, NodeId node, std::uint64_t app, std::uint64_t bytes, std::uint32_t access) {
        return With()(self, node, app, [&](auto& user) {
          const Registration made = user.app.reg_mr(bytes, access);
          user.regions[made.key] = made;
          return std::make_pair(made.addr, made.key);
        });
      });
  def("dereg_mr", [](Owner& self, NodeId node, std::uint64_t app, std::uint32_t key) {
    With()(self, node, app, [&](auto& user) {
      const auto found = user.regions.find(key);
      if (found == user.regions.end()) return;
      user.app.dereg_mr(found->second);
      user.regions.erase(found);
    });
  });
  def("load", [](Owner& self, NodeId node, std::uint64_t app, std::uint32_t key,
                 std::uint64_t offset, std::uint64_t bytes) {
    return With()(self, node, app, [&](auto& user) {
      const Registration& own = user.region(key);
      return std::vector<std::byte>(own.data + offset, own.data + offset + bytes);
    });
  });
  def("store", [](Owner& self, NodeId node, std::uint64_t app, std::uint32_t key,
                  std::uint64_t offset, const std::string& bytes) {
    With()(self, node, app, [&](auto& user) {
      const Registration& own = user.region(key);
      std::memcpy(own.data + offset, bytes.data(), bytes.size());
    });
  });
  def("read", [](Owner& self, NodeId node, std::uint64_t app, std::uint32_t vqp, std::uint64_t addr,
                 std::uint32_t key, std::uint32_t bytes, double timeout_s) {
    return With()(self, node, app, [&](auto& user) {
      user.check_size(bytes);
      fabric::WorkRequest wanted;
      wanted.remote_addr = addr;
      wanted.rkey = key;
      user.request(VqpId::of(vqp), fabric::Opcode::kRead, bytes, wanted, nanoseconds(timeout_s));
      const std::byte* data = user.scratch().data;
      return std::vector<std::byte>(data, data + bytes);
    });
  });
  def("write",
      [](Owner& self, NodeId node, std::uint64_t app, std::uint32_t vqp, std::uint64_t addr,
         std::uint32_t key, const std::string& bytes, double timeout_s) {
        With()(self, node, app, [&](auto& user) {
          user.check_size(bytes.size());
          std::memcpy(user.scratch().data, bytes.data(), bytes.size());
          fabric::WorkRequest wanted;
          wanted.remote_addr = addr;
          wanted.rkey = key;
          user.request(VqpId::of(vqp), fabric::Opcode::kWrite, bytes.size(), wanted,
                       nanoseconds(timeout_s));
        });
      });
  def("atomic", [](Owner& self, NodeId node, std::uint64_t app, std::uint32_t vqp,
                   std::uint64_t addr, std::uint32_t key, bool is_swap, std::uint64_t first,
                   std::uint64_t second, double timeout_s) {
    return With()(self, node, app, [&](auto& user) {
      fabric::WorkRequest wanted;
      wanted.remote_addr = addr;
      wanted.rkey = key;
      wanted.compare_add = first;
      wanted.swap = second;
      user.request(VqpId::of(vqp),
                   is_swap ? fabric::Opcode::kCompareSwap : fabric::Opcode::kFetchAdd, 8, wanted,
                   nanoseconds(timeout_s));
      std::uint64_t old = 0;
      std::memcpy(&old, user.scratch().data, sizeof old);
      return old;
    });
  });
}

}  // namespace pyrdma::krcore::bindings
