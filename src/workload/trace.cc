#include "workload/trace.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <sstream>

#include "base/json.h"
#include "base/load_error.h"

namespace skiff::workload {
namespace {

constexpr int kMaxTokens = 1 << 24;

Error bad_line(size_t number, const std::string& what) {
  return Error{Code::kInvalid, fmt::format("line {}: {}", number, what)};
}

bool lengths_are_sane(const TracedRequest& r) {
  return r.input >= 1 && r.input <= kMaxTokens && r.output >= 1 && r.output <= kMaxTokens;
}

Result<TracedRequest> parse_json_line(std::string_view line, size_t number) {
  const auto json = parse_json(line);
  if (!json) return bad_line(number, json.error().what);
  TracedRequest out;
  try {
    out.at = json->at("timestamp").get<double>() / 1e3;
    out.input = json->at("input_length").get<int>();
    out.output = json->at("output_length").get<int>();
    if (json->contains("hash_ids")) out.hashes = json->at("hash_ids").get<std::vector<uint64_t>>();
  } catch (const Json::exception& e) {
    return bad_line(number, e.what());
  }
  return out;
}

// Parses "2023-11-16 18:17:03.9799600" into seconds.
std::optional<double> parse_time(const std::string& text) {
  std::tm day{};
  double seconds = 0;
  if (std::sscanf(text.c_str(), "%d-%d-%d %d:%d:%lf", &day.tm_year, &day.tm_mon, &day.tm_mday,
                  &day.tm_hour, &day.tm_min, &seconds) != 6)
    return std::nullopt;
  day.tm_year -= 1900;
  day.tm_mon -= 1;
  return static_cast<double>(timegm(&day)) + seconds;
}

std::optional<int> parse_count(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Result<TracedRequest> parse_csv_line(std::string_view line, size_t number) {
  const size_t first = line.find(','), second = line.find(',', first + 1);
  if (second == std::string_view::npos) return bad_line(number, "expected three columns");
  const auto at = parse_time(std::string(line.substr(0, first)));
  const auto input = parse_count(line.substr(first + 1, second - first - 1));
  const auto output = parse_count(line.substr(second + 1));
  if (!at || !input || !output) return bad_line(number, "expected time,tokens,tokens");
  return TracedRequest{.at = *at, .input = *input, .output = *output, .hashes = {}};
}

}  // namespace

Result<Trace> parse_trace(std::string_view text) {
  Trace trace;
  const bool csv = !text.starts_with('{');
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (csv && number == 1)) continue;  // skips the column names of a CSV
    auto request = csv ? parse_csv_line(line, number) : parse_json_line(line, number);
    if (!request) return request.error();
    if (!std::isfinite(request->at) || !lengths_are_sane(*request))
      return bad_line(number,
                      fmt::format("times must be finite and lengths from 1 to {}", kMaxTokens));
    trace.requests.push_back(std::move(*request));
  }
  if (trace.requests.empty()) return Error{Code::kInvalid, "the trace holds no request"};
  std::ranges::stable_sort(trace.requests, {}, &TracedRequest::at);
  const double start = trace.requests.front().at;
  for (TracedRequest& request : trace.requests) request.at -= start;
  return trace;
}

Trace read_trace(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail_load("cannot open {}", path);
  std::stringstream text;
  text << file.rdbuf();
  auto trace = parse_trace(text.view());
  if (!trace) fail_load("{}: {}", path, trace.error().what);
  return std::move(*trace);
}

// A block's tokens depend on its hash alone; blocks past the last hash depend on the request's
// number.
std::vector<Token> prompt_of(const TracedRequest& request, size_t number, int vocab,
                             uint64_t seed) {
  std::vector<Token> out;
  out.reserve(static_cast<size_t>(request.input));
  for (int i = 0; i < request.input; ++i) {
    const auto block = static_cast<size_t>(i / Trace::kBlockTokens);
    const bool shared = block < request.hashes.size();
    uint64_t x = shared ? request.hashes[block] * 2 : (number << 20 | block) * 2 + 1;
    x += seed * 0xd1342543de82ef95ull;
    x = (x * 1000003 + static_cast<uint64_t>(i % Trace::kBlockTokens)) * 0x9e3779b97f4a7c15ull;
    out.push_back(static_cast<Token>((x >> 33) % static_cast<uint64_t>(vocab)));
  }
  return out;
}

}  // namespace skiff::workload
