// serve/queue/store.h -- the store that instances share: which requests wait, who computes which
// one and until when, and an inbox for each instance.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "serve/queue/messages.h"

namespace skiff::queue {

struct StoreConfig {
  std::string host = "127.0.0.1";
  int port = 6379;
  int db = 0;
  std::string password;  // empty: none
  // Instances with the same topic and the same model share requests, and only these.
  std::string topic = "default", model;
  std::string instance;          // this one's name among them, unique
  double request_seconds = 900;  // after this long without a sign of life a request is forgotten
  // How long an instance has a request that it took, from its last sign of life on, and how long an
  // instance counts as alive.
  double lease_seconds = 10;
  // Requests are taken from instances with at least this many unfinished ones, and from this one.
  int min_load = 3;
  int load_shards = 1;  // the loads of all instances lie in so many sorted sets
};

// A request that was taken: one's own has the number 0 and no bytes, and is no longer in the store.
struct Taken {
  Lease lease;
  std::string request;
};

// A piece on its way to where its request came in.
struct Outgoing {
  Lease lease;
  std::string piece;  // see write_piece()
  bool last = false;
};

// What the store knows of a request of this instance.
struct Seen {
  enum class Standing {
    kGone,     // nothing
    kWaits,    // nobody computes it
    kHeld,     // an instance does, by the lease `number`
    kExpired,  // an instance does, and has shown no sign of life
  };
  Standing standing = Standing::kGone;
  int64_t number = 0;
};

// Every call goes to the store and back, and fails if that is impossible; then only connect()
// helps. All calls but receive() are for one thread, and receive() for another. Times are those of
// the store's clock, so clocks of instances need not agree.
class Store {
 public:
  virtual ~Store() = default;

  // kInvalid for what another try will not mend: a wrong password or database.
  virtual Status connect() = 0;
  // Puts a request of this instance behind those that wait. The same id twice is put once. `load`
  // is the number of its unfinished requests.
  virtual Status put(const std::string& id, const std::string& request, int load) = 0;
  // Takes the oldest request of this instance that waits or, if none does, of another one with
  // enough load; nothing if none waits. Whoever gets nothing gets a note (kRing) with the next
  // request that is put.
  virtual Result<std::optional<Taken>> take() = 0;
  // Sends pieces; false for those whose lease has ended. A piece is a sign of life. The last piece
  // ends the lease and takes the request out of the store.
  virtual Result<std::vector<bool>> send(std::span<const Outgoing> pieces) = 0;
  // A sign of life of this instance and of what it computes for others; false for each lease that
  // has ended.
  virtual Result<std::vector<bool>> beat(int load, std::span<const Lease> held) = 0;
  // For requests of this instance, by their ids.
  virtual Result<std::vector<Seen>> look(std::span<const std::string> ids) = 0;
  // Takes a request of this instance from whoever has this lease, and puts it before all that wait;
  // returns the number of its next lease, or 0 if the lease had ended.
  virtual Result<int64_t> call_back(const Lease& lease) = 0;
  // Puts a request that this instance took for another one before all that wait there.
  virtual Status give_back(const Lease& lease) = 0;
  // Takes requests of this instance out of the store, whoever computes them.
  virtual Status drop(std::span<const std::string> ids) = 0;
  // Takes this instance out: others take its requests no longer.
  virtual Status leave() = 0;

  // Waits for up to a second for messages in the inbox of this instance. Connects by itself.
  virtual Result<std::vector<std::string>> receive() = 0;
};

// Connects to nothing yet. Throws LoadError in a build without hiredis.
std::unique_ptr<Store> make_redis_store(const StoreConfig& config);

}  // namespace skiff::queue
