#include "serve/journal/journal.h"

#include <fmt/format.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "base/log.h"
#include "base/random.h"
#include "serve/journal/entry.h"
#include "serve/journal/exporter.h"
#include "serve/journal/log_file.h"
#include "serve/journal/outlet.h"
#include "serve/journal/span.h"
#include "serve/journal/traceparent.h"

namespace skiff::journal {
namespace {

// Entries that are not complete. More can only come about if requests are never replied to.
constexpr size_t kMaxOpen = 1 << 17;

struct OpenEntry {
  Entry entry;
  int prompts = 0;  // started and not ended
};

}  // namespace

struct Journal::Impl {
  explicit Impl(const JournalConfig& config) {
    if (!config.log_file.empty()) {
      file.emplace(config.log_file);
      lines.emplace(Outlet::Options{.thread = "request-log"},
                    [this](const auto& batch) { return file->write(batch); });
    }
    if (config.traces_endpoint.empty()) return;
    exporter.emplace(config);
    spans.emplace(Outlet::Options{.thread = "traces",
                                  .max_texts = 4096,
                                  .max_batch = 256,
                                  .gather = std::chrono::milliseconds(500)},
                  [this](const auto& batch) { return exporter->send(batch); });
  }

  // The entry if nothing more will come for it.
  std::optional<Entry> take_complete(uint64_t serial);
  void write(const Entry& entry);
  std::string random_hex(int words);

  std::optional<LogFile> file;
  std::optional<Exporter> exporter;
  std::optional<Outlet> lines, spans;
  std::mutex mutex;
  std::unordered_map<uint64_t, OpenEntry> open;  // by HttpRequest::serial; guarded by mutex
  uint64_t random = random_seed();               // guarded by mutex
  std::atomic<uint64_t> lost{0};
};

std::optional<Entry> Journal::Impl::take_complete(uint64_t serial) {
  const auto found = open.find(serial);
  if (found == open.end() || found->second.prompts > 0 || !found->second.entry.record)
    return std::nullopt;
  Entry entry = std::move(found->second.entry);
  open.erase(found);
  return entry;
}

std::string Journal::Impl::random_hex(int words) {
  const std::lock_guard lock(mutex);
  std::string text;
  for (int i = 0; i < words; ++i) text += fmt::format("{:016x}", splitmix64(random) | 1);
  return text;
}

void Journal::Impl::write(const Entry& entry) {
  try {
    SpanContext context;
    if (entry.summary) {
      const auto parent = parse_traceparent(entry.summary->tag->traceparent);
      if (parent) context.trace_id = parent->trace_id;
      const bool recorded = spans && (!parent || parent->sampled);
      if (recorded) {
        if (!parent) context.trace_id = random_hex(2);
        context.span_id = random_hex(1);
        if (parent) context.parent_id = parent->span_id;
        spans->put(span_json(entry, context));
      }
    }
    if (lines) lines->put(log_line(entry, context.trace_id));
  } catch (const std::exception& e) {
    ++lost;
    spdlog::error("the journal could not write an entry: {}", escaped(e.what()));
  }
}

Journal::Journal(const JournalConfig& config) : impl_(std::make_unique<Impl>(config)) {}
Journal::~Journal() { stop(); }

void Journal::arrived(const http::HttpRequest& request) {
  if (request.method != "POST") return;
  OpenEntry opened;
  opened.entry.method = request.method;
  opened.entry.route = request.path;
  opened.entry.request_id = request.request_id;
  opened.entry.arrived = std::chrono::system_clock::now();
  const std::lock_guard lock(impl_->mutex);
  if (impl_->open.size() >= kMaxOpen)
    ++impl_->lost;
  else
    impl_->open.emplace(request.serial, std::move(opened));
}

void Journal::replied(const http::HttpRecord& record) {
  std::optional<Entry> done;
  {
    const std::lock_guard lock(impl_->mutex);
    const auto found = impl_->open.find(record.serial);
    if (found == impl_->open.end()) return;
    found->second.entry.record = record;
    done = impl_->take_complete(record.serial);
  }
  if (done) impl_->write(*done);
}

void Journal::started(const service::RequestTag& tag) {
  const std::lock_guard lock(impl_->mutex);
  const auto found = impl_->open.find(tag.serial);
  if (found != impl_->open.end()) ++found->second.prompts;
}

void Journal::ended(service::RequestSummary summary) {
  std::optional<Entry> done;
  const uint64_t serial = summary.tag->serial;
  {
    const std::lock_guard lock(impl_->mutex);
    const auto found = impl_->open.find(serial);
    if (found != impl_->open.end()) {
      found->second.entry.add(std::move(summary));
      --found->second.prompts;
      done = impl_->take_complete(serial);
    } else if (serial == 0) {
      done.emplace();
      done->route = summary.tag->route;
      done->request_id = summary.tag->id;
      done->arrived = summary.arrived;
      done->add(std::move(summary));
    }
  }
  if (done) impl_->write(*done);
}

service::RequestObserver::Counts Journal::counts() const {
  Counts counts;
  counts.log_dropped = impl_->lost + (impl_->lines ? impl_->lines->dropped() : 0);
  counts.spans_dropped = impl_->spans ? impl_->spans->dropped() : 0;
  counts.spans_sent = impl_->spans ? impl_->spans->written() : 0;
  return counts;
}

void Journal::reopen() {
  if (impl_->file) impl_->file->reopen();
}

void Journal::stop() {
  if (impl_->lines) impl_->lines->stop();
  if (impl_->spans) impl_->spans->stop();
}

}  // namespace skiff::journal
