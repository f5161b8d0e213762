// serve/http/deadline.h -- work that is done unless something else comes in time. Private to the
// HTTP server.
#pragma once
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <cstdint>
#include <utility>

#include "serve/http/stream.h"

namespace skiff::http {

// One deadline at a time. For one strand.
class Deadline {
 public:
  explicit Deadline(const net::any_io_executor& strand) : timer_(strand) {}

  // After that time the strand calls `work`, which keeps this alive, unless set() or cancel() is
  // called before.
  template <class Work>
  void set(double seconds, Work work) {
    timer_.expires_after(std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double>(seconds)));
    timer_.async_wait([this, number = ++number_,
                       work = std::move(work)](const boost::system::error_code& error) mutable {
      if (!error && number == number_) work();
    });
  }
  void cancel() {
    ++number_;
    timer_.cancel();
  }

 private:
  net::steady_timer timer_;
  uint64_t number_ = 0;  // number of the last set(): a timer that had expired by then is ignored
};

}  // namespace skiff::http
