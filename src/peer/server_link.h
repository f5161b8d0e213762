// peer/server_link.h -- the connection of a decode instance to one block server: it is made, logs
// in, is kept alive and turns bytes into blocks. What the blocks are for is its owner's matter.
#pragma once
#include <poll.h>

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "peer/block_sum.h"
#include "peer/local_socket.h"
#include "peer/settings.h"
#include "peer/shared_memory.h"
#include "peer/stream.h"
#include "peer/wire.h"

namespace skiff::peer {

// The settings that all links of a client have in common.
struct LinkConfig {
  std::string key;  // Settings::key
  Facts facts;
  size_t block_bytes = 0;     // bytes that follow each Block
  bool shares_memory = true;  // Settings::shares_memory
};

// A link is made once for each server and connected anew after each loss. It never blocks. Not
// thread-safe: the thread that polls it makes all calls.
class ServerLink {
 public:
  using Clock = std::chrono::steady_clock;

  // Gets what the link hears. A call may send on links; it may not destroy the one that calls.
  class Owner {
   public:
    virtual ~Owner() = default;
    // Returns LinkConfig::block_bytes bytes that the link writes the block to as it comes, until
    // came(), lost() or discard(). Empty: the link uses memory of its own.
    virtual std::span<std::byte> place_for(const Block& block) = 0;
    // The bytes are those of place_for(), or valid during the call; `began` is when the first of
    // them could be read.
    struct Arrival {
      std::span<const std::byte> bytes;
      Sum sum;  // that of the bytes
      Clock::time_point began;
    };
    virtual void came(const Block& block, const Arrival& arrival) = 0;
    // A block can be read in the other side's memory, until taken() is called with its job. Nobody
    // keeps the other side from writing to it.
    struct Found {
      std::span<const std::byte> bytes;
      std::shared_ptr<const Mapping> memory;  // what they lie in
    };
    virtual void found(ServerLink& link, const Here& here, const Found& found) = 0;
    virtual void missed(const Miss& miss) = 0;
    // The connection has ended, for a reason that a log can print; connect() may make another.
    virtual void lost(ServerLink& link, Loss why, const std::string& reason) = 0;
  };

  // Makes no connection yet. `config` and `owner` outlive the link; the host is numeric.
  ServerLink(Address address, const LinkConfig& config, Owner& owner)
      : config_(config), owner_(owner), address_(std::move(address)) {}
  ServerLink(const ServerLink&) = delete;
  ServerLink& operator=(const ServerLink&) = delete;

  const Address& address() const { return address_; }
  // Returns true from connect() until the connection is lost.
  bool connected() const { return stream_.has_value(); }
  // Returns true while both sides have proved that they know the key.
  bool ready() const { return state_ == State::kReady; }
  // Returns true if the server should be left alone: for 2 s after a failure, for longer each time,
  // up to 30 s, if it takes connections and says nothing, for 10 s after a refusal, and while it is
  // in doubt.
  bool rests() const { return doubted_ || Clock::now() < rests_until_; }
  // Returns for how long, at most 0 if it does not rest; how long a doubt lasts is not known.
  double rest_seconds() const {
    return std::chrono::duration<double>(rests_until_ - Clock::now()).count();
  }
  // Asks the server for a sign of life; until one comes, it is in doubt.
  void doubt();
  bool doubted() const { return doubted_; }
  // A block that found() told of is read no more.
  void taken(uint64_t job) { send(Taken{job}); }
  // The owner's memory for the block that answers this job is written to no more.
  void discard(uint64_t job);

  // Begins to connect and to log in. Returns false if the system refuses at once; the server then
  // rests, and the owner is not told.
  bool connect();
  // Queues the message, which is sent after the login. It is dropped if there is no connection.
  void send(const Message& message);
  // Sends as much as the system takes now. If the connection has ended, the owner is told.
  void flush();

  // Returns what poll() shall wait for, besides the socket of memory_polled(). Requires
  // connected().
  pollfd polled() const;
  pollfd memory_polled() const { return {memory_socket_ ? memory_socket_->fd() : -1, POLLIN, 0}; }
  // Reads and writes as `revents`, the answer of poll(), allows. Requires connected().
  void serve(short revents);
  // Ends the connection if the server has been silent for the time of a lease, and renews the
  // leases after each third of it. The caller does this several times a second.
  void keep_alive(Clock::time_point now);

 private:
  static constexpr double kRestSeconds = 2;
  enum class State { kDown, kGreeting, kReady };
  void lose(Loss why, const std::string& reason);
  void hear();
  bool read();
  size_t read_frames(bool& open);
  size_t read_block(bool& open);
  void read_messages();
  void expect_block(const Block& block);
  void greet(const Message& message);
  void answer(const Message& message);
  void ask_for_memory(const std::string& name);
  void take_memory();
  Result<Unit> map(const LocalSocket::Letter& letter);
  void do_without_memory(const std::string& why);
  void look_up(const Here& here);

  const LinkConfig& config_;
  Owner& owner_;
  const Address address_;
  State state_ = State::kDown;
  std::optional<Stream> stream_;
  std::string backlog_;                           // frames that wait for the end of the login
  std::optional<Digest> expected_;                // the proof that the server owes
  std::string memory_wanted_, memory_given_;      // what the letters about memory say
  std::optional<LocalSocket> memory_socket_;      // from the question for memory to its answer
  std::shared_ptr<const Mapping> memory_;         // null: blocks come over the connection
  Clock::time_point since_{}, heard_{}, told_{};  // last connect(), message, Renew
  Clock::time_point rests_until_{};
  double next_rest_ = kRestSeconds;  // seconds, after the next failure
  bool doubted_ = false;
  double lease_seconds_ = 30;      // as the server's Welcome says
  std::optional<Block> incoming_;  // the block whose bytes come next
  Clock::time_point began_{};      // when its bytes began to come
  std::span<std::byte> place_;     // where they go
  size_t filled_ = 0;              // how many have come
  BlockSum sum_;                   // that of the bytes that have come
  std::vector<std::byte> own_;     // for blocks that the owner has no place for
};

}  // namespace skiff::peer
