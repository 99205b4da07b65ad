// Clients of Redis that SET and wait until all replicas have the value, over a Unix socket.
//
//   redis_wait SOCKET SECONDS REPLICAS CONNECTIONS
//
// prints "put_rate VALUE", in operations per second of all CONNECTIONS with one operation under way
// each, and "put_latency VALUE", the median in seconds. An operation is a SET and a WAIT in one
// request. Keys have 30 bytes and are drawn from 100,000; values have 100 bytes.
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr int kKeys = 100'000;
constexpr std::size_t kValueBytes = 100;

[[noreturn]] void fail(const char* what, std::string_view why) {
  std::fprintf(stderr, "%s: %.*s\n", what, static_cast<int>(why.size()), why.data());
  std::exit(1);
}

std::int64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * std::int64_t{1'000'000'000} + time.tv_nsec;
}

class Connection {
 public:
  Connection(const char* path, int replicas) {
    const std::string count = std::to_string(replicas);
    wait_ =
        "*3\r\n$4\r\nWAIT\r\n$" + std::to_string(count.size()) + "\r\n" + count + "\r\n$1\r\n0\r\n";
    wanted_ = "+OK\r\n:" + count + "\r\n";
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (std::strlen(path) >= sizeof address.sun_path) fail("the path is too long", path);
    std::strcpy(address.sun_path, path);
    socket_ = ::socket(AF_UNIX, SOCK_STREAM, 0);
    if (socket_ < 0 ||
        ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      fail("no connection", std::strerror(errno));
  }
  int socket() const { return socket_; }
  std::int64_t began() const { return began_; }

  void begin(int key) {
    char name[31];
    std::snprintf(name, sizeof name, "key-%026d", key);
    const std::string value(kValueBytes, 'v');
    const std::string request = "*3\r\n$3\r\nSET\r\n$30\r\n" + std::string(name, 30) + "\r\n$" +
                                std::to_string(kValueBytes) + "\r\n" + value + "\r\n" + wait_;
    began_ = now_ns();
    answer_.clear();
    if (::send(socket_, request.data(), request.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(request.size()))
      fail("cannot send", std::strerror(errno));
  }

  // Takes what has come, and returns whether the operation has ended.
  bool take() {
    char bytes[256];
    const ssize_t count = ::recv(socket_, bytes, sizeof bytes, 0);
    if (count <= 0)
      fail("the server has closed the connection", count < 0 ? std::strerror(errno) : "");
    answer_.append(bytes, static_cast<std::size_t>(count));
    if (answer_ == wanted_) return true;
    if (wanted_.compare(0, answer_.size(), answer_) != 0) fail("the answer is", answer_);
    return false;
  }

 private:
  int socket_ = -1;
  std::int64_t began_ = 0;
  std::string wait_, wanted_, answer_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) fail("usage", "redis_wait SOCKET SECONDS REPLICAS CONNECTIONS");
  const double seconds = std::atof(argv[2]);
  const int replicas = std::atoi(argv[3]), connections = std::atoi(argv[4]);
  std::mt19937 random{1};
  std::uniform_int_distribution<int> draw{0, kKeys - 1};
  std::vector<Connection> all;
  std::vector<pollfd> sockets;
  for (int i = 0; i < connections; ++i) {
    all.emplace_back(argv[1], replicas);
    sockets.push_back({all.back().socket(), POLLIN, 0});
  }
  // A replica that has just come acknowledges nothing for up to a second. So the measurement begins
  // when each connection has had an answer.
  std::vector<std::int64_t> times;
  std::vector<bool> is_warm(all.size());
  std::size_t warm = 0;
  for (Connection& each : all) each.begin(draw(random));
  std::int64_t now = 0, begin = 0;
  const auto duration = static_cast<std::int64_t>(seconds * 1e9);
  while (times.empty() || now < begin + duration) {
    if (::poll(sockets.data(), sockets.size(), 10'000) <= 0)
      fail("no operation has ended within 10 s", "do all replicas run?");
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (sockets[i].revents == 0 || !all[i].take()) continue;
      now = now_ns();
      if (warm == all.size()) times.push_back(now - all[i].began());
      if (!is_warm[i] && ++warm == all.size()) begin = now;
      is_warm[i] = true;
      all[i].begin(draw(random));
    }
  }
  std::printf("put_rate %.9g\n",
              static_cast<double>(times.size()) * 1e9 / static_cast<double>(now - begin));
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  std::printf("put_latency %.9g\n", static_cast<double>(*middle) * 1e-9);
  return 0;
}
