// serve/journal/outlet.h -- a bounded queue of texts with a thread of its own that writes them
// somewhere. Whoever puts one in never waits; what finds no room is counted.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace skiff::journal {

class Outlet {
 public:
  struct Options {
    const char* thread = "outlet";  // its name, at most 15 characters
    size_t max_texts = 8192;        // texts that wait at most
    size_t max_batch = 512;
    std::chrono::milliseconds gather{0};   // the first text of a batch waits so long for others
    std::chrono::milliseconds last{2000};  // after stop() no batch is begun later than this
  };
  // Writes a batch on the outlet's thread, returns how many texts were lost, and does not throw.
  using Write = std::function<size_t(const std::vector<std::string>& batch)>;

  Outlet(const Options& options, Write write);
  ~Outlet();  // calls stop()

  void put(std::string text);
  // Writes what waits, as far as there is time, and ends the thread. Idempotent.
  void stop();
  uint64_t dropped() const { return dropped_; }
  uint64_t written() const { return written_; }

 private:
  void run();
  std::vector<std::string> next();

  const Options options_;
  const Write write_;
  std::atomic<uint64_t> dropped_{0}, written_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> waiting_;  // guarded by mutex_
  bool stopped_ = false;             // guarded by mutex_
  std::chrono::steady_clock::time_point end_ = std::chrono::steady_clock::time_point::max();
  std::thread thread_;
};

}  // namespace skiff::journal
