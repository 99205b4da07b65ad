// Calls of gRPC over a Unix socket, between two processes, each on a CPU of its own.
//
//   grpc_calls SOCKET SECONDS IN_FLIGHT CLIENT_CPU SERVER_CPU NAME...
//
// prints the named values: "rpc_rate VALUE", in calls per second with IN_FLIGHT calls in flight,
// and "rpc_latency VALUE", the median round trip in seconds with one in flight. A unary call and
// its response carry 32 bytes. Client and server use the asynchronous interface, one thread and one
// completion queue each.
#include <grpcpp/grpcpp.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "grpc_calls.grpc.pb.h"

namespace {

using pyrdma_peer::Echo;
using pyrdma_peer::Text;

constexpr std::size_t kPayload = 32;

[[noreturn]] void fail(const char* what, const char* why) {
  std::fprintf(stderr, "%s: %s\n", what, why);
  std::exit(1);
}

std::int64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * std::int64_t{1'000'000'000} + time.tv_nsec;
}

// Also for the threads that gRPC starts later.
void stay_on(const char* cpu) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(static_cast<unsigned>(std::atoi(cpu)), &cpus);
  if (sched_setaffinity(0, sizeof cpus, &cpus) != 0) fail("sched_setaffinity", cpu);
}

// A place for one call at the server; it takes the next call after its response has left.
class Place {
 public:
  Place(Echo::AsyncService& service, grpc::ServerCompletionQueue& queue)
      : service_(service), queue_(queue) {
    listen();
  }

  void turn() {
    if (responded_) {
      listen();
    } else {
      responded_ = true;
      response_.set_payload(request_.payload());
      writer_->Finish(response_, grpc::Status::OK, this);
    }
  }

 private:
  void listen() {
    responded_ = false;
    writer_.reset();
    context_ = std::make_unique<grpc::ServerContext>();
    writer_ = std::make_unique<grpc::ServerAsyncResponseWriter<Text>>(context_.get());
    service_.RequestCall(context_.get(), &request_, writer_.get(), &queue_, &queue_, this);
  }

  Echo::AsyncService& service_;
  grpc::ServerCompletionQueue& queue_;
  std::unique_ptr<grpc::ServerContext> context_;
  std::unique_ptr<grpc::ServerAsyncResponseWriter<Text>> writer_;
  Text request_, response_;
  bool responded_ = false;
};

[[noreturn]] void serve(const std::string& address, std::size_t places) {
  Echo::AsyncService service;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  const auto queue = builder.AddCompletionQueue();
  const auto server = builder.BuildAndStart();
  if (!server) fail("the server cannot listen on", address.c_str());
  std::vector<std::unique_ptr<Place>> all;
  for (std::size_t i = 0; i < places; ++i) {
    all.push_back(std::make_unique<Place>(service, *queue));
  }
  void* tag = nullptr;
  for (bool ok = false; queue->Next(&tag, &ok);) {
    if (ok) static_cast<Place*>(tag)->turn();
  }
  fail("the server", "its queue has ended");
}

struct Call {
  std::unique_ptr<grpc::ClientContext> context;
  std::unique_ptr<grpc::ClientAsyncResponseReader<Text>> reader;
  Text response;
  grpc::Status status;
};

class Client {
 public:
  Client(const std::string& address, std::size_t in_flight)
      : channel_(grpc::CreateChannel(address, grpc::InsecureChannelCredentials())),
        stub_(Echo::NewStub(channel_)),
        calls_(in_flight) {
    request_.set_payload(std::string(kPayload, 'x'));
    const auto limit = std::chrono::system_clock::now() + std::chrono::seconds(20);
    if (!channel_->WaitForConnected(limit)) fail("the client", "no connection within 20 s");
  }

  // Returns calls per second.
  double rate(double seconds) {
    for (Call& call : calls_) start(call);
    turn_for(seconds / 5);  // fills caches
    const std::int64_t began = now_ns();
    const std::uint64_t done = turn_for(seconds);
    const double rate = static_cast<double>(done) / (static_cast<double>(now_ns() - began) * 1e-9);
    for (std::size_t left = calls_.size(); left > 0; --left) finished();
    return rate;
  }

  // Returns the median round trip in seconds.
  double latency(double seconds) {
    std::vector<std::int64_t> trips;
    const std::int64_t end = now_ns() + static_cast<std::int64_t>(seconds * 1e9);
    for (std::int64_t began = now_ns(); began < end;) {
      start(calls_[0]);
      finished();
      const std::int64_t got = now_ns();
      trips.push_back(got - began);
      began = got;
    }
    const auto middle = trips.begin() + static_cast<std::ptrdiff_t>(trips.size() / 2);
    std::nth_element(trips.begin(), middle, trips.end());
    return static_cast<double>(*middle) * 1e-9;
  }

 private:
  void start(Call& call) {
    call.reader.reset();
    call.context = std::make_unique<grpc::ClientContext>();
    call.reader = stub_->AsyncCall(call.context.get(), request_, &queue_);
    call.reader->Finish(&call.response, &call.status, &call);
  }

  Call& finished() {
    void* tag = nullptr;
    bool ok = false;
    if (!queue_.Next(&tag, &ok) || !ok) fail("the client", "its queue has ended");
    Call& call = *static_cast<Call*>(tag);
    if (!call.status.ok()) fail("a call failed", call.status.error_message().c_str());
    if (call.response.payload().size() != kPayload) fail("a response", "its length is wrong");
    return call;
  }

  // Returns the number of calls that ended; a new one begins for each.
  std::uint64_t turn_for(double seconds) {
    std::uint64_t done = 0;
    const std::int64_t end = now_ns() + static_cast<std::int64_t>(seconds * 1e9);
    for (; now_ns() < end; ++done) start(finished());
    return done;
  }

  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<Echo::Stub> stub_;
  grpc::CompletionQueue queue_;
  Text request_;
  std::vector<Call> calls_;
};

}  // namespace

int main(int argc, char** argv) {
  const std::size_t in_flight = argc > 6 ? std::strtoul(argv[3], nullptr, 10) : 0;
  if (in_flight == 0) {
    fail("usage", "grpc_calls SOCKET SECONDS IN_FLIGHT CLIENT_CPU SERVER_CPU NAME...");
  }
  const std::string address = std::string("unix:") + argv[1];
  const double seconds = std::atof(argv[2]);
  const pid_t child = fork();  // before gRPC starts its threads
  if (child < 0) fail("fork", "failed");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    stay_on(argv[5]);
    serve(address, 2 * in_flight);
  }
  stay_on(argv[4]);
  Client client(address, in_flight);
  for (int i = 6; i < argc; ++i) {
    const bool rate = std::string(argv[i]) == "rpc_rate";
    std::printf("%s %.9g\n", argv[i], rate ? client.rate(seconds) : client.latency(seconds));
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return 0;
}
