#include "systems/spindle/dds/participant.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "systems/spindle/scopes.h"

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
    readers_[t] = std::make_unique<Reader>(env);
    readers_[t]->footprint =
        std::make_unique<Footprint>(env, nullptr, std::uint64_t{topic.history} * topic.max_sample);
    if (topic.qos != Qos::kLogged) continue;
    readers_[t]->log =
        std::make_unique<SampleLog>(env, "topic-" + std::to_string(t) + ".log", cut_damage, bugs);
    readers_[t]->count = readers_[t]->log->samples();
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
  upcalls.save = [this](std::uint32_t t) { return save(t); };
  upcalls.load = [this](std::uint32_t t, ByteView state) { load(t, state); };
  upcalls.persist = [this] {
    if (bugs_.syncs_view_end()) sync();
  };
  group_ = std::make_unique<Group>(env, options, subgroups_of(topics_), std::move(upcalls));
  serve_restart();
  serve_clients();
}

// A sample of an external client; the answer has a byte if it is queued.
void DomainParticipant::serve_clients() {
  group_->channel().serve(ControlType::kPublish, [this](NodeId, ByteView request) {
    ByteReader in(request);
    const auto t = in.get<std::uint32_t>();
    const ByteView sample = in.bytes(in.left());
    const bool is_good = in.ok() && t < topics_.size() && sample.size() <= topics_[t].max_sample;
    return Bytes(is_good && group_->try_send(t, sample) ? 1 : 0);
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
  if (readers_[t]) {
    Reader& reader = *readers_[t];
    const std::lock_guard<Mutex> lock(reader.mutex);
    for (const Message& message : messages) keep(reader, topic, message.node, message.bytes);
    finish_batch(reader, topic);
  }
  if (listener_) listener_(t, messages);
}

void DomainParticipant::keep(Reader& reader, const Topic& topic, NodeId publisher,
                             ByteView sample) {
  const Scope step(env_, scope::keep_sample);
  env_.charge_copy(sample.size(), reader.footprint.get());
  Sample& kept = reader.history.emplace_back();
  if (reader.history.size() > topic.history) {  // its memory serves again
    kept = std::move(reader.history.front());
    reader.history.pop_front();
  }
  kept.publisher = publisher;
  kept.number = reader.count++;
  kept.bytes.assign(sample.begin(), sample.end());
  if (!reader.log) return;
  env_.charge_copy(sample.size(), reader.footprint.get());
  reader.log->append(publisher, sample);
  ++reader.since_sync;
}

void DomainParticipant::finish_batch(Reader& reader, const Topic& topic) {
  if (!reader.log) return;
  reader.log->write();
  if (topic.sync_every == 0 || reader.since_sync < topic.sync_every) return;
  reader.log->sync();
  reader.since_sync = 0;
}

void DomainParticipant::sync() {
  for (const auto& reader : readers_) {
    if (!reader || !reader->log) continue;
    const std::lock_guard<Mutex> lock(reader->mutex);
    reader->log->sync();
    reader->since_sync = 0;
  }
}

void DomainParticipant::log_view(const ViewShape& shape, bool runs) {
  views_.accepted = {shape.id, shape.nodes()};
  if (runs) views_.ran = views_.accepted;
  if (view_log_) view_log_->write(views_);
}

std::vector<Sample> DomainParticipant::read(std::uint32_t t, std::uint64_t from, std::size_t most) {
  std::vector<Sample> found;
  if (!readers_.at(t)) return found;
  Reader& reader = *readers_[t];
  const std::lock_guard<Mutex> lock(reader.mutex);
  if (reader.log) {
    if (most == 0) return found;
    reader.log->read(from, [&](const Sample& sample) {
      found.push_back(sample);
      return found.size() < most;
    });
    return found;
  }
  for (const Sample& sample : reader.history) {
    if (sample.number >= from && found.size() < most) found.push_back(sample);
  }
  return found;
}

std::uint64_t DomainParticipant::count(std::uint32_t t) {
  if (!readers_.at(t)) return 0;
  const std::lock_guard<Mutex> lock(readers_[t]->mutex);
  return readers_[t]->count;
}

// The state of a topic: the number of its first sample, then the samples. A log has all of them.
std::optional<Bytes> DomainParticipant::save(std::uint32_t t) {
  if (!readers_[t]) return std::nullopt;
  Bytes state;
  Reader& reader = *readers_[t];
  const std::lock_guard<Mutex> lock(reader.mutex);
  ByteWriter out(state);
  if (reader.log) {
    out.put(std::uint64_t{0});
    reader.log->read(0, [&](const Sample& sample) {
      put_sample(out, sample.publisher, sample.bytes);
      return true;
    });
    return state;
  }
  out.put(reader.count - reader.history.size());
  for (const Sample& sample : reader.history) put_sample(out, sample.publisher, sample.bytes);
  return state;
}

void DomainParticipant::load(std::uint32_t t, ByteView state) {
  if (!readers_[t] || state.empty()) return;
  Reader& reader = *readers_[t];
  const std::lock_guard<Mutex> lock(reader.mutex);
  ByteReader in(state);
  std::uint64_t number = in.get<std::uint64_t>();
  if (reader.log) cut_to(reader, agreed(*reader.log, in));
  // A log of an earlier life of this node has a part of the samples already.
  const std::uint64_t has = reader.count;
  reader.count = std::max(reader.count, number);
  while (const auto sample = get_sample(in)) {
    if (number++ >= has) keep(reader, topics_[t], sample->publisher, sample->bytes);
  }
  finish_batch(reader, topics_[t]);
}

// The number of samples at the begin of a log that are the samples of the others.
std::uint64_t DomainParticipant::agreed(const SampleLog& log, ByteReader samples) {
  std::uint64_t number = 0, chain = 0;
  while (const auto sample = get_sample(samples)) {
    if (number == log.samples()) break;
    chain = SampleLog::chained(chain, sample->publisher, number, sample->bytes);
    if (chain != log.chain(number + 1)) break;
    ++number;
  }
  return number;
}

// The others have gone on without samples that this log has: they were restarted from other logs.
void DomainParticipant::cut_to(Reader& reader, std::uint64_t number) {
  if (number >= reader.log->samples()) return;
  env_.reached("spindle/log_cut");
  reader.log->cut(number);
  reader.count = number;
  while (!reader.history.empty() && reader.history.back().number >= number)
    reader.history.pop_back();
}

}  // namespace pyrdma::spindle::dds
