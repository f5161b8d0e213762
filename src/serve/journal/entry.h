// serve/journal/entry.h -- what the journal knows of one HTTP request with its prompts, as the line
// of the request log. It holds no text of users.
#pragma once
#include <chrono>
#include <optional>
#include <string>

#include "serve/http/server.h"
#include "serve/service/request_observer.h"

namespace skiff::journal {

struct Entry {
  std::string method, route, request_id;
  std::chrono::system_clock::time_point arrived;
  std::optional<service::RequestSummary> summary;  // sums up all prompts; nothing: none was started
  std::optional<http::HttpRecord> record;          // nothing: the reply is not complete, or no HTTP

  // Joins the summary of one more prompt: counts add up, times are those of the whole.
  void add(service::RequestSummary prompt);
  // The time of the whole request, reading and writing included.
  double seconds() const;
  // Who ended it early: "client", "operator", or empty.
  const char* aborted_by() const;
};

// One JSON object without a line end. `trace_id` may be empty.
std::string log_line(const Entry& entry, const std::string& trace_id);

// The words of OpenAI's API for how a sequence ended; "abort" and "error" where it has none.
const char* finish_name(Finish finish);

}  // namespace skiff::journal
