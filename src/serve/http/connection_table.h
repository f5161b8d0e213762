// serve/http/connection_table.h -- the connections that a server has, how many it may have, and
// which idle one is closed to make room for another. Private to the HTTP server.
#pragma once
#include <array>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

namespace skiff::http {

class HttpConnection;

// A probe connection is for a client that asks how the server is, and serves one such request.
enum class ConnectionKind { kOrdinary, kProbe };

// A connection is idle until a whole request head has arrived, and again once its reply has left.
// Only an idle connection is evicted to make room, the one that has been idle longest first: bytes
// of a head that trickle in do not count, so nobody keeps a connection by sending slowly.
// Thread-safe.
class ConnectionTable {
 public:
  ConnectionTable(int max_ordinary, int max_probes);

  // Decides what a connection that is about to be added may be, and evicts an idle one if there
  // is no room: kProbe only where every ordinary connection has a request under way. Nothing if all
  // probe connections have one, too.
  std::optional<ConnectionKind> make_room();
  // Closes the connection that has been idle longest, of either kind. False if none is idle.
  bool evict_one();
  // Adds a connection of the kind that make_room() gave; it is idle.
  void add(const std::shared_ptr<HttpConnection>& connection, ConnectionKind kind);
  // The connection is idle from now on.
  void set_idle(HttpConnection* connection);
  // The connection has a request. False if it has been evicted meanwhile.
  bool set_busy(HttpConnection* connection);
  void remove(HttpConnection* connection);

  std::vector<std::shared_ptr<HttpConnection>> all() const;
  size_t size() const;

 private:
  using IdleList = std::list<HttpConnection*>;
  struct Entry {
    std::weak_ptr<HttpConnection> connection;
    ConnectionKind kind;
    std::optional<IdleList::iterator> idle;
  };
  struct Group {
    size_t max = 0, size = 0;
    IdleList idle;  // longest idle first
  };

  Group& group(ConnectionKind kind) { return groups_[static_cast<size_t>(kind)]; }
  void forget(HttpConnection* connection);
  bool evict(Group& group, std::shared_ptr<HttpConnection>* evicted);

  mutable std::mutex mutex_;
  std::array<Group, 2> groups_;                         // guarded by mutex_
  std::unordered_map<HttpConnection*, Entry> entries_;  // guarded by mutex_
};

}  // namespace skiff::http
