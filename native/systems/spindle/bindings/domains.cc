#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/per_node.h"
#include "bindings/program/waiting_method.h"
#include "systems/spindle/bindings/groups.h"
#include "systems/spindle/dds/external_client.h"
#include "systems/spindle/dds/participant.h"
#include "systems/spindle/mailbox.h"

namespace pyrdma::spindle::bindings {

namespace {

namespace py = pybind11;
using pyrdma::bindings::def_waiting;
using pyrdma::bindings::make_owned;
using pyrdma::bindings::PerNode;

/// A participant of a script: its subscribers' samples wait until the script takes them.
class InboxParticipant {
 public:
  InboxParticipant(Env& env, const Options& options, const std::vector<dds::Topic>& topics,
                   bool cut_damage)
      : mailbox_(env, topics.size()), next_(topics.size()) {
    const auto listener = [this](std::uint32_t topic, std::span<const Message> messages) {
      // What is stored has its number: a late joiner has samples before its first new one.
      std::uint64_t& next = next_[topic];
      const std::uint64_t stored = participant_->count(topic);
      next = std::max(next, stored - std::min<std::uint64_t>(stored, messages.size()));
      mailbox_.put(topic, messages, [&next](const Message& message) {
        return dds::Sample{message.node, next++, {message.bytes.begin(), message.bytes.end()}};
      });
    };
    participant_ =
        std::make_unique<dds::DomainParticipant>(env, options, topics, listener, cut_damage);
  }
  dds::DomainParticipant& participant() { return *participant_; }
  Mailbox<dds::Sample>& mailbox() { return mailbox_; }

 private:
  Mailbox<dds::Sample> mailbox_;
  std::vector<std::uint64_t> next_;  // number of the next sample, by topic
  std::unique_ptr<dds::DomainParticipant> participant_;
};

/// A node of a script's domain: a participant, or a client outside of it.
struct DomainNode {
  std::unique_ptr<InboxParticipant> inside;
  std::unique_ptr<dds::ExternalClient> client;
};
using Domains = PerNode<DomainNode>;

/// Calls `work` with the participant of a node.
template <class Work>
auto on_participant(Domains& self, NodeId node, Work&& work) {
  return on(self, node, [&](DomainNode& each) { return work(*each.inside); });
}

void publish(DomainNode& node, std::uint32_t topic, const std::vector<std::string>& samples,
             Time timeout) {
  if (node.inside) {
    node.inside->mailbox().send(node.inside->participant().group(), topic, samples, timeout);
    return;
  }
  for (const std::string& sample : samples)
    node.client->publish(topic, std::as_bytes(std::span(sample)), timeout);
}

/// Name, quality, publishers, subscribers, window, max_sample, history, sync_every.
using TopicTuple = std::tuple<std::string, int, std::vector<NodeId>, std::vector<NodeId>,
                              std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;

std::shared_ptr<Domains> make_domains(std::shared_ptr<pyrdma::bindings::Session> session,
                                      int preset, const std::vector<TopicTuple>& tuples,
                                      const std::vector<NodeId>& founders,
                                      const std::vector<NodeId>& clients, double suspicion_s,
                                      bool is_restart, bool cut_damage) {
  const Options options =
      script_options(preset, "domain/" + std::to_string(session->next_run()), suspicion_s);
  std::vector<dds::Topic> topics;
  for (const auto& [name, qos, publishers, subscribers, window, max_sample, history, sync_every] :
       tuples) {
    topics.push_back({name, static_cast<dds::Qos>(qos), publishers, subscribers, window, max_sample,
                      history, sync_every});
  }
  std::vector<NodeId> relays;
  for (const dds::Topic& topic : topics)
    relays.insert(relays.end(), topic.publishers.begin(), topic.publishers.end());
  std::ranges::sort(relays);
  relays.erase(std::unique(relays.begin(), relays.end()), relays.end());
  const auto has = [](const std::vector<NodeId>& nodes, NodeId node) {
    return std::ranges::find(nodes, node) != nodes.end();
  };
  const auto make = [=](Env& env) {
    auto made = std::make_unique<DomainNode>();
    if (has(clients, env.node())) {
      made->client = std::make_unique<dds::ExternalClient>(env, options, topics, relays);
      return made;
    }
    made->inside = std::make_unique<InboxParticipant>(env, options, topics, cut_damage);
    if (has(founders, env.node()) && is_restart)
      made->inside->participant().restart(founders);
    else if (has(founders, env.node()))
      made->inside->participant().create(founders);
    return made;
  };
  return make_owned<Domains>(std::move(session), make, -1);
}

py::list list_of(const std::vector<dds::Sample>& samples) {
  py::list found;
  for (const dds::Sample& each : samples) {
    found.append(py::make_tuple(
        each.publisher, each.number,
        py::bytes(reinterpret_cast<const char*>(each.bytes.data()), each.bytes.size())));
  }
  return found;
}

}  // namespace

void bind_domains(py::module_& module) {
  module.attr("qualities") = std::vector<std::string>(dds::kQosNames.begin(), dds::kQosNames.end());
  py::class_<Domains, std::shared_ptr<Domains>> domains(module, "Domains");
  domains.def(py::init(&make_domains));
  def_waiting(domains, "publish",
              [](Domains& self, NodeId node, std::uint32_t topic,
                 const std::vector<std::string>& samples, double timeout_s) {
                on(self, node, [&](DomainNode& each) {
                  publish(each, topic, samples, nanoseconds(timeout_s));
                });
              });
  def_waiting(
      domains, "take",
      [](Domains& self, NodeId node, std::uint32_t topic, std::size_t most, double timeout_s) {
        return on_participant(self, node, [&](InboxParticipant& each) {
          return each.mailbox().take(topic, most, nanoseconds(timeout_s));
        });
      },
      &list_of);
  def_waiting(
      domains, "read",
      [](Domains& self, NodeId node, std::uint32_t topic, std::uint64_t from, std::size_t most) {
        return on_participant(self, node, [&](InboxParticipant& each) {
          return each.participant().read(topic, from, most);
        });
      },
      &list_of);
  def_waiting(domains, "sync", [](Domains& self, NodeId node) {
    on_participant(self, node, [](InboxParticipant& each) { each.participant().sync(); });
  });
  def_waiting(domains, "standing", [](Domains& self, NodeId node) {
    return std::string(on_participant(self, node, [](InboxParticipant& each) {
      return to_string(each.participant().group().standing());
    }));
  });
  def_waiting(domains, "join", [](Domains& self, NodeId node, const std::vector<NodeId>& contacts) {
    on_participant(self, node, [&](InboxParticipant& each) { each.participant().join(contacts); });
  });
  def_waiting(domains, "leave", [](Domains& self, NodeId node, double timeout_s) {
    on_participant(self, node, [&](InboxParticipant& each) {
      each.participant().group().leave(nanoseconds(timeout_s));
    });
  });
}

}  // namespace pyrdma::spindle::bindings
