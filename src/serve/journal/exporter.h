// serve/journal/exporter.h -- sends spans to a collector by OTLP over HTTP. Used by one thread.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "fetch/client.h"
#include "serve/journal/journal.h"

namespace skiff::journal {

class Exporter {
 public:
  // Throws LoadError if the endpoint is no URL.
  explicit Exporter(const JournalConfig& config);
  // Sends the spans in one request and returns how many were lost: all or none. Trouble is logged
  // once a minute.
  size_t send(const std::vector<std::string>& spans);

 private:
  void complain(const std::string& why);
  const std::string service_name_, version_;
  fetch::Request request_;
  fetch::Client client_;
  std::chrono::steady_clock::time_point complained_{};
};

}  // namespace skiff::journal
