// Any bytes as a log, as a request to a participant, and as the answers of a node at a restart:
// they are refused or harmless, and the members go on.
#include <string>
#include <vector>

#include "base/error.h"
#include "base/hostile_test.h"
#include "systems/spindle/dds/participant.h"
#include "systems/spindle/worlds_test.h"

namespace pyrdma::spindle::dds {
namespace {

std::string text_of(ByteView bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

ByteView bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

Topic logged_topic() {
  Topic topic;
  topic.name = "t";
  topic.qos = Qos::kLogged;
  topic.publishers = {0, 1};
  topic.subscribers = {0, 1};
  topic.max_sample = 100;
  topic.sync_every = 1;
  return topic;
}

Options quick_options() {
  Options options = options_of("sim", Options::of(Preset::kPaper));
  options.join_timeout = 2 * kMillisecond;
  return options;
}

std::vector<std::string> good_logs() {
  std::vector<std::string> logs;
  for (const std::size_t samples : {0U, 1U, 20U}) {
    runtime::run_world("sim", 1, [&](Env& env, const runtime::Kill&) {
      {
        SampleLog log(env, "log");
        for (std::size_t i = 0; i < samples; ++i) {
          log.append(static_cast<NodeId>(i % 3), Bytes(i * 7 % 50, static_cast<std::byte>(i)));
          if (i % 3 == 0) log.sync();
        }
        log.sync();
      }
      const auto file = env.storage().open("log");
      Bytes content(file->size());
      file->read(0, content);
      logs.push_back(text_of(content));
    });
  }
  return logs;
}

std::uint64_t count_of(SampleLog& log) {
  std::uint64_t count = 0;
  log.read(0, [&](const Sample& sample) { return sample.number == count++; });
  return count;
}

void open_any_log(std::string_view input) {
  runtime::run_world("sim", 1, [&](Env& env, const runtime::Kill&) {
    env.storage().open("log")->write(0, bytes_of(input));
    bool is_refused = false;
    try {
      SampleLog(env, "log");
    } catch (const Error& error) {
      PYRDMA_MUST(error.code() == ErrorCode::kUnavailable);
      is_refused = true;
    }
    std::uint64_t samples = 0;
    {
      SampleLog log(env, "log", is_refused);
      samples = log.samples();
      PYRDMA_MUST(count_of(log) == samples);
      log.append(1, Bytes(30));
      log.sync();
    }
    SampleLog again(env, "log");
    PYRDMA_MUST(again.samples() == samples + 1 && count_of(again) == samples + 1);
  });
}

/// The type of a request, then the request.
std::string request_of(ControlType type, ByteView bytes) {
  return std::string(1, static_cast<char>(type)) + text_of(bytes);
}

std::vector<std::string> good_requests() {
  std::vector<std::string> requests;
  // What a founder and a joiner send.
  runtime::run_world("sim", 2, [&](Env& env, const runtime::Kill&) {
    if (env.node() == 1) {
      ControlChannel channel(env, quick_options());
      for (const ControlType type : {ControlType::kJoin, ControlType::kHello}) {
        channel.serve(type, [&requests, type](NodeId, ByteView request) {
          requests.push_back(request_of(type, request));
          return Bytes();
        });
      }
      channel.run_until([] { return false; }, env.now() + 20 * kMillisecond);
      return;
    }
    for (const bool founds : {true, false}) {
      DomainParticipant participant(env, quick_options(), {logged_topic()});
      try {
        founds ? participant.create({0, 1}) : participant.join({1});
      } catch (const Error&) {  // node 1 is no participant
      }
    }
  });
  requests.resize(std::min<std::size_t>(requests.size(), 40));
  Bytes bytes;
  ByteWriter out(bytes);
  out.put(std::uint32_t{0});    // topic
  out.put(std::uint64_t{3});    // first sample
  out.put(std::uint64_t{77});   // chain
  out.put(std::uint64_t{0});    // bytes of later samples
  out.put(std::uint32_t{999});  // bytes that are wanted
  requests.push_back(request_of(ControlType::kRead, bytes));
  requests.push_back(request_of(ControlType::kPublish, ByteView(bytes).first(20)));
  requests.push_back(request_of(ControlType::kRestart, {}));
  bytes.clear();
  out.put(std::uint64_t{1});    // view
  out.put(std::uint32_t{0});    // subgroup
  out.put(std::uint64_t{0});    // first sample
  out.put(std::uint64_t{0});    // chain
  out.put(std::uint64_t{0});    // bytes of later samples
  out.put(std::uint32_t{999});  // bytes that are wanted
  requests.push_back(request_of(ControlType::kState, bytes));
  bytes.clear();
  out.put(std::uint64_t{1});  // view
  out.put(std::uint32_t{1});  // rank
  ControlRow row;
  row.version = 9;
  row.suspected = bit_of(0);
  row.accepted = Proposal{1, {}, Rounds(2)};
  row.committed = true;
  out.put(ByteView(encode(row)));
  requests.push_back(request_of(ControlType::kLastRow, bytes));
  return requests;
}

// Nobody can ask in a member's name. Node 2 may ask to join, which costs the members the time until
// they find that it does not come. The members must return from all calls.
void ask_any(std::string_view input) {
  if (input.empty() || input.size() > 10'000) return;
  const auto type = static_cast<ControlType>(input[0]);
  const bool joins = type == ControlType::kJoin;
  std::uint32_t asked = 0, done = 0;
  std::vector<std::uint64_t> counts(2);
  runtime::run_world("sim", 3, [&](Env& env, const runtime::Kill&) {
    if (env.node() == 2) {
      env.sleep_until(env.now() + 300 * kMicrosecond);
      ControlChannel channel(env, quick_options());
      const ByteView rest = bytes_of(input.substr(1));
      for (const NodeId node : {0U, 1U})
        channel.ask(node, type, Bytes(rest.begin(), rest.end()),
                    [&](std::optional<ByteView>) { ++asked; });
      channel.run_until([&] { return asked == 2; }, env.now() + 5 * kMillisecond);
      asked = 2;
      return;
    }
    DomainParticipant participant(env, quick_options(), {logged_topic()});
    participant.create({0, 1});
    Group& group = participant.group();
    group.wait_until([&] { return asked == 2; }, env.now() + 20 * kMillisecond);
    for (std::uint32_t i = 0; i < 10 && !joins; ++i) {
      const auto memory = participant.loan(0, env.now() + 5 * kMillisecond);
      if (!memory.empty()) participant.publish(0, 8);
    }
    group.wait_until([&] { return participant.count(0) >= 20; }, env.now() + 5 * kMillisecond);
    counts[env.node()] = participant.count(0);
    ++done;
    group.wait_until([&] { return done == 2; }, env.now() + 20 * kMillisecond);
  });
  PYRDMA_MUST(joins || (counts[0] >= 20 && counts[1] >= 20));
}

// What a log of five samples answers to a node without any.
Bytes good_part(Qos qos) {
  Bytes part;
  runtime::run_world("sim", 1, [&](Env& env, const runtime::Kill&) {
    Topic topic = logged_topic();
    topic.qos = qos;
    Reader source(env, topic, "source", false, {}), asker(env, topic, "asker", false, {});
    std::vector<Message> messages(5);
    for (std::uint32_t i = 0; i < 5; ++i) messages[i].bytes = bytes_of("sample of any bytes");
    source.take(messages);
    asker.begin_to_ask(true);
    part = source.answer(*asker.ask());
  });
  return part;
}

std::vector<std::string> good_answers() {
  Bytes bytes;
  ByteWriter out(bytes);
  put_views(out, {{3, {0, 1}}, {3, {0, 1}}});
  out.put(std::uint64_t{5});  // samples
  std::vector<std::string> answers{text_of(bytes)};
  out.put(ByteView(good_part(Qos::kLogged)));
  answers.push_back(text_of(bytes));
  return answers;
}

// The first 48 bytes answer the question for the standing, the others those for samples.
void answer_anything(std::string_view input) {
  if (input.size() > 10'000) return;
  runtime::run_world("sim", 2, [&](Env& env, const runtime::Kill&) {
    if (env.node() == 1) {
      ControlChannel channel(env, quick_options());
      const auto answer = [&](std::string_view text) {
        return [bytes = Bytes(bytes_of(text).begin(), bytes_of(text).end())](NodeId, ByteView) {
          return bytes;
        };
      };
      channel.serve(ControlType::kRestart, answer(input.substr(0, 48)));
      channel.serve(ControlType::kRead,
                    answer(input.substr(std::min<std::size_t>(48, input.size()))));
      channel.run_until([] { return false; }, env.now() + 10 * kMillisecond);
      return;
    }
    DomainParticipant participant(env, quick_options(), {logged_topic()});
    try {
      participant.restart({0, 1});
      PYRDMA_MUST(false);  // node 1 founds nothing
    } catch (const Error& error) {
      PYRDMA_MUST(error.code() == ErrorCode::kTimeout || error.code() == ErrorCode::kUnavailable ||
                  error.code() == ErrorCode::kInvalidArgument);
    }
  });
}

// A reader takes any answers. Its log stays one.
void take_any_part(std::string_view input) {
  runtime::run_world("sim", 1, [&](Env& env, const runtime::Kill&) {
    for (const Qos qos : {Qos::kLogged, Qos::kVolatile}) {
      Topic topic = logged_topic();
      topic.qos = qos;
      std::uint64_t count = 0;
      {
        Reader reader(env, topic, "reader", false, {});
        const Message own{0, 1, 0, bytes_of("own sample")};
        reader.take({&own, 1});
        reader.begin_to_ask(true);
        for (int i = 0; i < 20 && reader.ask(); ++i) reader.take(bytes_of(input));
        reader.sync();
        count = reader.count();
      }
      PYRDMA_MUST(qos == Qos::kVolatile || SampleLog(env, "reader").samples() == count);
    }
  });
}

std::vector<std::string> good_parts() {
  return {text_of(good_part(Qos::kLogged)), text_of(good_part(Qos::kVolatile))};
}

PYRDMA_HOSTILE(SpindleLog, good_logs(), open_any_log)
PYRDMA_HOSTILE(SpindleParts, good_parts(), take_any_part)
#ifndef PYRDMA_LIBFUZZER
PYRDMA_HOSTILE(SpindleRequests, good_requests(), ask_any)
PYRDMA_HOSTILE(SpindleAnswers, good_answers(), answer_anything)
#endif

}  // namespace
}  // namespace pyrdma::spindle::dds
