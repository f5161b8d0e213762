// route/router.h -- the server of `skiff route`: takes requests like `skiff serve` and passes each
// on to one of several servers. It never looks at tokens; a thread for each side does all of it.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "route/config.h"

namespace skiff::route {

class Router {
 public:
  // Binds the port. Throws LoadError if that fails, or if settings contradict each other.
  explicit Router(RouterConfig config);
  ~Router();  // calls stop()

  uint16_t port() const;
  void start();
  // Replaces the keys and reads the TLS files again; if either fails, nothing changes. May be
  // called from any thread.
  Status reload(const std::vector<std::string>& api_keys,
                const std::vector<std::string>& admin_keys);
  // /ready answers 503 from now on. After `delay` seconds, in which those who ask /ready go
  // elsewhere, new requests are refused. Returns when every reply is complete, when `seconds` more
  // have passed, or after force(): true if no reply was cut off. Times are in seconds.
  bool drain(double delay, double seconds);
  // Makes a drain() in progress return at once. May be called from any thread.
  void force();
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace skiff::route
