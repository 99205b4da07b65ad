#include "systems/tailwind/bindings/stores.h"

#include <pybind11/stl.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/held_flag.h"
#include "bindings/per_node.h"
#include "bindings/program/waiting_method.h"
#include "systems/tailwind/client/client.h"
#include "systems/tailwind/coordinator/coordinator.h"
#include "systems/tailwind/rpc/background.h"
#include "systems/tailwind/server.h"

namespace pyrdma::tailwind::bindings {

namespace {

namespace py = pybind11;
using pyrdma::bindings::make_owned;
using pyrdma::bindings::PerNode;

/// A node of a script's store. Its server or coordinator has a dispatch thread of its own; its
/// client runs in the calls of the script.
class StoreNode {
 public:
  StoreNode(Env& env, const Options& options) : env_(env), options_(options) { begin(0); }
  ~StoreNode() { end(); }
  StoreNode(const StoreNode&) = delete;
  StoreNode& operator=(const StoreNode&) = delete;

  /// Starts the server or the coordinator of a node that was killed and is up again, or of one that
  /// was taken for dead. Throws Error(kInvalidArgument) when it lives.
  void restart() {
    // The threads of a node that was killed just now end in the next moment.
    const auto has_ended = [this] { return !runs_.load(std::memory_order_acquire); };
    if (!env_.poll_until(has_ended, env_.now() + 10 * kMicrosecond)) {
      const std::string node = std::to_string(env_.node());
      throw Error(ErrorCode::kInvalidArgument,
                  "node is " + node + ", whose " + (server_ != nullptr ? "server" : "coordinator") +
                      " lives; kill it first, with cluster.kill(" + node + ")" +
                      (server_ != nullptr ? " or crash(" + node + ")" : ""));
    }
    end();
    client_.reset();
    is_over_ = false;
    begin(++life_);
  }
  Env& env() { return env_; }
  Server& server() {
    if (server_ == nullptr) {
      throw Error(ErrorCode::kInvalidArgument, "node " + std::to_string(env_.node()) +
                                                   " is no server; the servers are nodes 0 to " +
                                                   std::to_string(options_.servers - 1));
    }
    return *server_;
  }
  Coordinator& coordinator() { return *coordinator_; }
  bool runs() const { return runs_.load(std::memory_order_acquire); }
  std::uint64_t fill(std::uint64_t table, std::uint64_t first, std::uint64_t count,
                     std::uint32_t key_bytes, std::uint32_t value_bytes) {
    const auto serves = [&] { return runs() && !server().log().is_deposed(); };
    std::uint64_t stored = 0;
    if (serves() && server().await_table(table, env_.now() + 60 * kSecond))
      stored = server().fill(table, first, count, key_bytes, value_bytes, true);
    if (!serves()) {
      throw Error(ErrorCode::kUnavailable, "the server of node " + std::to_string(env_.node()) +
                                               " is down or was taken for dead; leave it out, or "
                                               "call restart(" +
                                               std::to_string(env_.node()) + ")");
    }
    return stored;
  }
  /// The node died long ago. Its server stays until a restart or the end, but its log is of no use:
  /// of many objects it has gigabytes. Threads of the machine may still unwind, so their logs stay.
  void release_log() {
    if (env_.cores() != 0 && server_ != nullptr && !runs() && !has_left_)
      server_->log().release_memory();
  }
  Client& client(double timeout_s) {
    // One that has not found the coordinator has published where it was: the next has a new name.
    if (client_ == nullptr)
      client_ = std::make_unique<Client>(env_, options_, clients_++, nanoseconds(timeout_s));
    return *client_;
  }
  static Time nanoseconds(double seconds) { return static_cast<Time>(seconds * 1e9); }

 private:
  void begin(std::uint32_t life) {
    const auto is_over = [this] { return is_over_.load(std::memory_order_acquire); };
    if (env_.node() < options_.servers) {
      server_ = std::make_unique<Server>(env_, options_, life);
      has_left_ = false;
      spawn([this, is_over] {
        try {
          server_->run(is_over);
        } catch (const Error&) {
          has_left_ = true;
          throw;
        }
        has_left_ = true;
      });
    } else if (env_.node() == options_.coordinator) {
      coordinator_ = std::make_unique<Coordinator>(env_, options_);
      spawn([this, is_over] { coordinator_->run(is_over); });
    }
  }
  void spawn(const std::function<void()>& run) {
    runs_.store(true, std::memory_order_release);
    // The flag falls with the thread's function, which may be killed before it runs. The caller has
    // made the other threads, a coordinator's are three, and has a core of its own.
    thread_ = env_.spawn(
        "tailwind/dispatch", [run, flag = std::make_shared<HeldFlag>(&runs_)] { run(); },
        core_beside(env_, options_.workers + 3));
  }
  void end() {
    is_over_.store(true, std::memory_order_release);
    if (server_ != nullptr) env_.notify(server_->transport().watch());
    if (coordinator_ != nullptr) env_.notify(coordinator_->dispatcher().transport().watch());
    thread_.reset();
    server_.reset();
    coordinator_.reset();
  }

  Env& env_;
  const Options options_;
  std::uint32_t life_ = 0;
  std::uint32_t clients_ = 0;  // that there have been
  std::atomic<bool> is_over_{false}, runs_{false};
  bool has_left_ = false;  // the server has ended, but its other threads live
  std::unique_ptr<Server> server_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<Thread> thread_;
};
using Stores = PerNode<StoreNode>;

std::shared_ptr<Stores> make_stores(std::shared_ptr<pyrdma::bindings::Session> session,
                                    const py::dict& given) {
  Options options;
  options.name = "tailwind/python/" + std::to_string(session->next_run());
  const auto take = [&](const char* name, auto& value) {
    if (given.contains(name)) value = given[name].cast<std::remove_reference_t<decltype(value)>>();
  };
  int replication = 1, durability = 0, placement = 0;
  take("replication", replication);
  take("durability", durability);
  take("placement", placement);
  options.replication = static_cast<Replication>(replication);
  options.durability = static_cast<Durability>(durability);
  options.placement = static_cast<Placement>(placement);
  take("servers", options.servers);
  options.coordinator = options.servers;
  take("replicas", options.replicas);
  take("workers", options.workers);
  take("group_commit", options.group_commit);
  take("log_bytes", options.log_bytes);
  take("keys", options.keys);
  take("segment_bytes", options.segment_bytes);
  take("buffers", options.buffers);
  take("partition_bytes", options.partition_bytes);
  take("partition_records", options.partition_records);
  take("lease_ns", options.lease);
  take("ping_interval_ns", options.ping_interval);
  take("ping_timeout_ns", options.ping_timeout);
  return make_owned<Stores>(
      std::move(session), [options](Env& env) { return std::make_unique<StoreNode>(env, options); },
      -1);
}

ByteView view_of(const std::string& text) { return std::as_bytes(std::span(text)); }

/// Rows (phase, ns), in order; the times are the coordinator's clock.
py::dict row_of(const RecoveryReport& report) {
  py::dict row;
  row["node"] = report.dead.node;
  row["life"] = report.dead.life;
  row["suspected_ns"] = report.suspected;
  row["declared_ns"] = report.declared;
  row["read_ns"] = report.read;
  row["outwaited_ns"] = report.outwaited;
  row["assigned_ns"] = report.assigned;
  row["ended_ns"] = report.ended;
  row["attempts"] = report.attempts;
  row["partitions"] = report.partitions;
  row["objects"] = report.objects;
  row["bytes"] = report.bytes;
  row["replicas"] = report.replicas;
  row["problem"] = report.problem;
  row["lost"] = report.lost;
  return row;
}

py::tuple version_of(const Result& result) {
  return py::make_tuple(static_cast<int>(result.status), result.version);
}

py::tuple object_of(const Result& result) {
  return py::make_tuple(
      static_cast<int>(result.status), result.version,
      py::bytes(reinterpret_cast<const char*>(result.value.data()), result.value.size()));
}

py::list rows_of(const std::vector<RecoveryReport>& reports) {
  py::list rows;
  for (const RecoveryReport& report : reports) rows.append(row_of(report));
  return rows;
}

py::list tablets_of(const ClusterView& view) {
  py::list rows;
  for (const Tablet& tablet : view.tablets) {
    rows.append(py::make_tuple(tablet.range.table, tablet.range.first, tablet.range.last,
                               tablet.owner.node));
  }
  return rows;
}

std::vector<std::pair<std::string, double>> counters_of(StoreNode& node) {
  Server& server = node.server();
  const CpuTimes times = server.dispatcher().times();
  const ReplicationCounters log = server.log().counters();
  const BackupCounters backup = server.backup().counters();
  const auto number = [](auto value) { return static_cast<double>(value); };
  return {{"dispatch_ns", number(times.dispatch)},
          {"worker_ns", number(times.workers)},
          {"replication_ns", number(times.replicating)},
          {"requests", number(times.requests)},
          {"objects", number(server.objects().keys())},
          {"appends", number(log.appends)},
          {"replication_writes", number(log.writes)},
          {"replication_rpcs", number(log.write_rpcs)},
          {"control_rpcs", number(log.control_rpcs)},
          {"replicated_bytes", number(log.bytes)},
          {"log_used_bytes", number(server.log().used_bytes())},
          {"replicas_opened", number(backup.opens)},
          {"replicas_flushed", number(backup.flushes)},
          {"replicas_damaged", number(backup.damaged)},
          {"opens_refused", number(backup.refused)},
          {"connections", number(server.transport().connections())}};
}

}  // namespace

void bind_stores(py::module_& module) {
  py::class_<Stores, std::shared_ptr<Stores>> stores(module, "Stores");
  const auto def = [&](const char* name, auto work, auto... convert) {
    pyrdma::bindings::def_waiting(stores, name, work, convert...);
  };
  stores.def(py::init(&make_stores));
  def("create_table", [](Stores& self, NodeId node, const std::string& name,
                         const std::vector<NodeId>& owners, std::size_t servers, double timeout_s) {
    return self.on(node, [&](StoreNode& each) {
      Client& client = each.client(timeout_s);
      client.await_servers(servers);
      return client.create_table(name, owners);
    });
  });
  def(
      "write",
      [](Stores& self, NodeId node, std::uint64_t table, const std::string& key,
         const std::string& value, double timeout_s) {
        return self.on(node, [&](StoreNode& each) {
          return each.client(timeout_s).write(table, view_of(key), view_of(value));
        });
      },
      &version_of);
  def(
      "remove",
      [](Stores& self, NodeId node, std::uint64_t table, const std::string& key, double timeout_s) {
        return self.on(node, [&](StoreNode& each) {
          return each.client(timeout_s).remove(table, view_of(key));
        });
      },
      &version_of);
  def(
      "read",
      [](Stores& self, NodeId node, std::uint64_t table, const std::string& key, double timeout_s) {
        return self.on(node, [&](StoreNode& each) {
          return each.client(timeout_s).read(table, view_of(key));
        });
      },
      &object_of);
  def("fill", [](Stores& self, NodeId node, std::uint64_t table, std::uint64_t first,
                 std::uint64_t count, std::uint32_t key_bytes, std::uint32_t value_bytes) {
    return self.on(node, [&](StoreNode& each) {
      return each.fill(table, first, count, key_bytes, value_bytes);
    });
  });
  def("runs", [](Stores& self, NodeId node) {
    return self.on(node, [](StoreNode& each) { return each.runs(); });
  });
  def("now", [](Stores& self, NodeId node) {
    return self.on(node, [](StoreNode& each) { return each.env().now(); });
  });
  def("restart",
      [](Stores& self, NodeId node) { self.on(node, [](StoreNode& each) { each.restart(); }); });
  def(
      "await_recovery",
      [](Stores& self, NodeId coordinator, NodeId dead, Time since, double timeout_s) {
        return self.on(coordinator, [&](StoreNode& each) {
          RecoveryReport found;
          const auto has_ended = [&] {
            for (const RecoveryReport& report : each.coordinator().recoveries()) {
              if (report.dead.node != dead || report.declared < since) continue;
              if (report.declared != 0) self.at(dead).release_log();
              found = report;
              return report.ended != 0;
            }
            return false;
          };
          const Time deadline = each.env().now() + StoreNode::nanoseconds(timeout_s);
          while (!has_ended() && each.env().now() < deadline)
            each.env().sleep_until(each.env().now() + 100 * kMicrosecond);
          return found;
        });
      },
      &row_of);
  def(
      "recoveries",
      [](Stores& self, NodeId coordinator) {
        return self.on(coordinator,
                       [](StoreNode& each) { return each.coordinator().recoveries(); });
      },
      &rows_of);
  def(
      "tablets",
      [](Stores& self, NodeId coordinator) {
        return self.on(coordinator, [](StoreNode& each) { return each.coordinator().view(); });
      },
      &tablets_of);
  def("problems", [](Stores& self, NodeId node) {
    return self.on(node, [](StoreNode& each) { return each.server().backup().problems(); });
  });
  def("counters", [](Stores& self, NodeId node) {
    return self.on(node, [](StoreNode& each) { return counters_of(each); });
  });
}

}  // namespace pyrdma::tailwind::bindings
