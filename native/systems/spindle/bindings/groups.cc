#include "systems/spindle/bindings/groups.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/per_node.h"
#include "bindings/program/waiting_method.h"
#include "systems/spindle/inbox_group.h"

namespace pyrdma::spindle::bindings {

namespace {

namespace py = pybind11;
using pyrdma::bindings::def_waiting;
using pyrdma::bindings::make_owned;
using pyrdma::bindings::PerNode;
using Groups = PerNode<InboxGroup>;

/// Members, senders, window, max_message, whether the order is total.
using Spec =
    std::tuple<std::vector<NodeId>, std::vector<NodeId>, std::uint32_t, std::uint32_t, bool>;

std::shared_ptr<Groups> make_groups(std::shared_ptr<pyrdma::bindings::Session> session, int preset,
                                    const std::vector<Spec>& specs,
                                    const std::vector<NodeId>& founders, double suspicion_s) {
  const Options options =
      script_options(preset, "python/" + std::to_string(session->next_run()), suspicion_s);
  std::vector<SubgroupSpec> subgroups;
  for (const auto& [members, senders, window, max_message, is_total] : specs) {
    subgroups.push_back(
        {members, senders, window, max_message, is_total ? Order::kTotal : Order::kUnordered});
  }
  const auto make = [=](Env& env) {
    auto made = std::make_unique<InboxGroup>(env, options, subgroups);
    if (std::ranges::find(founders, env.node()) != founders.end()) made->group().found(founders);
    return made;
  };
  return make_owned<Groups>(std::move(session), make, -1);
}

py::list rows_of(const std::vector<InboxGroup::Delivered>& messages) {
  py::list found;
  for (const InboxGroup::Delivered& each : messages) {
    found.append(py::make_tuple(
        each.sender, each.view, each.sequence,
        py::bytes(reinterpret_cast<const char*>(each.bytes.data()), each.bytes.size())));
  }
  return found;
}

/// Returns rows (subgroup, counter, value, unit), and rows (subgroup, stage, size, batches).
py::list table(Groups& self, NodeId node, std::uint32_t subgroup) {
  const auto rows =
      on(self, node, [&](InboxGroup& group) { return group.group().table(subgroup); });
  py::list found;
  for (const Group::TableRow& row : rows)
    found.append(py::make_tuple(row.node, row.is_sender, row.sent, row.received, row.delivered));
  return found;
}

std::pair<py::list, py::list> counters(Groups& self, NodeId node) {
  const Group::Counters found =
      on(self, node, [](InboxGroup& group) { return group.group().counters(); });
  py::list rows, sizes;
  for (std::size_t g = 0; g < found.subgroups.size(); ++g) {
    const SubgroupCounters& each = found.subgroups[g];
    const std::pair<const char*, std::uint64_t> values[] = {
        {"pushes", each.pushes},
        {"nulls", each.nulls},
        {"null_iterations", each.null_iterations},
        {"delivered", each.delivered},
        {"sent", each.sends.messages()}};
    for (const auto& [name, value] : values) rows.append(py::make_tuple(g, name, value, "count"));
    rows.append(py::make_tuple(g, "delivered_bytes", each.delivered_bytes, "bytes"));
    const std::pair<const char*, const BatchSizes*> stages[] = {
        {"send", &each.sends}, {"receive", &each.receives}, {"delivery", &each.deliveries}};
    for (const auto& [stage, batches] : stages) {
      for (std::size_t size = 1; size < batches->counts().size(); ++size) {
        if (batches->counts()[size] != 0)
          sizes.append(py::make_tuple(g, stage, size, batches->counts()[size]));
      }
    }
  }
  return {rows, sizes};
}

}  // namespace

void bind_groups(py::module_& module) {
  py::class_<Groups, std::shared_ptr<Groups>> groups(module, "Groups");
  groups.def(py::init(&make_groups))
      .def("events",
           [](Groups& self, NodeId node) {
             std::vector<std::tuple<Time, std::uint64_t, std::vector<NodeId>>> rows;
             for (const auto& each :
                  on(self, node, [](InboxGroup& group) { return group.events(); }))
               rows.emplace_back(each.time, each.view, each.members);
             return rows;
           })
      .def("counters", &counters)
      .def("table", &table);
  def_waiting(groups, "send",
              [](Groups& self, NodeId node, std::uint32_t subgroup,
                 const std::vector<std::string>& messages, double timeout_s) {
                on(self, node, [&](InboxGroup& group) {
                  group.mailbox().send(group.group(), subgroup, messages, nanoseconds(timeout_s));
                });
              });
  def_waiting(
      groups, "receive",
      [](Groups& self, NodeId node, std::uint32_t subgroup, std::size_t most, double timeout_s) {
        return on(self, node, [&](InboxGroup& group) {
          return group.mailbox().take(subgroup, most, nanoseconds(timeout_s));
        });
      },
      &rows_of);
  def_waiting(groups, "standing", [](Groups& self, NodeId node) {
    return std::string(
        on(self, node, [](InboxGroup& group) { return to_string(group.group().standing()); }));
  });
  def_waiting(groups, "join", [](Groups& self, NodeId node, const std::vector<NodeId>& contacts) {
    on(self, node, [&](InboxGroup& group) { group.group().join(contacts); });
  });
  def_waiting(groups, "leave", [](Groups& self, NodeId node, double timeout_s) {
    on(self, node, [&](InboxGroup& group) { group.group().leave(nanoseconds(timeout_s)); });
  });
}

}  // namespace pyrdma::spindle::bindings
