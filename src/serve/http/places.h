// serve/http/places.h -- the places that a server has for connections, and which connection must
// leave when all of them are taken. Private to the HTTP server.
#pragma once
#include <array>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

namespace skiff {

class HttpConnection;

// A probe place is kept for somebody who asks how the server is, and is good for one such request.
enum class HttpPlace { kOrdinary, kProbe };

// A connection is silent until a whole request head has come, and again once its reply has left.
// Only a silent connection is put out to make room, the one that has been silent longest first:
// bytes of a head that trickle in do not count, so nobody keeps a place by sending slowly.
// Thread-safe.
class HttpPlaces {
 public:
  HttpPlaces(int ordinary, int probes);

  // Finds a place for a connection that is about to come, and puts out a silent connection if
  // there is none left: a probe place is given only where every ordinary one has a request under
  // way. Nothing if these are taken as well.
  std::optional<HttpPlace> make_room();
  // Puts out the connection that has been silent longest, wherever its place is. False if none is.
  bool put_out_one();
  // The connection takes the place that make_room() found, and is silent.
  void enter(const std::shared_ptr<HttpConnection>& connection, HttpPlace place);
  // Silent from now on.
  void rest(HttpConnection* connection);
  // It has a request. False if it was put out before it could say so.
  bool work(HttpConnection* connection);
  void leave(HttpConnection* connection);

  std::vector<std::shared_ptr<HttpConnection>> all() const;
  size_t size() const;

 private:
  using Silent = std::list<HttpConnection*>;
  struct Entry {
    std::weak_ptr<HttpConnection> connection;
    HttpPlace place;
    std::optional<Silent::iterator> silent;
  };
  struct Kind {
    size_t most = 0, taken = 0;
    Silent silent;  // the longest first
  };

  Kind& kind(HttpPlace place) { return kinds_[static_cast<size_t>(place)]; }
  void forget(HttpConnection* connection);
  bool put_out(Kind& kind, std::shared_ptr<HttpConnection>* out);

  mutable std::mutex mutex_;
  std::array<Kind, 2> kinds_;                           // guarded by mutex_
  std::unordered_map<HttpConnection*, Entry> entries_;  // guarded by mutex_
};

}  // namespace skiff
