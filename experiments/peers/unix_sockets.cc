// Connections of Unix-domain sockets between two processes, each on a CPU of its own.
//
//   unix_sockets SOCKET SECONDS CLIENT_CPU SERVER_CPU
//
// prints "connect_rate VALUE", in connections per second. The client makes a socket, connects it,
// waits for the byte that the server writes when it has accepted, and closes it, one after another.
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "%s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

std::int64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * std::int64_t{1'000'000'000} + time.tv_nsec;
}

void pin(int cpu) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(static_cast<unsigned>(cpu), &cpus);
  if (sched_setaffinity(0, sizeof cpus, &cpus) != 0) fail("sched_setaffinity");
}

int make_socket() {
  const int made = socket(AF_UNIX, SOCK_STREAM, 0);
  if (made < 0) fail("socket");
  return made;
}

[[noreturn]] void serve(int listening) {
  for (;;) {
    const int accepted = accept(listening, nullptr, nullptr);
    if (accepted < 0) fail("accept");
    const char is_here = 1;
    if (write(accepted, &is_here, 1) != 1) fail("write");
    close(accepted);
  }
}

void connect_once(const sockaddr_un& to) {
  const int made = make_socket();
  if (connect(made, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) fail("connect");
  char is_here = 0;
  if (read(made, &is_here, 1) != 1) fail("read");
  close(made);
}

}  // namespace

int main(int argc, char** argv) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (argc != 5 || std::strlen(argv[1]) >= sizeof address.sun_path) {
    std::fprintf(stderr, "usage: unix_sockets SOCKET SECONDS CLIENT_CPU SERVER_CPU\n");
    return 2;
  }
  std::strcpy(address.sun_path, argv[1]);
  const int listening = make_socket();
  if (bind(listening, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    fail("bind");
  if (listen(listening, 16) != 0) fail("listen");
  const pid_t child = fork();
  if (child < 0) fail("fork");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pin(std::atoi(argv[4]));
    serve(listening);
  }
  close(listening);  // a server that fails ends the client's next connect
  pin(std::atoi(argv[3]));
  const auto seconds = static_cast<std::int64_t>(std::atof(argv[2]) * 1e9);
  for (int i = 0; i < 100; ++i) connect_once(address);
  const std::int64_t start = now_ns();
  std::int64_t now = start, connections = 0;
  for (; now < start + seconds; now = now_ns(), ++connections) connect_once(address);
  std::printf("connect_rate %.9g\n",
              static_cast<double>(connections) / (static_cast<double>(now - start) * 1e-9));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return 0;
}
