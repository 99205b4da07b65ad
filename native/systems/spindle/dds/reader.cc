#include "systems/spindle/dds/reader.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "systems/spindle/membership/control_channel.h"
#include "systems/spindle/scopes.h"

namespace pyrdma::spindle::dds {

namespace {

constexpr std::uint64_t kSyncBytes = 4 << 20;    // a joiner syncs its log after so many
constexpr std::uint64_t kReadBytes = 64 * 1024;  // under the lock
constexpr std::uint64_t kMostHeader = 32;        // of a sample between nodes

struct Question {
  std::uint64_t from = 0;     // number of a sample
  std::uint64_t chain = 0;    // of the asker's log up to it
  std::uint64_t skipped = 0;  // bytes from there on that the asker has
  std::uint32_t most = 0;     // bytes that it wants
};

Bytes encode(const Question& question) {
  Bytes bytes;
  ByteWriter out(bytes);
  out.put(question.from);
  out.put(question.chain);
  out.put(question.skipped);
  out.put(question.most);
  return bytes;
}

std::optional<Question> question_in(ByteView bytes) {
  ByteReader in(bytes);
  Question question;
  question.from = in.get<std::uint64_t>();
  question.chain = in.get<std::uint64_t>();
  question.skipped = in.get<std::uint64_t>();
  question.most = std::min(in.get<std::uint32_t>(), ControlChannel::kMostPart);
  if (!in.done() || question.skipped > kMostMessage + kMostHeader) return std::nullopt;
  return question;
}

void put_sample(ByteWriter& out, const Sample& sample) {
  out.put(sample.publisher);
  out.put(static_cast<std::uint32_t>(sample.bytes.size()));
  out.put(ByteView(sample.bytes));
}

SampleLog::Record next_of_history(ByteView bytes) {
  ByteReader in(bytes);
  SampleLog::Record next;
  next.sample.publisher = in.get<std::uint32_t>();
  const auto size = in.get<std::uint32_t>();
  next.bytes = 8 + std::uint64_t{size};
  const ByteView sample = in.bytes(size);
  if (!in.ok()) return next;
  next.sample.bytes.assign(sample.begin(), sample.end());
  next.state = SampleLog::State::kWhole;
  return next;
}

}  // namespace

Reader::Reader(Env& env, const Topic& topic, const std::string& name, bool cut_damage, Bugs bugs)
    : env_(env),
      topic_(topic),
      bugs_(bugs),
      mutex_(env),
      footprint_(env, nullptr, std::uint64_t{topic.history} * topic.max_sample) {
  if (topic.qos != Qos::kLogged) return;
  log_ = std::make_unique<SampleLog>(env, name, cut_damage, bugs);
}

std::uint64_t Reader::samples() const { return log_ ? log_->samples() : count_; }

void Reader::take(std::span<const Message> messages) {
  const std::lock_guard<Mutex> lock(mutex_);
  for (const Message& message : messages) keep(message.node, message.bytes);
  finish_batch();
}

void Reader::keep(NodeId publisher, ByteView sample) {
  const Scope step(env_, scope::keep_sample);
  env_.charge_copy(sample.size(), &footprint_);
  Sample& kept = history_.emplace_back();
  if (history_.size() > topic_.history) {  // its memory serves again
    kept = std::move(history_.front());
    history_.pop_front();
  }
  kept.publisher = publisher;
  kept.number = samples();
  kept.bytes.assign(sample.begin(), sample.end());
  if (!log_) {
    ++count_;
    return;
  }
  env_.charge_copy(sample.size(), &footprint_);
  log_->append(publisher, sample);
  ++since_sync_;
}

void Reader::finish_batch() {
  if (!log_) return;
  log_->write();
  if (topic_.sync_every == 0 || since_sync_ < topic_.sync_every) return;
  log_->sync();
  since_sync_ = 0;
}

void Reader::sync() {
  if (!log_) return;
  const std::lock_guard<Mutex> lock(mutex_);
  log_->sync();
  since_sync_ = 0;
}

// A long read lets deliveries pass.
std::vector<Sample> Reader::read(std::uint64_t from, std::size_t most) {
  std::vector<Sample> found;
  bool is_over = most == 0;
  while (!is_over) {
    const std::lock_guard<Mutex> lock(mutex_);
    std::uint64_t bytes = 0;
    is_over = true;
    const auto take_one = [&](const Sample& sample) {
      if (sample.number < from) return true;
      found.push_back(sample);
      bytes += sample.bytes.size();
      from = sample.number + 1;
      is_over = found.size() == most;
      return !is_over && bytes < kReadBytes;
    };
    if (log_) {
      log_->read(from, take_one);
      continue;
    }
    for (const Sample& sample : history_) {
      if (!take_one(sample)) break;
    }
  }
  return found;
}

std::uint64_t Reader::count() {
  const std::lock_guard<Mutex> lock(mutex_);
  return samples();
}

// A history has no chain that says what it shares with another one, so a joiner gets all of it.
void Reader::begin_to_ask(bool cuts) {
  const std::lock_guard<Mutex> lock(mutex_);
  asking_ = {};
  asking_.cuts = cuts;
  if (log_) return;
  history_.clear();
  count_ = 0;
}

std::optional<Bytes> Reader::ask() {
  const std::lock_guard<Mutex> lock(mutex_);
  if (asking_.is_done) return std::nullopt;
  Question question{samples(), log_ ? log_->chain(samples()) : 0, asking_.part.size(),
                    ControlChannel::kMostPart};
  if (asking_.is_searching) {
    question.from = asking_.agreed + (asking_.differs - asking_.agreed) / 2;
    question.chain = log_->chain(question.from);
    question.most = 0;
  }
  asking_.asked = question.from;
  return encode(question);
}

// The answer: the samples in all, the number of the first one that is kept, whether the logs agree
// up to the number in the question, the next bytes. Logs that agree are equal byte for byte.
Bytes Reader::answer(ByteView bytes) {
  Bytes answer;
  const auto question = question_in(bytes);
  if (!question) return answer;
  const std::lock_guard<Mutex> lock(mutex_);
  for (std::uint64_t i = 0; log_ && i < samples() && !bugs_.reads_parts(); ++i)
    log_->records(i, 0, 8);
  ByteWriter out(answer);
  out.put(samples());
  out.put(log_ ? std::uint64_t{0} : count_ - history_.size());
  const bool agrees =
      question->from <= samples() && (!log_ || log_->chain(question->from) == question->chain);
  out.put(static_cast<std::uint8_t>(agrees));
  if (!agrees || question->most == 0) return answer;
  out.put(ByteView(log_ ? log_->records(question->from, question->skipped, question->most)
                        : part_of_history(question->from, question->skipped, question->most)));
  return answer;
}

Bytes Reader::part_of_history(std::uint64_t from, std::uint64_t skipped, std::uint64_t most) const {
  Bytes part;
  for (const Sample& sample : history_) {
    if (sample.number < from) continue;
    if (part.size() >= most) break;
    Bytes bytes;
    ByteWriter out(bytes);
    put_sample(out, sample);
    const std::uint64_t gone = std::min<std::uint64_t>(skipped, bytes.size());
    skipped -= gone;
    ByteWriter(part).put(ByteView(bytes).subspan(gone));
  }
  part.resize(std::min<std::uint64_t>(part.size(), most));
  return part;
}

bool Reader::take(ByteView answer) {
  ByteReader in(answer);
  const auto others = in.get<std::uint64_t>();  // samples
  const auto first = in.get<std::uint64_t>();
  const bool agrees = in.get<std::uint8_t>() != 0;
  if (!in.ok() || first > others) return false;
  const std::lock_guard<Mutex> lock(mutex_);
  if (asking_.is_searching || !agrees) return log_ && search(agrees, others);
  if (first > samples()) {  // a history begins later
    if (log_) return false;
    history_.clear();
    asking_.part.clear();
    count_ = first;
  }
  const ByteView more = in.bytes(in.left());
  asking_.part.insert(asking_.part.end(), more.begin(), more.end());
  if (!take_samples() || samples() > others || (samples() < others && more.empty())) {
    asking_.part.clear();
    return false;
  }
  asking_.is_done = samples() == others;
  if (!log_) return true;
  log_->write();
  asking_.not_synced += more.size();
  if (!bugs_.syncs_state() || (!asking_.is_done && asking_.not_synced < kSyncBytes)) return true;
  log_->sync();
  asking_.not_synced = since_sync_ = 0;
  return true;
}

/// Keeps the samples that have come. Returns false if they cannot be right.
bool Reader::take_samples() {
  const ByteView part(asking_.part);
  std::uint64_t taken = 0;
  bool is_right = true;
  for (bool is_whole = true; is_whole && is_right;) {
    SampleLog::Record next =
        log_ ? SampleLog::parse(part.subspan(taken), samples(), log_->chain(samples()))
             : next_of_history(part.subspan(taken));
    is_whole = next.state == SampleLog::State::kWhole;
    is_right = next.state != SampleLog::State::kBad && next.bytes <= kMostMessage + kMostHeader;
    if (!is_whole || !is_right) continue;
    keep(next.sample.publisher, next.sample.bytes);
    taken += next.bytes;
  }
  asking_.part.erase(asking_.part.begin(),
                     asking_.part.begin() + static_cast<std::ptrdiff_t>(taken));
  return is_right;
}

// Logs agree up to some number, and from there on in none.
bool Reader::search(bool agrees, std::uint64_t others) {
  if (!std::exchange(asking_.is_searching, true)) {
    asking_.part.clear();
    asking_.agreed = 0;
    asking_.differs = samples() + 1;
  }
  if (agrees)
    asking_.agreed = asking_.asked;
  else
    asking_.differs = std::min(asking_.asked, others + 1);
  if (!asking_.cuts || asking_.agreed >= asking_.differs) return false;
  if (asking_.agreed + 1 < asking_.differs) return true;
  asking_.is_searching = false;
  cut(asking_.agreed);
  return true;
}

// The others have gone on without samples that this log has: they were restarted from other logs.
void Reader::cut(std::uint64_t number) {
  if (number >= samples()) return;
  env_.reached("spindle/log_cut");
  while (!history_.empty() && history_.back().number >= number) history_.pop_back();
  log_->cut(number);
}

}  // namespace pyrdma::spindle::dds
