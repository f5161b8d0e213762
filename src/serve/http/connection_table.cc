#include "serve/http/connection_table.h"

#include "serve/http/connection.h"

namespace skiff::http {

ConnectionTable::ConnectionTable(int max_ordinary, int max_probes) {
  group(ConnectionKind::kOrdinary).max = static_cast<size_t>(max_ordinary);
  group(ConnectionKind::kProbe).max = static_cast<size_t>(max_probes);
}

// With mutex_ held.
void ConnectionTable::forget(HttpConnection* connection) {
  const auto found = entries_.find(connection);
  if (found == entries_.end()) return;
  Group& from = group(found->second.kind);
  if (found->second.idle) from.idle.erase(*found->second.idle);
  --from.size;
  entries_.erase(found);
}

// With mutex_ held. The caller closes `evicted` after unlocking and keeps it alive until then: its
// destructor locks the mutex. Null if the connection was already being destroyed.
bool ConnectionTable::evict(Group& group, std::shared_ptr<HttpConnection>* evicted) {
  if (group.idle.empty()) return false;
  HttpConnection* longest = group.idle.front();
  *evicted = entries_.at(longest).connection.lock();
  forget(longest);
  return true;
}

std::optional<ConnectionKind> ConnectionTable::make_room() {
  std::shared_ptr<HttpConnection> evicted;
  std::optional<ConnectionKind> found;
  {
    std::lock_guard lock(mutex_);
    for (const ConnectionKind kind : {ConnectionKind::kOrdinary, ConnectionKind::kProbe}) {
      Group& to = group(kind);
      if (to.size >= to.max && !evict(to, &evicted)) continue;
      found = kind;
      break;
    }
  }
  if (evicted) evicted->close();
  return found;
}

bool ConnectionTable::evict_one() {
  std::shared_ptr<HttpConnection> evicted;
  bool found = false;
  {
    std::lock_guard lock(mutex_);
    for (Group& group : groups_) {
      found = evict(group, &evicted);
      if (found) break;
    }
  }
  if (evicted) evicted->close();
  return found;
}

void ConnectionTable::add(const std::shared_ptr<HttpConnection>& connection, ConnectionKind kind) {
  std::lock_guard lock(mutex_);
  Group& to = group(kind);
  Entry& entry = entries_[connection.get()] = {connection, kind, std::nullopt};
  ++to.size;
  to.idle.push_back(connection.get());
  entry.idle = std::prev(to.idle.end());
}

void ConnectionTable::set_idle(HttpConnection* connection) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(connection);
  if (found == entries_.end() || found->second.idle) return;
  IdleList& idle = group(found->second.kind).idle;
  idle.push_back(connection);
  found->second.idle = std::prev(idle.end());
}

bool ConnectionTable::set_busy(HttpConnection* connection) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(connection);
  if (found == entries_.end()) return false;
  if (auto idle = std::exchange(found->second.idle, std::nullopt))
    group(found->second.kind).idle.erase(*idle);
  return true;
}

void ConnectionTable::remove(HttpConnection* connection) {
  std::lock_guard lock(mutex_);
  forget(connection);
}

std::vector<std::shared_ptr<HttpConnection>> ConnectionTable::all() const {
  std::vector<std::shared_ptr<HttpConnection>> alive;
  std::lock_guard lock(mutex_);
  alive.reserve(entries_.size());
  for (const auto& [key, entry] : entries_)
    if (auto connection = entry.connection.lock()) alive.push_back(std::move(connection));
  return alive;
}

size_t ConnectionTable::size() const {
  std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace skiff::http
