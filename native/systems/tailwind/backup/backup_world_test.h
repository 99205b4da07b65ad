// Test helper: a backup on node 0 of a simulated cluster, and a primary on node 1 that writes to
// its buffers. The test's own thread drives both.
#pragma once
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "env/sim/sim_env.h"
#include "env/sim/sim_storage.h"
#include "fabric/sim/faulty_world_test.h"
#include "systems/tailwind/backup/backup_service.h"
#include "systems/tailwind/log/replica_test.h"
#include "systems/tailwind/log/scan.h"

namespace pyrdma::tailwind {

inline Options backup_options() {
  Options options;
  options.segment_bytes = 16U << 10;
  options.buffers = 4;
  return options;
}

/// The begin of a segment: its name and a digest of all segments up to it.
inline Replica segment(ServerId primary, std::uint64_t number, std::size_t capacity = 16U << 10) {
  Replica replica(capacity);
  EntryHeader header;
  header.type = EntryType::kSegment;
  header.table = primary.number();
  header.version = number;
  replica.append(header, {}, {});
  header.type = EntryType::kDigest;
  std::string digest;
  for (std::uint64_t each = 1; each <= number; ++each)
    digest.append(reinterpret_cast<const char*>(&each), sizeof each);
  replica.append(header, {}, digest);
  return replica;
}
inline ByteView written(const Replica& replica) { return replica.bytes().first(replica.end()); }

inline OpenRequest open_request(ReplicaName name, ByteView data) {
  OpenRequest request;
  request.name = name;
  request.data = data;
  return request;
}
inline CloseRequest close_request(ReplicaName name, const Replica& replica) {
  const Scan found = scan(written(replica));
  return {name, static_cast<std::uint32_t>(found.valid), found.checksum,
          static_cast<std::uint32_t>(found.entries)};
}

class BackupWorld {
 public:
  static constexpr ServerId kPrimary{1, 0};

  explicit BackupWorld(const Options& wanted = backup_options(), Bugs bugs = {},
                       const std::map<std::string, double>& faults = {})
      : options(wanted), world(faults, 2, fabric::sim::MemoryModel::strong()), bugs_(bugs) {
    start();
    primary = std::make_unique<fabric::Side>(world, 1, options.segment_bytes + 64);
  }
  Env& env() { return world.env(0); }
  SimStorage& disk() { return dynamic_cast<SimStorage&>(env().storage()); }

  void start() {
    domain = env().device().create_protection_domain();
    service = std::make_unique<BackupService>(env(), *domain, options, bugs_);
  }
  void stop() {
    service.reset();
    domain.reset();
  }
  /// The node of the backup crashes and starts again.
  void crash(fabric::sim::Crash crash) {
    world.cluster.kill(0, crash);
    stop();
    world.cluster.restart(0);
    wait(kMillisecond);
    start();
  }
  void wait(Time time) { primary_env().sleep_until(primary_env().now() + time); }
  Env& primary_env() { return world.env(1); }

  /// The primary writes to a buffer, over a connection of its own.
  fabric::Status rdma_write(const fabric::RemoteRegion& to, ByteView data, std::uint64_t offset) {
    using fabric::CompletionQueue;
    const std::unique_ptr<CompletionQueue> queue = env().device().create_completion_queue(8);
    const auto target = env().device().create_queue_pair(*domain, *queue, *queue);
    const auto qp = primary->queue_pair();
    qp->connect(target->address());
    target->connect(qp->address());
    std::memcpy(primary->memory->data(), data.data(), data.size());
    EXPECT_TRUE(
        qp->write(primary->memory->sge(0, static_cast<std::uint32_t>(data.size())), to, offset));
    return primary->await_send().status;
  }
  /// Opens a replica with all of `replica`, and returns the buffer.
  fabric::RemoteRegion open(ReplicaName name, const Replica& replica, ServerId from = kPrimary) {
    const OpenAnswer answer = service->open(from, open_request(name, written(replica)));
    EXPECT_EQ(answer.status, BackupStatus::kOk);
    return answer.buffer;
  }
  BackupStatus close(ReplicaName name, const Replica& replica, ServerId from = kPrimary) {
    return service->close(from, close_request(name, replica));
  }
  /// Waits until so many replicas have been flushed and so many buffers made anew.
  [[nodiscard]] bool await(std::uint64_t flushes, std::uint64_t zeroed) {
    return primary_env().poll_until(
        [&] {
          const BackupCounters counters = service->counters();
          return counters.flushes >= flushes && counters.zeroed >= zeroed;
        },
        primary_env().now() + kSecond);
  }
  /// What is here of a dead primary, by segment.
  std::map<std::uint64_t, HeldReplica> held(ServerId dead = kPrimary) {
    std::map<std::uint64_t, HeldReplica> replicas;
    for (HeldReplica& each : service->start_reading(dead).replicas)
      EXPECT_TRUE(replicas.emplace(each.segment, each).second);
    return replicas;
  }

  Options options;
  fabric::sim::FaultyWorld world;
  std::unique_ptr<fabric::ProtectionDomain> domain;
  std::unique_ptr<BackupService> service;
  std::unique_ptr<fabric::Side> primary;

 private:
  Bugs bugs_;
};

}  // namespace pyrdma::tailwind
