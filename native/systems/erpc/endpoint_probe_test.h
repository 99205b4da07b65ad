// The whole state of an endpoint, for searches that must know when they have seen it
// (check/explore.h).
#pragma once
#include <string>
#include <string_view>

#include "check/explore.h"
#include "systems/erpc/endpoint.h"

namespace pyrdma::erpc {

class EndpointProbe {
 public:
  /// Adds what the endpoint's future depends on. Times count from `now` on. Left out: the rate
  /// control, which must be off, the wheel, which then is empty, and places in memory.
  static void add(const Endpoint& endpoint, Time now, check::StateHash& hash) {
    add_all(hash, endpoint.token_, endpoint.incarnation_, endpoint.client_count_,
            endpoint.server_count_, endpoint.sessions_made_, endpoint.scan_at_ - now,
            endpoint.manage_at_ - now, endpoint.has_sent_again_, endpoint.server_index_.size(),
            endpoint.served_.size());
    for (const auto& each : endpoint.failed_) add_all(hash, each.request.tag, each.outcome);
    for (const auto& [name, known] : endpoint.known_)
      add_all(hash, name.first, known.incarnations, known.connected - now);
    for (const auto& session : endpoint.clients_) add(*session, now, hash);
    for (const auto& session : endpoint.servers_) add(*session, now, hash);
  }

  /// What must always hold inside an endpoint; empty if it does.
  static std::string wrong(const Endpoint& endpoint) {
    for (const auto& session : endpoint.clients_) {
      if (session->state != SessionState::kConnected) continue;
      std::uint32_t credits = session->credits;
      for (const ClientSlot& slot : session->slots) {
        if (slot.is_active) credits += slot.sent - slot.received;
      }
      if (credits != endpoint.options_.credits)
        return "a session has " + std::to_string(credits) + " credits and packets under way, of " +
               std::to_string(endpoint.options_.credits);
    }
    for (const auto& one : endpoint.servers_) {
      for (const auto& other : endpoint.servers_) {
        if (one->state == SessionState::kConnected && other->state == SessionState::kConnected &&
            one->client == other->client && one->client_token != other->client_token)
          return "a server has sessions of two endpoints of one name";
      }
    }
    return "";
  }

 private:
  template <class... Words>
  static void add_all(check::StateHash& hash, Words... words) {
    (hash.add(static_cast<std::uint64_t>(words)), ...);
  }
  static void add_text(check::StateHash& hash, std::string_view text) {
    hash.add(std::as_bytes(std::span(text)));
  }
  static void add(const ClientSession& session, Time now, check::StateHash& hash) {
    add_all(hash, session.state, session.generation, session.number);
    if (session.state == SessionState::kFree) return;
    add_all(hash, session.credits, session.free_slots, session.stalled_slots, session.turn,
            session.peer, session.source, session.heard - now, session.backlog.size(),
            session.server_session, session.server_generation, session.server_token,
            session.first_request, session.incarnation, session.connect_by - now,
            session.asked - now, session.insists_from - now, session.unanswered);
    add_text(hash, session.why_lost);
    add_text(hash, session.refusal);
    for (const ClientSlot& slot : session.slots) {
      add_all(hash, slot.is_active, slot.request_number);
      if (!slot.is_active) continue;
      add_all(hash, slot.call.tag, slot.sent, slot.received, slot.sent_once, slot.request_packets,
              slot.response_packets, slot.response_size, slot.in_wheel, slot.retransmissions,
              slot.progress - now);
      if (slot.response_packets != 0) hash.add(slot.call.response->bytes());
    }
  }
  static void add(const ServerSession& session, Time now, check::StateHash& hash) {
    add_all(hash, session.state, session.generation);
    if (session.state == SessionState::kFree) return;
    add_all(hash, session.peer, session.source, session.heard - now, session.running,
            session.client_session, session.client_generation, session.client_token,
            session.first_request, session.unanswered);
    for (const ServerSlot& slot : session.slots) {
      add_all(hash, slot.request_number, slot.state, slot.is_answered, slot.is_refused, slot.type,
              slot.size, slot.received, slot.request_packets, slot.response_packets);
      if (slot.request != nullptr) hash.add(slot.request->bytes());
      if (slot.response != nullptr) hash.add(slot.response->bytes());
    }
  }
};

}  // namespace pyrdma::erpc
