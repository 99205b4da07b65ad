// The number of messages that SimGrid simulates per second of CPU time. Pairs of actors, each on a
// host of its own behind one switch, send a 64-byte message back and forth.
//
//   ping_pong HOSTS ROUND_TRIPS [--cfg=KEY:VALUE ...]
//
// prints "message_rate VALUE": two messages per round trip and pair, over the CPU time of
// Engine::run alone (the platform is built before).
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <simgrid/s4u.hpp>
#include <simgrid/version.h>
#include <string>
#include <vector>

namespace sg4 = simgrid::s4u;

namespace {

constexpr double kMessageBytes = 64;

sg4::NetZone* star() {
#if SIMGRID_VERSION_MAJOR >= 4  // a zone without a parent has no CPU model there
  return sg4::Engine::get_instance()->get_netzone_root()->add_netzone_star("star");
#else
  return sg4::create_star_zone("star");
#endif
}

void build_platform(int hosts) {
  auto* zone = star();
  for (int i = 0; i < hosts; ++i) {
    const std::string name = std::to_string(i);
    const auto* host = zone->create_host("host" + name, 1e9)->seal();
    const auto* up = zone->create_link("up" + name, 100e9 / 8)->set_latency(0.5e-6)->seal();
    const auto* down = zone->create_link("down" + name, 100e9 / 8)->set_latency(0.5e-6)->seal();
    // A route of a star has one direction: out of the host over `up`, into it over `down`.
    zone->add_route(host->get_netpoint(), nullptr, nullptr, nullptr, {sg4::LinkInRoute(up)}, false);
    zone->add_route(nullptr, host->get_netpoint(), nullptr, nullptr, {sg4::LinkInRoute(down)},
                    false);
  }
  zone->seal();
}

void ping(sg4::Mailbox* out, sg4::Mailbox* in, long round_trips) {
  int payload = 0;
  for (long i = 0; i < round_trips; ++i) {
    out->put(&payload, kMessageBytes);
    in->get<int>();
  }
}

void pong(sg4::Mailbox* in, sg4::Mailbox* out, long round_trips) {
  for (long i = 0; i < round_trips; ++i) out->put(in->get<int>(), kMessageBytes);
}

}  // namespace

int main(int argc, char** argv) {
  sg4::Engine engine(&argc, argv);
  if (argc != 3) {
    std::fprintf(stderr, "usage: ping_pong HOSTS ROUND_TRIPS [--cfg=KEY:VALUE ...]\n");
    return 2;
  }
  const int hosts = std::atoi(argv[1]);
  const long round_trips = std::atol(argv[2]);
  build_platform(hosts);
  for (int pair = 0; pair < hosts / 2; ++pair) {
    auto* there = sg4::Mailbox::by_name("there" + std::to_string(pair));
    auto* back = sg4::Mailbox::by_name("back" + std::to_string(pair));
    auto host = [](int index) { return sg4::Host::by_name("host" + std::to_string(index)); };
    sg4::Actor::create("ping", host(2 * pair), ping, there, back, round_trips);
    sg4::Actor::create("pong", host(2 * pair + 1), pong, there, back, round_trips);
  }
  const std::clock_t start = std::clock();
  engine.run();
  const double elapsed = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  const double messages = 2.0 * static_cast<double>(round_trips) * (hosts / 2);
  std::printf("message_rate %.9g\n", messages / elapsed);
  return 0;
}
