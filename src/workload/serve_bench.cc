#include "workload/serve_bench.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/json.h"
#include "workload/simulate.h"

namespace skiff::workload {
namespace {

// Collects the outcomes and, in a closed loop, sends the next request when one ends.
class Replay {
 public:
  Replay(LoadClient& client, const ServeBench& bench) : client_(client), bench_(bench) {}

  ServeReport run() {
    const double start = client_.now();
    if (bench_.concurrency > 0) {
      const size_t first = std::min<size_t>(bench_.concurrency, bench_.requests.size());
      for (size_t i = 0; i < first; ++i) send(next_++);
    } else {
      for (size_t i = 0; i < bench_.requests.size(); ++i) {
        const double due = start + bench_.requests[i].at;
        client_.at(due, [this, i, due] { send(i, due); });
      }
    }
    client_.run();
    out_.seconds = end_ - start;
    out_.ttft = percentiles_of(ttft_);
    out_.tpot = percentiles_of(tpot_);
    out_.itl = percentiles_of(itl_);
    out_.e2e = percentiles_of(e2e_);
    out_.lag = percentiles_of(lag_);
    return std::move(out_);
  }

 private:
  // Latencies count from `due`, since a user who comes at a time waits from then on: counted from
  // when a request went out, those would look best that this client was late with. In a closed loop
  // a request is due when it goes out.
  void send(size_t number, std::optional<double> due = std::nullopt) {
    ++out_.sent;
    client_.post(bench_.chat ? "/v1/chat/completions" : "/v1/completions",
                 request_body(bench_, number), [this, due](const StreamOutcome& outcome) {
                   take(outcome, due.value_or(outcome.sent));
                   if (bench_.concurrency > 0 && next_ < bench_.requests.size()) send(next_++);
                 });
  }

  void take(const StreamOutcome& o, double due) {
    end_ = std::max(end_, o.done);
    lag_.push_back(o.sent - due);
    out_.reopened += o.reopened;
    if (o.status == 429 || o.status == 503) {
      ++out_.refused;
      return;
    }
    if (!o.ok() || o.first == 0) {
      ++out_.failed;
      if (out_.first_error.empty()) out_.first_error = o.ok() ? "no text came" : o.error;
      return;
    }
    ++out_.succeeded;
    out_.prompt += o.prompt;
    out_.cached += o.cached;
    const int completion = o.completion > 0 ? o.completion : static_cast<int>(o.gaps.size()) + 1;
    out_.completion += completion;
    out_.unmetered += o.completion == 0;
    const double last = o.first + std::accumulate(o.gaps.begin(), o.gaps.end(), 0.0);
    const double ttft = o.first - due;
    const double tpot = completion > 1 ? (last - o.first) / (completion - 1) : 0;
    ttft_.push_back(ttft);
    if (completion > 1) tpot_.push_back(tpot);
    itl_.insert(itl_.end(), o.gaps.begin(), o.gaps.end());
    e2e_.push_back(o.done - due);
    out_.good += (bench_.slo_ttft == 0 || ttft <= bench_.slo_ttft) &&
                 (bench_.slo_tpot == 0 || tpot <= bench_.slo_tpot);
  }

  LoadClient& client_;
  const ServeBench& bench_;
  size_t next_ = 0;
  double end_ = 0;
  ServeReport out_;
  std::vector<double> ttft_, tpot_, itl_, e2e_, lag_;
};

Json json_of(const Percentiles& p) {
  return {{"mean", p.mean * 1e3}, {"p50", p.p50 * 1e3}, {"p90", p.p90 * 1e3},
          {"p95", p.p95 * 1e3},   {"p99", p.p99 * 1e3}, {"max", p.max * 1e3}};
}

std::string row(const char* name, const Percentiles& p) {
  return fmt::format("{:<22}{:>10.1f}{:>10.1f}{:>10.1f}{:>10.1f}{:>10.1f}{:>10.1f}\n", name,
                     p.mean * 1e3, p.p50 * 1e3, p.p90 * 1e3, p.p95 * 1e3, p.p99 * 1e3, p.max * 1e3);
}

std::string letters(const TracedRequest& request, size_t number, uint64_t seed) {
  std::string text;
  text.reserve(static_cast<size_t>(request.input) * 2);
  for (const Token letter : prompt_of(request, number, 26, seed)) {
    if (!text.empty()) text += ' ';
    text += static_cast<char>('a' + letter);
  }
  return text;
}

}  // namespace

Percentiles percentiles_of(const std::vector<double>& values) {
  if (values.empty()) return {};
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {.mean = sum / static_cast<double>(values.size()),
          .p50 = percentile(values, 0.5),
          .p90 = percentile(values, 0.9),
          .p95 = percentile(values, 0.95),
          .p99 = percentile(values, 0.99),
          .max = percentile(values, 1)};
}

std::string request_body(const ServeBench& bench, size_t number) {
  const TracedRequest& request = bench.requests[number];
  Json body{{"model", bench.model},
            {"max_tokens", request.output},
            {"temperature", 0},
            {"stream", true},
            {"stream_options", {{"include_usage", true}}}};
  if (bench.ignore_eos) body["ignore_eos"] = true;
  if (bench.prompt_vocab > 0)
    body["prompt"] = prompt_of(request, number, bench.prompt_vocab, bench.seed);
  else if (bench.chat)
    body["messages"] =
        Json::array({{{"role", "user"}, {"content", letters(request, number, bench.seed)}}});
  else
    body["prompt"] = letters(request, number, bench.seed);
  return body.dump();
}

ServeReport run_serve_bench(LoadClient& client, const ServeBench& bench) {
  return Replay(client, bench).run();
}

std::string to_text(const ServeReport& r) {
  const double seconds = std::max(r.seconds, 1e-9);
  std::string out =
      fmt::format("requests              {} sent, {} succeeded, {} refused (429, 503), {} failed\n",
                  r.sent, r.succeeded, r.refused, r.failed);
  if (r.reopened > 0)
    out += fmt::format("connections reopened  {}, which the server had closed between requests\n",
                       r.reopened);
  if (r.unmetered > 0)
    out += fmt::format("without usage         {} replies, each piece of text counted as a token\n",
                       r.unmetered);
  if (!r.first_error.empty()) out += fmt::format("first failure         {}\n", r.first_error);
  out += fmt::format(
      "time                  {:.2f} s\nrequests/s            {:.2f}, within the SLO {:.2f} ({:.1f} "
      "% of those sent)\noutput tokens/s       {:.1f}\ntotal tokens/s        {:.1f}\nprompt tokens "
      " "
      "       {:.0f}, of them cached {:.0f} ({:.1f} %)\n",
      r.seconds, r.succeeded / seconds, r.good / seconds, 100.0 * r.good / std::max(r.sent, 1),
      r.completion / seconds, (r.prompt + r.completion) / seconds, r.prompt, r.cached,
      100 * r.cached / std::max(r.prompt, 1.0));
  out += fmt::format("{:<22}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}\n", "milliseconds", "mean", "p50",
                     "p90", "p95", "p99", "max");
  out += row("time to first token", r.ttft) + row("time per output token", r.tpot) +
         row("between pieces", r.itl) + row("whole request", r.e2e);
  return r.lag.max > 0 ? out + row("sent too late, of it", r.lag) : out;
}

std::string to_json(const ServeReport& r) {
  const double seconds = std::max(r.seconds, 1e-9);
  return Json{{"sent", r.sent},
              {"succeeded", r.succeeded},
              {"refused", r.refused},
              {"failed", r.failed},
              {"good", r.good},
              {"reopened", r.reopened},
              {"unmetered", r.unmetered},
              {"first_error", r.first_error},
              {"seconds", r.seconds},
              {"requests_per_second", r.succeeded / seconds},
              {"goodput", r.good / seconds},
              {"output_tokens_per_second", r.completion / seconds},
              {"total_tokens_per_second", (r.prompt + r.completion) / seconds},
              {"prompt_tokens", r.prompt},
              {"cached_tokens", r.cached},
              {"completion_tokens", r.completion},
              {"ttft_ms", json_of(r.ttft)},
              {"tpot_ms", json_of(r.tpot)},
              {"itl_ms", json_of(r.itl)},
              {"e2e_ms", json_of(r.e2e)},
              {"lag_ms", json_of(r.lag)}}
      .dump();
}

}  // namespace skiff::workload
