#include "systems/spindle/dds/participant.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace pyrdma::spindle::dds {

namespace {

std::vector<SubgroupSpec> subgroups_of(const std::vector<Topic>& topics) {
  std::vector<SubgroupSpec> specs;
  for (const Topic& topic : topics) specs.push_back(topic.subgroup());
  return specs;
}

}  // namespace

DomainParticipant::DomainParticipant(Env& env, const Options& options, std::vector<Topic> topics,
                                     Listener listener, bool cut_damage, Bugs bugs)
    : env_(env),
      options_(options),
      topics_(std::move(topics)),
      listener_(std::move(listener)),
      bugs_(bugs),
      readers_(topics_.size()) {
  check_topics(topics_);
  for (std::uint32_t t = 0; t < topics_.size(); ++t) {
    const Topic& topic = topics_[t];
    if (!keeps(t)) continue;
    readers_[t] = std::make_unique<Reader>(env, topic, "topic-" + std::to_string(t) + ".log",
                                           cut_damage, bugs);
  }
  if (std::ranges::count(topics_, Qos::kLogged, &Topic::qos) != 0) {
    view_log_ = std::make_unique<ViewLog>(env, cut_damage, bugs);
    views_ = before_ = view_log_->views();
    has_lost_views_ = view_log_->is_lost();
  }
  Upcalls upcalls;
  upcalls.deliver = [this](std::uint32_t t, std::span<const Message> messages) {
    take(t, messages);
  };
  upcalls.accept = [this](const ViewShape& shape) { log_view(shape, false); };
  upcalls.run = [this](const ViewShape& shape) { log_view(shape, true); };
  upcalls.ask_state = [this](std::uint32_t t, bool begins) -> std::optional<Bytes> {
    if (!readers_[t]) return std::nullopt;
    if (begins) readers_[t]->begin_to_ask(/*cuts=*/true);
    return readers_[t]->ask();
  };
  upcalls.give_state = [this](std::uint32_t t, ByteView question) -> std::optional<Bytes> {
    if (!readers_[t]) return std::nullopt;
    return readers_[t]->answer(question);
  };
  upcalls.take_state = [this](std::uint32_t t, ByteView answer) {
    return readers_[t]->take(answer);
  };
  upcalls.persist = [this] {
    if (bugs_.syncs_view_end()) sync();
  };
  group_ = std::make_unique<Group>(env, options, subgroups_of(topics_), std::move(upcalls), bugs);
  serve_restart();
  serve_clients();
}

// A sample of an external client. The answer has a byte if all members have delivered it, and none
// if this member cannot say so: the client then asks another one.
void DomainParticipant::serve_clients() {
  group_->channel().serve_later(
      ControlType::kPublish, [this](NodeId, ByteView request) -> ControlChannel::Later {
        ByteReader in(request);
        const auto t = in.get<std::uint32_t>();
        const ByteView sample = in.bytes(in.left());
        const bool is_good =
            in.ok() && t < topics_.size() && sample.size() <= topics_[t].max_sample;
        const std::uint64_t number = is_good ? group_->try_send(t, sample) : 0;
        if (number == 0) return [] { return Bytes(); };
        group_->flush(t);
        return [this, t, number]() -> std::optional<Bytes> {
          const auto is_delivered =
              bugs_.answers_when_delivered() ? group_->is_delivered(t, number) : true;
          if (!is_delivered) return std::nullopt;
          return Bytes(*is_delivered ? 1 : 0);
        };
      });
}

std::uint32_t DomainParticipant::topic(std::string_view name) const {
  std::string known;
  for (std::uint32_t t = 0; t < topics_.size(); ++t) {
    if (topics_[t].name == name) return t;
    known += (t == 0 ? "" : ", ") + topics_[t].name;
  }
  throw Error(ErrorCode::kInvalidArgument,
              "no topic '" + std::string(name) + "'; the topics are " + known);
}

bool DomainParticipant::keeps(std::uint32_t topic) const {
  return topics_[topic].qos >= Qos::kVolatile && topics_[topic].has_subscriber(env_.node());
}

void DomainParticipant::take(std::uint32_t t, std::span<const Message> messages) {
  const Topic& topic = topics_[t];
  if (!topic.has_subscriber(env_.node())) return;  // a publisher delivers too
  if (readers_[t]) readers_[t]->take(messages);
  if (listener_) listener_(t, messages);
}

void DomainParticipant::sync() {
  for (const auto& reader : readers_) {
    if (reader) reader->sync();
  }
}

void DomainParticipant::log_view(const ViewShape& shape, bool runs) {
  views_.accepted = {shape.id, shape.nodes()};
  if (runs) views_.ran = views_.accepted;
  if (view_log_) view_log_->write(views_);
}

std::vector<Sample> DomainParticipant::read(std::uint32_t t, std::uint64_t from, std::size_t most) {
  return readers_.at(t) ? readers_[t]->read(from, most) : std::vector<Sample>();
}

std::uint64_t DomainParticipant::count(std::uint32_t t) {
  return readers_.at(t) ? readers_[t]->count() : 0;
}

}  // namespace pyrdma::spindle::dds
