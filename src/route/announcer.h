// route/announcer.h -- the other side of a registration: an instance that tells a router of itself,
// again and again, so that a router that was started anew knows it soon.
#pragma once
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "base/json.h"
#include "base/result.h"
#include "fetch/client.h"

namespace skiff::route {

struct AnnouncerSettings {
  fetch::Url router;     // its target is /register
  std::string key_file;  // whose first line is the router's admin key; empty: no key is sent
  // role, host_ip, port and, of a prefill or decode instance, connector_port, transfer_protocol,
  // device_ids, rdma_ports, tp_size (see route/instance.h). Where host_ip is missing, it is the
  // address from which this machine reaches the router at the time.
  Json instance;
  double interval = 5;  // seconds from one registration to the next
};

// Reads HOST:PORT or http(s)://HOST:PORT, the value of --router. The error says what is wrong.
Result<fetch::Url> parse_router(std::string_view text);

// Returns the address from which this machine sends to the router, or an empty text if there is no
// way to it, or `names` do not find it within seconds. Nothing is sent.
std::string address_towards(const fetch::Url& router, fetch::NameLookup& names);

// Registers on a thread of its own, until it is destroyed; then it registers once more as paused,
// so that the router sends nothing new. The first answer is logged, and each change between success
// and failure.
class Announcer {
 public:
  explicit Announcer(AnnouncerSettings settings);
  ~Announcer();
  Announcer(const Announcer&) = delete;

 private:
  void run();
  Status announce(bool paused);
  void report(const Status& done);

  const AnnouncerSettings settings_;
  // Used by the thread only.
  fetch::NameLookup names_;
  fetch::Client client_;
  bool reported_ = false, failing_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool leaving_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace skiff::route
