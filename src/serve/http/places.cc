#include "serve/http/places.h"

#include "serve/http/connection.h"

namespace skiff {

HttpPlaces::HttpPlaces(int ordinary, int probes) {
  kind(HttpPlace::kOrdinary).most = static_cast<size_t>(ordinary);
  kind(HttpPlace::kProbe).most = static_cast<size_t>(probes);
}

// With mutex_ held.
void HttpPlaces::forget(HttpConnection* connection) {
  const auto found = entries_.find(connection);
  if (found == entries_.end()) return;
  Kind& of = kind(found->second.place);
  if (found->second.silent) of.silent.erase(*found->second.silent);
  --of.taken;
  entries_.erase(found);
}

// With mutex_ held. `out` is the connection to close, which must not die while the mutex is held:
// its destructor comes here. Null if it was dying already.
bool HttpPlaces::put_out(Kind& kind, std::shared_ptr<HttpConnection>* out) {
  if (kind.silent.empty()) return false;
  HttpConnection* longest = kind.silent.front();
  *out = entries_.at(longest).connection.lock();
  forget(longest);
  return true;
}

std::optional<HttpPlace> HttpPlaces::make_room() {
  std::shared_ptr<HttpConnection> out;
  std::optional<HttpPlace> found;
  {
    std::lock_guard lock(mutex_);
    for (const HttpPlace place : {HttpPlace::kOrdinary, HttpPlace::kProbe}) {
      Kind& of = kind(place);
      if (of.taken >= of.most && !put_out(of, &out)) continue;
      found = place;
      break;
    }
  }
  if (out) out->close();
  return found;
}

bool HttpPlaces::put_out_one() {
  std::shared_ptr<HttpConnection> out;
  bool found = false;
  {
    std::lock_guard lock(mutex_);
    for (Kind& of : kinds_)
      if ((found = put_out(of, &out))) break;
  }
  if (out) out->close();
  return found;
}

void HttpPlaces::enter(const std::shared_ptr<HttpConnection>& connection, HttpPlace place) {
  std::lock_guard lock(mutex_);
  Kind& of = kind(place);
  Entry& entry = entries_[connection.get()] = {connection, place, std::nullopt};
  ++of.taken;
  of.silent.push_back(connection.get());
  entry.silent = std::prev(of.silent.end());
}

void HttpPlaces::rest(HttpConnection* connection) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(connection);
  if (found == entries_.end() || found->second.silent) return;
  Silent& silent = kind(found->second.place).silent;
  silent.push_back(connection);
  found->second.silent = std::prev(silent.end());
}

bool HttpPlaces::work(HttpConnection* connection) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(connection);
  if (found == entries_.end()) return false;
  if (auto silent = std::exchange(found->second.silent, std::nullopt))
    kind(found->second.place).silent.erase(*silent);
  return true;
}

void HttpPlaces::leave(HttpConnection* connection) {
  std::lock_guard lock(mutex_);
  forget(connection);
}

std::vector<std::shared_ptr<HttpConnection>> HttpPlaces::all() const {
  std::vector<std::shared_ptr<HttpConnection>> alive;
  std::lock_guard lock(mutex_);
  alive.reserve(entries_.size());
  for (const auto& [key, entry] : entries_)
    if (auto connection = entry.connection.lock()) alive.push_back(std::move(connection));
  return alive;
}

size_t HttpPlaces::size() const {
  std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace skiff
