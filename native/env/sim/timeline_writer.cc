// The file of a timeline. Each row is a thread of the format. Slices of a row must not overlap, so
// a row whose slices do has several lanes. A request is a flow: a chain of its slices in the order
// of time.
#include <algorithm>
#include <charconv>
#include <numeric>
#include <tuple>

#include "env/sim/timeline.h"

namespace pyrdma {

class TimelineWriter {
 public:
  TimelineWriter(const Timeline& timeline, FunctionRef<void(std::string_view)> sink)
      : timeline_(timeline),
        sink_(sink),
        next_thread_(timeline.nodes_ + 3),
        thread_of_(timeline.events_.size()) {}

  void write() {
    head();
    rows();
    flows();
    if (timeline_.left_out_ != 0) {
      begin("i", nodes() + 1, nodes() + 1, timeline_.complete_until_);
      text_ += R"(,"s":"g","name":")";
      number(timeline_.left_out_);
      text_ += R"( events are left out from here on"})";
    }
    text_ += "\n]}\n";
    sink_(text_);
  }

 private:
  using Event = Timeline::Event;
  using Part = TimelineWhat::Part;
  static constexpr std::size_t kPiece = 1 << 20;
  static constexpr Picos kNano = 1000;

  const Event& event(std::uint32_t at) const { return timeline_.events_[at]; }
  std::uint32_t nodes() const { return timeline_.nodes_; }

  std::uint32_t process_of(TimelinePlace place) const {
    switch (place.row) {
      case TimelineRow::kThread:
        return timeline_.threads_[place.index].process;
      case TimelineRow::kPort:
      case TimelineRow::kRackLink:
      case TimelineRow::kCluster:
        return nodes();
      default:
        return place.index % nodes();
    }
  }

  // ---- text ----

  template <class Number>
  void number(Number value) {
    char digits[24];
    text_.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
  }
  // Viewers count in whole nanoseconds. They round the begin and the duration of a slice apart from
  // each other, so slices with picoseconds would overlap there, and Perfetto leaves such slices
  // out.
  static Picos whole(Picos picos) { return picos / kNano * kNano; }
  // Microseconds with three decimals.
  void time(Picos picos) {
    const Picos nanos = picos / kNano;
    number(nanos / 1000);
    const std::string decimals = std::to_string(1000 + nanos % 1000);
    text_ += '.';
    text_.append(decimals, 1);
  }
  void quoted(std::string_view plain) {
    text_ += '"';
    for (const char each : plain) {
      if (each == '"' || each == '\\') text_ += '\\';
      text_ += static_cast<unsigned char>(each) < 0x20 ? ' ' : each;
    }
    text_ += '"';
  }
  void next() {
    if (text_.size() >= kPiece) {
      sink_(text_);
      text_.clear();
    }
    text_ += is_first_ ? "\n" : ",\n";
    is_first_ = false;
  }
  void begin(const char* phase, std::uint32_t process, std::uint32_t thread, Picos at) {
    next();
    text_ += R"({"ph":")";
    text_ += phase;
    text_ += R"(","pid":)";
    number(process);
    text_ += R"(,"tid":)";
    number(thread);
    text_ += R"(,"ts":)";
    time(at);
  }
  void describe(const std::string& what, std::uint32_t process, std::uint32_t thread,
                std::string_view name, std::uint32_t order) {
    begin("M", process, thread, 0);
    text_ += R"(,"name":")" + what + R"(_name","args":{"name":)";
    quoted(name);
    text_ += "}}";
    begin("M", process, thread, 0);
    text_ += R"(,"name":")" + what + R"(_sort_index","args":{"sort_index":)";
    number(order);
    text_ += "}}";
  }

  void head() {
    text_ = R"({"displayTimeUnit":"ns","otherData":{"time":"virtual","events":)";
    number(timeline_.events_.size());
    text_ += R"(,"left_out":)";
    number(timeline_.left_out_);
    if (timeline_.left_out_ != 0) {
      text_ += R"(,"complete_until_us":)";
      time(timeline_.complete_until_);
      text_ += R"(,"note":"The limit of events was reached. Choose a window, or a higher limit.")";
    }
    text_ += R"(},"traceEvents":[)";
  }

  // ---- rows ----

  std::string name_of(TimelinePlace place) const {
    const std::uint32_t device = place.index / nodes();
    const std::string nic =
        timeline_.devices_ == 1 ? "NIC " : "NIC " + std::to_string(device) + " ";
    switch (place.row) {
      case TimelineRow::kThread:
        return timeline_.threads_[place.index].name;
      case TimelineRow::kRequester:
        return nic + "requester";
      case TimelineRow::kLink:
        return nic + "link";
      case TimelineRow::kReceiver:
        return nic + "receiver";
      case TimelineRow::kResponder:
        return nic + "responder";
      case TimelineRow::kCompleter:
        return nic + "completer";
      case TimelineRow::kPort:
        return "to node " + std::to_string(place.index % nodes()) +
               (timeline_.devices_ == 1 ? "" : ", NIC " + std::to_string(device));
      case TimelineRow::kRackLink:
        return "rack link " + std::to_string(place.index);
      case TimelineRow::kFaults:
      case TimelineRow::kCluster:
        break;
    }
    return "faults";
  }

  auto key(const Event& each) const {
    return std::tuple(process_of(each.place), each.place.row, each.place.index);
  }

  // The events of a row by time, the longer one first, as nested slices need it.
  void rows() {
    std::vector<std::uint32_t> order(timeline_.events_.size());
    std::iota(order.begin(), order.end(), 0U);
    std::sort(order.begin(), order.end(), [this](std::uint32_t a, std::uint32_t b) {
      const Event &x = event(a), &y = event(b);
      return std::tuple(key(x), x.at, -x.duration, a) < std::tuple(key(y), y.at, -y.duration, b);
    });
    std::uint32_t process = ~0U;
    for (std::size_t from = 0, to = 0; from < order.size(); from = to) {
      const auto row = key(event(order[from]));
      if (process != std::get<0>(row)) describe_process(process = std::get<0>(row));
      lanes_.clear();
      for (; to < order.size() && key(event(order[to])) == row; ++to) put(order[to], process);
    }
  }

  void describe_process(std::uint32_t process) {
    const std::string name = process < nodes()    ? "node " + std::to_string(process)
                             : process == nodes() ? "network"
                                                  : "caller";
    describe("process", process + 1, 0, name, process);
  }

  // Slices of a thread nest. Other slices take the first lane that is free.
  std::size_t lane_of(const Event& each) {
    std::size_t lane = 0;
    if (each.duration != Timeline::kMark && each.place.row != TimelineRow::kThread) {
      while (lane < lanes_.size() && lanes_[lane].free_at > each.at) ++lane;
    }
    return lane;
  }

  void put(std::uint32_t at, std::uint32_t process) {
    const Event& each = event(at);
    const std::size_t lane = lane_of(each);
    if (lane == lanes_.size()) {
      lanes_.push_back({next_thread_++, 0});
      const std::string suffix = lane == 0 ? "" : " (" + std::to_string(lane + 1) + ")";
      describe("thread", process + 1, lanes_[lane].thread, name_of(each.place) + suffix,
               lanes_[lane].thread);
    }
    lanes_[lane].free_at = std::max(lanes_[lane].free_at, each.at + each.duration);
    thread_of_[at] = lanes_[lane].thread;
    const bool is_mark = each.duration == Timeline::kMark;
    begin(is_mark ? "i" : "X", process + 1, thread_of_[at], each.at);
    if (is_mark) {
      text_ += R"(,"s":"t")";
    } else {
      text_ += R"(,"dur":)";
      time(whole(each.at + each.duration) - whole(each.at));
    }
    say(each.what);
  }

  void say(const TimelineWhat& what) {
    text_ += R"(,"name":")";
    if (what.part == Part::kPost) text_ += "post ";
    if (what.part == Part::kPoll) text_ += "poll ";
    text_ += what.name;
    if (what.part == Part::kResponse) text_ += " response";
    text_ += '"';
    if (what.request.sequence != TimelineRequest::kNone) {
      text_ += R"(,"args":{"initiator":)";
      number(what.request.port % nodes());
      text_ += R"(,"queue_pair":)";
      number(what.request.queue_pair);
      text_ += R"(,"request":)";
      number(what.request.sequence);
      text_ += R"(,"bytes":)";
      number(what.bytes);
      text_ += '}';
    }
    text_ += '}';
  }

  // ---- flows ----

  // The numbers of a queue pair repeat after its reset, so a post begins another flow.
  void flows() {
    std::vector<std::uint32_t> order;
    for (std::uint32_t at = 0; at < timeline_.events_.size(); ++at) {
      const Event& each = event(at);
      if (each.duration != Timeline::kMark && each.what.request.sequence != TimelineRequest::kNone)
        order.push_back(at);
    }
    std::sort(order.begin(), order.end(), [this](std::uint32_t a, std::uint32_t b) {
      const Event &x = event(a), &y = event(b);
      return std::tie(x.what.request, x.at, a) < std::tie(y.what.request, y.at, b);
    });
    std::uint64_t id = 0;
    for (std::size_t from = 0, to = 0; from < order.size(); from = to) {
      const TimelineRequest request = event(order[from]).what.request;
      for (++to; to < order.size() && event(order[to]).what.request == request &&
                 event(order[to]).what.part != Part::kPost;)
        ++to;
      if (to - from < 2) continue;
      ++id;
      for (std::size_t i = from; i < to; ++i)
        step(order[i], i == from ? "s" : i + 1 == to ? "f" : "t", id);
    }
  }

  void step(std::uint32_t at, const char* phase, std::uint64_t id) {
    const Event& each = event(at);
    begin(phase, process_of(each.place) + 1, thread_of_[at], each.at);
    text_ += R"(,"id":)";
    number(id);
    text_ += R"(,"bp":"e","cat":"request","name":"request"})";
  }

  struct Lane {
    std::uint32_t thread;
    Picos free_at;
  };
  const Timeline& timeline_;
  FunctionRef<void(std::string_view)> sink_;
  std::string text_;
  bool is_first_ = true;
  std::uint32_t next_thread_;
  std::vector<Lane> lanes_;               // of the present row
  std::vector<std::uint32_t> thread_of_;  // the format's thread, by event
};

void Timeline::write(FunctionRef<void(std::string_view)> sink) const {
  TimelineWriter(*this, sink).write();
}

}  // namespace pyrdma
