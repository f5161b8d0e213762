// peer/block_server_impl.h -- the thread behind BlockServer with its connections. Private to
// block_server*.cc: the loop and what is sent are in block_server.cc, what the other side asks for
// is in block_server_messages.cc.
#pragma once
#include <poll.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

#include "peer/block_server.h"
#include "peer/local_socket.h"
#include "peer/stream.h"

namespace skiff::peer {

struct BlockServer::Impl {
  using Clock = std::chrono::steady_clock;
  struct Lease {
    std::vector<kv::BlockKey> keys;
    SeqId seq = 0;                          // the sequence that computes the prompt; 0: none does
    bool failed = false;                    // the prompt was not computed
    std::optional<Clock::time_point> done;  // when it was computed
  };
  // A block that the other side reads where it is.
  struct Lent {
    uint64_t lease = 0;
    Shelf::Loan loan;
  };
  struct Connection {
    explicit Connection(Fd fd) : stream(std::move(fd)) {}
    Stream stream;
    Digest nonce = random_nonce();
    bool welcome = false, closing = false, gone = false;
    bool mapped = false;  // the other side can read the shelf's memory
    std::string wants,
        answer;  // what it says to be given that, and what it is told; empty: nothing
    Clock::time_point heard = Clock::now(), since = heard;
    std::unordered_map<uint64_t, Lease> leases;
    size_t keys = 0;                          // sum over all leases
    std::optional<Shelf::Loan> sending;       // the block whose bytes are being sent
    std::deque<Read> reads;                   // those that may be answered
    std::vector<Read> waiting;                // those whose blocks are not there yet
    std::unordered_map<uint64_t, Lent> lent;  // by job
  };
  // These two are what other threads tell the server.
  struct Changed {
    kv::BlockKey key{};
    bool here = false;
  };
  struct Ended {
    SeqId id = 0;
    bool computed = false;
  };

  Impl(Config c, std::shared_ptr<Shelf> s);
  ~Impl() {
    end();
    shelf->on_change(nullptr);
  }

  void end();
  void run();
  void wait();
  void take_notes();
  void open_memory();
  void give_memory();
  void accept_all();
  bool make_room();
  void accept_failed(int error);
  void serve(Connection& c, short events);
  void read_messages(Connection& c);
  void answer(Connection& c, Message& message);
  void greet(Connection& c, const Message& message);
  void refuse(Connection& c, const std::string& why);
  void say_refused(const Connection& c, const std::string& why);
  void open(Connection& c, Open& message);
  void start(Lease& lease, Open& message);
  void close(Connection& c, uint64_t lease);
  void read(Connection& c, const Read& message);
  bool answer_read(Connection& c, const Read& read);
  void lend(Connection& c, const Read& read, Shelf::Loan loan);
  void send_blocks(Connection& c);
  void miss(Connection& c, const Read& read, Loss why);
  void key_changed(const Changed& note);
  void prompt_ended(const Ended& note);
  void end_waits(Connection& c, Clock::time_point now);
  void drop(Connection& c);
  void publish();
  void tell(std::vector<std::variant<Changed, Ended>> notes);

  const Config config;
  const std::shared_ptr<Shelf> shelf;
  Fd listener;
  std::optional<LocalSocket> memory;  // where the shelf's memory is given; none: it is not
  Wake wake;
  std::list<Connection> connections;  // the server thread's, like the members below
  std::vector<pollfd> polled;
  Clock::time_point accepts_from;                 // new connections wait until then
  std::optional<Clock::time_point> warned;        // when accept_failed() last did
  std::optional<Clock::time_point> said_refused;  // when say_refused() last wrote a line
  uint64_t unsaid = 0;                            // refusals since then
  SeqId next = kFirstSeq;
  uint64_t blocks = 0, shared = 0, prompts = 0;
  std::atomic<bool> stop = false, draining = false;
  mutable std::mutex mutex;  // guards the members below
  std::vector<std::variant<Changed, Ended>> notes;
  Stats stats;
  std::thread thread;
};

}  // namespace skiff::peer
