// RPCs built on UCX's active messages, between two processes, each on a CPU of its own.
//
//   ucx_am SECONDS IN_FLIGHT BATCH CLIENT_CPU SERVER_CPU NAME...
//
// prints the named values: "rpc_rate VALUE", in RPCs per second with IN_FLIGHT requests in flight,
// "rpc_latency VALUE", the median round trip in seconds with one in flight, and "endpoint_rate
// VALUE", endpoints per second that the client makes, flushes and closes. A request and a response
// have 32 bytes, and the number of their slot before them. The client sends the requests of a batch
// together, after all responses of the batch's previous turn have come. The server responds in the
// handler of the request. Both spin, and reuse the buffers of their slots.
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

namespace {

constexpr unsigned kRequest = 0;
constexpr unsigned kResponse = 1;
constexpr std::size_t kPayload = 32;
constexpr std::size_t kLeastTrips = 1000;

[[noreturn]] void fail(const char* what, const char* why) {
  std::fprintf(stderr, "%s: %s\n", what, why);
  std::exit(1);
}

void check(ucs_status_t status, const char* what) {
  if (status != UCS_OK) fail(what, ucs_status_string(status));
}

std::int64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * std::int64_t{1'000'000'000} + time.tv_nsec;
}

struct Message {
  std::uint64_t slot;
  char payload[kPayload];
};

void sent(void* request, ucs_status_t status, void*) {
  check(status, "a send");
  ucp_request_free(request);
}

// One process's end: a worker and the endpoint to the other process.
class Side {
 public:
  Side(int channel, int cpu) {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(static_cast<unsigned>(cpu), &cpus);
    if (sched_setaffinity(0, sizeof cpus, &cpus) != 0) fail("sched_setaffinity", "failed");
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_AM;
    check(ucp_init(&params, nullptr, &context_), "ucp_init");
    ucp_worker_params_t options{};
    options.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    options.thread_mode = UCS_THREAD_MODE_SINGLE;
    check(ucp_worker_create(context_, &options, &worker_), "ucp_worker_create");
    connect(channel);
  }

  void handle(unsigned id, ucp_am_recv_callback_t handler, void* argument) {
    ucp_am_handler_param_t param{};
    param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                       UCP_AM_HANDLER_PARAM_FIELD_ARG;
    param.id = id;
    param.cb = handler;
    param.arg = argument;
    check(ucp_worker_set_am_recv_handler(worker_, &param), "ucp_worker_set_am_recv_handler");
  }

  // `message` stays as it is until the other side's answer to it has come.
  void send(unsigned id, const Message& message) {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK;
    param.cb.send = sent;
    void* request = ucp_am_send_nbx(endpoint_, id, nullptr, 0, &message, sizeof message, &param);
    if (UCS_PTR_IS_ERR(request)) fail("a send", ucs_status_string(UCS_PTR_STATUS(request)));
  }

  void progress() { ucp_worker_progress(worker_); }

  // Makes one more endpoint to the other side, waits until it could send, and closes it.
  void make_endpoint() {
    ucp_ep_h made = new_endpoint();
    ucp_request_param_t param{};
    finish(ucp_ep_flush_nbx(made, &param), "ucp_ep_flush_nbx");
    finish(ucp_ep_close_nbx(made, &param), "ucp_ep_close_nbx");
  }

 private:
  void finish(void* request, const char* what) {
    if (request == nullptr) return;
    if (UCS_PTR_IS_ERR(request)) fail(what, ucs_status_string(UCS_PTR_STATUS(request)));
    while (ucp_request_check_status(request) == UCS_INPROGRESS) progress();
    check(ucp_request_check_status(request), what);
    ucp_request_free(request);
  }

  ucp_ep_h new_endpoint() {
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address = reinterpret_cast<const ucp_address_t*>(other_.data());
    ucp_ep_h made = nullptr;
    check(ucp_ep_create(worker_, &params, &made), "ucp_ep_create");
    return made;
  }

  // Exchanges the workers' addresses through a socket.
  void connect(int channel) {
    ucp_address_t* mine = nullptr;
    std::size_t bytes = 0;
    check(ucp_worker_get_address(worker_, &mine, &bytes), "ucp_worker_get_address");
    if (::send(channel, mine, bytes, 0) != static_cast<ssize_t>(bytes)) fail("send", "failed");
    ucp_worker_release_address(worker_, mine);
    other_.resize(1 << 16);
    if (recv(channel, other_.data(), other_.size(), 0) <= 0) fail("recv", "no address came");
    endpoint_ = new_endpoint();
  }

  std::vector<char> other_;  // the other worker's address
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  ucp_ep_h endpoint_ = nullptr;
};

Message received(const void* data, std::size_t length) {
  Message message;
  if (length != sizeof message) fail("a message", "its length is wrong");
  std::memcpy(&message, data, sizeof message);
  return message;
}

class Server {
 public:
  Server(int channel, int cpu, std::size_t slots) : side_(channel, cpu), responses_(slots) {
    side_.handle(kRequest, respond, this);
    const char ready = 1;
    if (::send(channel, &ready, 1, 0) != 1) fail("send", "failed");
  }

  [[noreturn]] void serve() {
    for (;;) side_.progress();
  }

 private:
  static ucs_status_t respond(void* argument, const void*, std::size_t, void* data,
                              std::size_t length, const ucp_am_recv_param_t*) {
    auto& self = *static_cast<Server*>(argument);
    const Message request = received(data, length);
    if (request.slot >= self.responses_.size()) fail("a request", "its slot is unknown");
    self.responses_[request.slot] = request;
    self.side_.send(kResponse, self.responses_[request.slot]);
    return UCS_OK;
  }

  Side side_;
  std::vector<Message> responses_;
};

class Client {
 public:
  Client(int channel, int cpu, std::size_t in_flight, std::size_t batch)
      : side_(channel, cpu), requests_(in_flight), batch_(batch), missing_(in_flight / batch) {
    side_.handle(kResponse, count, this);
    char ready = 0;
    if (recv(channel, &ready, 1, 0) != 1) fail("recv", "the server has ended");
  }

  // Returns RPCs per second.
  double rate(double seconds) {
    stopping_ = false;
    for (std::size_t i = 0; i < missing_.size(); ++i) send_batch(i);
    turn_for(seconds / 10);  // connects, and fills caches
    const std::uint64_t before = done_;
    const std::int64_t start = now_ns();
    turn_for(seconds);
    const double measured = static_cast<double>(now_ns() - start) * 1e-9;
    const double rate = static_cast<double>(done_ - before) / measured;
    stopping_ = true;
    while (std::any_of(missing_.begin(), missing_.end(), [](auto left) { return left != 0; })) {
      side_.progress();
    }
    return rate;
  }

  // Returns the median round trip in seconds; a batch is one request here.
  double latency(double seconds) {
    std::vector<std::int64_t> trips;
    trips.reserve(1 << 22);
    stopping_ = true;
    const std::int64_t end = now_ns() + static_cast<std::int64_t>(seconds * 1e9);
    // On a busy machine a process may wait for its CPU in each of a few trips.
    for (std::int64_t start = now_ns(); start < end || trips.size() < kLeastTrips;) {
      const std::uint64_t before = done_;
      side_.send(kRequest, requests_[0]);
      while (done_ == before) side_.progress();
      const std::int64_t got = now_ns();
      if (trips.size() < trips.capacity()) trips.push_back(got - start);
      start = got;
    }
    const auto middle = trips.begin() + static_cast<std::ptrdiff_t>(trips.size() / 2);
    std::nth_element(trips.begin(), middle, trips.end());
    return static_cast<double>(*middle) * 1e-9;
  }

  // Returns endpoints per second.
  double endpoints(double seconds) {
    for (int i = 0; i < 10; ++i) side_.make_endpoint();
    const std::int64_t start = now_ns(), end = start + static_cast<std::int64_t>(seconds * 1e9);
    std::int64_t now = start, made = 0;
    for (; now < end; now = now_ns(), ++made) side_.make_endpoint();
    return static_cast<double>(made) / (static_cast<double>(now - start) * 1e-9);
  }

 private:
  void send_batch(std::size_t index) {
    missing_[index] = batch_;
    for (std::size_t slot = index * batch_; slot < (index + 1) * batch_; ++slot) {
      requests_[slot].slot = slot;
      side_.send(kRequest, requests_[slot]);
    }
  }

  void turn_for(double seconds) {
    const std::int64_t end = now_ns() + static_cast<std::int64_t>(seconds * 1e9);
    do {
      for (int i = 0; i < 256; ++i) side_.progress();
    } while (now_ns() < end);
  }

  static ucs_status_t count(void* argument, const void*, std::size_t, void* data,
                            std::size_t length, const ucp_am_recv_param_t*) {
    auto& self = *static_cast<Client*>(argument);
    const Message response = received(data, length);
    if (response.slot >= self.requests_.size()) fail("a response", "its slot is unknown");
    ++self.done_;
    const std::size_t index = response.slot / self.batch_;
    std::size_t& missing = self.missing_[index];
    if (missing != 0 && --missing == 0 && !self.stopping_) self.send_batch(index);
    return UCS_OK;
  }

  Side side_;
  std::vector<Message> requests_;
  std::size_t batch_;
  std::vector<std::size_t> missing_;  // responses, by batch
  std::uint64_t done_ = 0;
  bool stopping_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  const std::size_t in_flight = argc > 6 ? std::strtoul(argv[2], nullptr, 10) : 0;
  const std::size_t batch = argc > 6 ? std::strtoul(argv[3], nullptr, 10) : 0;
  if (batch == 0 || in_flight == 0 || in_flight % batch != 0) {
    fail("usage", "ucx_am SECONDS IN_FLIGHT BATCH CLIENT_CPU SERVER_CPU NAME...; whole batches");
  }
  const double seconds = std::atof(argv[1]);
  int channel[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, channel) != 0) fail("socketpair", "failed");
  const pid_t child = fork();
  if (child < 0) fail("fork", "failed");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(channel[0]);  // a client that fails closes the other, which ends a waiting server
    Server(channel[1], std::atoi(argv[5]), in_flight).serve();
  }
  close(channel[1]);
  Client client(channel[0], std::atoi(argv[4]), in_flight, batch);
  for (int i = 6; i < argc; ++i) {
    const std::string_view name = argv[i];
    const double value = name == "rpc_rate"      ? client.rate(seconds)
                         : name == "rpc_latency" ? client.latency(seconds)
                                                 : client.endpoints(seconds);
    std::printf("%s %.9g\n", argv[i], value);
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return 0;
}
