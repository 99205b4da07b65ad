#include <pybind11/stl.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/per_node.h"
#include "systems/spindle/bindings/groups.h"
#include "systems/spindle/dds/participant.h"

namespace pyrdma::spindle::bindings {

namespace {

namespace py = pybind11;
using pyrdma::bindings::make_owned;
using pyrdma::bindings::PerNode;

/// A participant of a script: its subscribers' samples wait until the script takes them.
class InboxParticipant {
 public:
  InboxParticipant(Env& env, const Options& options, const std::vector<dds::Topic>& topics,
                   bool cut_damage)
      : env_(env), mutex_(env), inbox_(topics.size()) {
    const auto listener = [this](std::uint32_t topic, std::span<const Message> messages) {
      const std::lock_guard<Mutex> lock(mutex_);
      for (const Message& message : messages) {
        inbox_[topic].push_back(
            {message.node, taken_++, {message.bytes.begin(), message.bytes.end()}});
      }
      env_.notify(arrived_);
    };
    participant_ =
        std::make_unique<dds::DomainParticipant>(env, options, topics, listener, cut_damage);
  }
  dds::DomainParticipant& participant() { return *participant_; }

  void publish(std::uint32_t topic, const std::vector<std::string>& samples, Time timeout) {
    const Time deadline = env_.now() + timeout;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const std::span<std::byte> loan = participant_->loan(topic, deadline);
      if (loan.empty()) {
        throw Error(
            ErrorCode::kTimeout,
            "publish: " + std::to_string(i) + " of " + std::to_string(samples.size()) +
                " samples were published in time: " + participant_->group().describe_wait(topic),
            false);
      }
      std::memcpy(loan.data(), samples[i].data(), std::min(samples[i].size(), loan.size()));
      participant_->publish(topic, static_cast<std::uint32_t>(samples[i].size()));
    }
  }
  std::vector<dds::Sample> take(std::uint32_t topic, std::size_t most, Time timeout) {
    std::vector<dds::Sample> taken;
    const auto take_some = [&] {
      const std::lock_guard<Mutex> lock(mutex_);
      std::deque<dds::Sample>& inbox = inbox_.at(topic);
      while (!inbox.empty() && taken.size() < most) {
        taken.push_back(std::move(inbox.front()));
        inbox.pop_front();
      }
      return !taken.empty();
    };
    if (!take_some()) env_.poll_until(take_some, env_.now() + timeout, &arrived_);
    return taken;
  }

 private:
  Env& env_;
  Mutex mutex_;
  Watch arrived_;
  std::uint64_t taken_ = 0;
  std::vector<std::deque<dds::Sample>> inbox_;  // by topic
  std::unique_ptr<dds::DomainParticipant> participant_;
};
using Domains = PerNode<InboxParticipant>;

/// Name, quality, publishers, subscribers, window, max_sample, history, sync_every.
using TopicTuple = std::tuple<std::string, int, std::vector<NodeId>, std::vector<NodeId>,
                              std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;

template <class Work>
auto on_participant(Domains& self, NodeId node, Work&& work) {
  return self.session().call([&] { return work(self.at(node)); });
}

Time to_time(double seconds) { return static_cast<Time>(seconds * 1e9); }

std::shared_ptr<Domains> make_domains(std::shared_ptr<pyrdma::bindings::Session> session,
                                      int preset, const std::vector<TopicTuple>& tuples,
                                      const std::vector<NodeId>& founders, double suspicion_s,
                                      bool is_restart, bool cut_damage) {
  Options options = Options::of(static_cast<Preset>(preset));
  options.name = "domain/" + std::to_string(session->next_run());
  options.suspicion_timeout = to_time(suspicion_s);
  options.heartbeat =
      std::max<Time>(1000, std::min(options.heartbeat, options.suspicion_timeout / 10));
  options.join_timeout = std::max<Time>(10 * kSecond, 4 * options.suspicion_timeout);
  options.idle_sleep = kMillisecond;
  std::vector<dds::Topic> topics;
  for (const auto& [name, qos, publishers, subscribers, window, max_sample, history, sync_every] :
       tuples) {
    topics.push_back({name, static_cast<dds::Qos>(qos), publishers, subscribers, window, max_sample,
                      history, sync_every});
  }
  const auto make = [=](Env& env) {
    auto made = std::make_unique<InboxParticipant>(env, options, topics, cut_damage);
    const bool founds = std::ranges::find(founders, env.node()) != founders.end();
    if (founds && is_restart)
      made->participant().restart(founders);
    else if (founds)
      made->participant().create(founders);
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
  py::class_<Domains, std::shared_ptr<Domains>>(module, "Domains")
      .def(py::init(&make_domains))
      .def("publish",
           [](Domains& self, NodeId node, std::uint32_t topic,
              const std::vector<std::string>& samples, double timeout_s) {
             on_participant(self, node, [&](InboxParticipant& each) {
               each.publish(topic, samples, to_time(timeout_s));
             });
           })
      .def("take",
           [](Domains& self, NodeId node, std::uint32_t topic, std::size_t most, double timeout_s) {
             return list_of(on_participant(self, node, [&](InboxParticipant& each) {
               return each.take(topic, most, to_time(timeout_s));
             }));
           })
      .def("read",
           [](Domains& self, NodeId node, std::uint32_t topic, std::uint64_t from,
              std::size_t most) {
             return list_of(on_participant(self, node, [&](InboxParticipant& each) {
               return each.participant().read(topic, from, most);
             }));
           })
      .def("sync",
           [](Domains& self, NodeId node) {
             on_participant(self, node, [](InboxParticipant& each) { each.participant().sync(); });
           })
      .def("standing",
           [](Domains& self, NodeId node) {
             return std::string(on_participant(self, node, [](InboxParticipant& each) {
               return to_string(each.participant().group().standing());
             }));
           })
      .def("join",
           [](Domains& self, NodeId node, const std::vector<NodeId>& contacts) {
             on_participant(self, node,
                            [&](InboxParticipant& each) { each.participant().join(contacts); });
           })
      .def("leave", [](Domains& self, NodeId node, double timeout_s) {
        on_participant(self, node, [&](InboxParticipant& each) {
          each.participant().group().leave(to_time(timeout_s));
        });
      });
}

}  // namespace pyrdma::spindle::bindings
