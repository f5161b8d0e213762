// The journal without a server: what a request's line and span say, and that nobody waits.
#include "serve/journal/journal.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/json.h"
#include "base/load_error.h"
#include "serve/journal/log_file.h"
#include "serve/journal/outlet.h"
#include "serve/journal/span.h"

namespace skiff::journal {
namespace {

using service::Refusal;
using service::RequestSummary;

http::HttpRequest request_of(uint64_t serial) {
  http::HttpRequest request;
  request.method = "POST";
  request.path = "/v1/chat/completions";
  request.request_id = "abc";
  request.serial = serial;
  return request;
}

http::HttpRecord record_of(uint64_t serial, int status, bool complete = true) {
  http::HttpRecord record;
  record.serial = serial;
  record.status = status;
  record.seconds = 0.25;
  record.complete = complete;
  return record;
}

RequestSummary summary_of(uint64_t serial, std::string traceparent = "") {
  RequestSummary summary;
  summary.tag = std::make_shared<service::RequestTag>(
      service::RequestTag{.id = "chatcmpl-abc",
                          .route = "/v1/chat/completions",
                          .operation = "chat",
                          .model = "demo",
                          .serial = serial,
                          .traceparent = std::move(traceparent)});
  summary.queued = 0.001;
  summary.first_token = 0.02;
  summary.total = 0.2;
  summary.usage = {.prompt = 5, .cached = 4, .completion = 3, .reasoning = 1};
  summary.finishes = {Finish::kStop};
  summary.constraint = "regex";
  summary.mask_seconds = 42e-6;
  summary.masks = 4;
  summary.calls = 2;
  return summary;
}

struct LogFolder {
  LogFolder() { std::filesystem::create_directories(path); }
  ~LogFolder() { std::filesystem::remove_all(path); }
  std::vector<Json> lines() const {
    std::vector<Json> all;
    std::ifstream in(file());
    for (std::string line; std::getline(in, line);) all.push_back(Json::parse(line));
    return all;
  }
  std::string file() const { return path + "/requests.jsonl"; }
  const std::string path = testing::TempDir() + "journal_test";
};

TEST(JournalTest, ALineJoinsWhatTheEdgeAndTheServiceTell) {
  const LogFolder folder;
  Journal journal({.log_file = folder.file()});
  journal.arrived(request_of(1));
  journal.started(*summary_of(1).tag);
  journal.started(*summary_of(1).tag);
  journal.ended(summary_of(1));
  journal.replied(record_of(1, 200));
  journal.ended(summary_of(1));  // the second of two prompts ends after the reply
  journal.arrived(request_of(2));
  journal.replied(record_of(2, 400));  // refused before it reached the service
  journal.replied(record_of(3, 401));  // never reached a handler
  journal.stop();
  const auto lines = folder.lines();
  ASSERT_EQ(lines.size(), 2u);
  const Json& line = lines[0];
  EXPECT_EQ(line["id"], "chatcmpl-abc");
  EXPECT_EQ(line["request_id"], "abc");
  EXPECT_EQ(line["route"], "/v1/chat/completions");
  EXPECT_EQ(line["status"], 200);
  EXPECT_EQ(line["finish"], Json::parse(R"(["stop", "stop"])"));
  EXPECT_EQ(line["prompt_tokens"], 10);
  EXPECT_EQ(line["completion_tokens"], 6);
  EXPECT_EQ(line["total_ms"], 250);
  EXPECT_EQ(line["ttft_ms"], 20);
  EXPECT_EQ(line["queue_ms"], 1);
  EXPECT_EQ(line["constraint"], "regex");
  EXPECT_EQ(line["mask_us"], 84);
  EXPECT_EQ(line["tool_calls"], 4);
  EXPECT_EQ(line["aborted_by"], nullptr);
  EXPECT_EQ(lines[1]["status"], 400);
  EXPECT_FALSE(lines[1].contains("id"));
}

TEST(JournalTest, WhoEndedItEarly) {
  const auto by = [](RequestSummary summary, bool complete) {
    Entry entry;
    entry.add(std::move(summary));
    entry.record = record_of(1, 200, complete);
    return std::string(entry.aborted_by());
  };
  RequestSummary cancelled = summary_of(1), aborted = summary_of(1), late = summary_of(1);
  cancelled.finishes = {Finish::kCancelled};
  aborted.refusal = Refusal::kAborted;
  late.refusal = Refusal::kTimeout;
  EXPECT_EQ(by(cancelled, true), "client");
  EXPECT_EQ(by(summary_of(1), false), "client");
  EXPECT_EQ(by(aborted, true), "operator");
  EXPECT_EQ(by(late, true), "");
  EXPECT_EQ(by(summary_of(1), true), "");
}

TEST(JournalTest, ALogIsOpenedAgain) {
  const LogFolder folder;
  Journal journal({.log_file = folder.file()});
  const auto one = [&](uint64_t serial) {
    journal.arrived(request_of(serial));
    journal.replied(record_of(serial, 200));
  };
  one(1);
  for (int i = 0; i < 1000 && folder.lines().empty(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::filesystem::rename(folder.file(), folder.file() + ".1");
  journal.reopen();
  one(2);
  journal.stop();
  EXPECT_EQ(folder.lines().size(), 1u);
  EXPECT_THROW(Journal({.log_file = folder.path + "/none/x"}), LoadError);
  EXPECT_THROW(Journal({.traces_endpoint = "collector:4318"}), LoadError);
}

// The disk is full for a while.
TEST(LogFileTest, HalfALineSpoilsNoOther) {
  const LogFolder folder;
  LogFile file(folder.file());
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit tight = before;
  tight.rlim_cur = 12;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &tight);
  const size_t lost = file.write({"[1,2]", "[3,4,5,6,7]"});
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(lost, 1u);
  EXPECT_EQ(file.write({"[8]", "[9]"}), 0u);
  std::ifstream in(folder.file());
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  EXPECT_EQ(lines, (std::vector<std::string>{"[1,2]", "[3,4,5", "[8]", "[9]"}));
}

// Remote calls of the gRPC port are such requests.
TEST(JournalTest, ARequestThatDidNotComeByHttpHasALine) {
  const LogFolder folder;
  Journal journal({.log_file = folder.file()});
  RequestSummary summary = summary_of(0);
  journal.started(*summary.tag);
  journal.ended(std::move(summary));
  journal.stop();
  const auto lines = folder.lines();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["request_id"], "chatcmpl-abc");
  EXPECT_EQ(lines[0]["route"], "/v1/chat/completions");
  EXPECT_EQ(lines[0]["total_ms"], 200);
  for (const char* none : {"method", "status", "aborted_by"}) EXPECT_EQ(lines[0][none], nullptr);
}

TEST(SpanTest, HasTheNamesOfTheConventions) {
  Entry entry;
  entry.route = "/v1/chat/completions";
  entry.arrived = std::chrono::system_clock::time_point(std::chrono::seconds(10));
  RequestSummary summary = summary_of(1);
  summary.frequency = 0.5, summary.presence = -0.25, summary.seed = ~uint64_t{0};
  entry.add(std::move(summary));
  entry.record = record_of(1, 200);
  const Json traces = Json::parse(traces_json(
      {span_json(entry, {.trace_id = "t", .span_id = "s", .parent_id = "p"})}, "svc", "1"));
  const Json& span = traces["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
  EXPECT_EQ(span["name"], "chat demo");
  EXPECT_EQ(span["kind"], 2);
  EXPECT_EQ(span["parentSpanId"], "p");
  EXPECT_EQ(span["startTimeUnixNano"], "10000000000");
  EXPECT_EQ(span["endTimeUnixNano"], "10250000000");
  EXPECT_EQ(span["status"], Json::object());
  std::map<std::string, Json> values;
  for (const Json& attribute : span["attributes"])
    values[attribute["key"].get<std::string>()] = attribute["value"];
  EXPECT_EQ(values["gen_ai.operation.name"]["stringValue"], "chat");
  EXPECT_EQ(values["gen_ai.usage.input_tokens"]["intValue"], "5");
  EXPECT_EQ(values["gen_ai.usage.output_tokens"]["intValue"], "3");
  EXPECT_EQ(values["gen_ai.request.frequency_penalty"]["doubleValue"], 0.5);
  EXPECT_EQ(values["gen_ai.request.presence_penalty"]["doubleValue"], -0.25);
  EXPECT_EQ(values["skiff.request.repetition_penalty"]["doubleValue"], 1);
  EXPECT_EQ(values["gen_ai.request.seed"]["intValue"], "-1") << "OTLP has no unsigned numbers";
  EXPECT_EQ(values["gen_ai.response.finish_reasons"]["arrayValue"]["values"][0]["stringValue"],
            "stop");
  entry.record = record_of(1, 503);
  EXPECT_EQ(Json::parse(span_json(entry, {}))["status"]["code"], 2);
}

TEST(OutletTest, DropsWhatFindsNoRoomAndNeverWaits) {
  std::atomic<bool> open{false};
  std::atomic<size_t> seen{0};
  Outlet outlet({.max_texts = 10, .max_batch = 4}, [&](const std::vector<std::string>& batch) {
    EXPECT_LE(batch.size(), 4u);
    while (!open) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    seen += batch.size();
    return size_t{0};
  });
  for (int i = 0; i < 100; ++i) outlet.put("x");
  EXPECT_GE(outlet.dropped(), 86u);  // 10 wait, and at most 4 are being written
  open = true;
  outlet.stop();
  EXPECT_EQ(seen + outlet.dropped(), 100u);
  EXPECT_EQ(outlet.written(), seen);
  outlet.put("late");
  EXPECT_EQ(seen + outlet.dropped(), 101u);
}

}  // namespace
}  // namespace skiff::journal
