// Times the host's work for a token without computing it: scheduler, detokenizer, JSON, SSE, HTTP,
// sockets. The model costs nothing; the rest is the server that `skiff serve` runs.
//   bench_host_path MODEL_FOLDER [CONNECTIONS] [TOKENS]     (uses only its tokenizer)
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "base/check.h"
#include "base/json.h"
#include "base/load_error.h"
#include "base/log.h"
#include "serve/load_client.h"
#include "serve/null_engine.h"
#include "serve/server.h"
#include "text/detokenizer.h"

namespace skiff::bench {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view kSaid =
    "The river runs past the old mill, and in the evening light it looks like a long piece of "
    "silver. Nobody knows how many boats went down it before the bridge was built, but there are "
    "stories about every one of them.";
constexpr int kIdleStreams = 2000;

double resident_mb() {
  std::ifstream statm("/proc/self/statm");
  long total = 0, resident = 0;
  statm >> total >> resident;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE)) / 1e6;
}

// The server in this process.
struct Site {
  explicit Site(const std::string& folder);

  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::vector<Token> words;
  std::shared_ptr<service::EventQueue> events = std::make_shared<service::EventQueue>();
  std::unique_ptr<NullEngine> engine;
  std::unique_ptr<service::EngineService> service;
  std::unique_ptr<serve::Server> server;
};

class BareTemplate : public text::ChatTemplate {
  Result<std::string> render(const text::Conversation& conversation) const override {
    return conversation.messages.back().value("content", std::string());
  }
};

Site::Site(const std::string& folder) {
  auto loaded = text::load_tokenizer(folder);
  if (!loaded) fail_load("{}", loaded.error().what);
  tokenizer = std::move(*loaded);
  words = tokenizer->encode(kSaid, {.add_special = false, .parse_special = false});
  sched::Limits limits;
  limits.max_seqs = kIdleStreams;
  limits.max_logit_rows = kIdleStreams;
  limits.max_context = 8192;
  engine = std::make_unique<NullEngine>(limits, words, events);
  service::ServiceConfig service_config;
  service_config.model_name = "null";
  service_config.max_model_len = limits.max_context;
  service = std::make_unique<service::EngineService>(service_config, *engine, events, tokenizer,
                                                     std::make_shared<BareTemplate>());
  serve::ServerConfig config;
  config.http.host = "127.0.0.1";
  config.http.port = 0;
  config.model_names = {"null"};
  config.max_concurrency = kIdleStreams + 100;
  config.stream_idle_seconds = 1;
  server = std::make_unique<serve::Server>(config, *service);
  server->start();
}

std::string body(int tokens) {
  return fmt::format(
      R"({{"messages":[{{"role":"user","content":"Tell me about the river."}}],"stream":true,)"
      R"("max_tokens":{},"stream_options":{{"include_usage":true}}}})",
      tokens);
}

// Checks that the stream has the null model's text, one event per token.
void check_stream(const Site& site, int tokens) {
  const std::string sent =
      unchunked(exchange(site.server->port(), post(body(tokens), /*keep_alive=*/false)));
  std::string text;
  int pieces = 0, counted = 0;
  for (size_t at = 0; (at = sent.find("data: {", at)) != std::string::npos; ++at) {
    const auto event = parse_json(sent.substr(at + 6, sent.find("\n\n", at) - at - 6));
    SKIFF_CHECK(event, "an event is no JSON: {}", event.error().what);
    if (event->contains("usage") && !event->at("usage").is_null())
      counted = event->at("usage").at("completion_tokens").get<int>();
    if (event->at("choices").empty()) continue;
    const std::string piece = event->at("choices").at(0).at("delta").value("content", "");
    pieces += !piece.empty();
    text += piece;
  }
  const auto prompt = site.tokenizer->encode("Tell me about the river.", {});
  std::vector<Token> said;
  for (int i = 0; i < tokens; ++i)
    said.push_back(site.words[(prompt.size() + static_cast<size_t>(i)) % site.words.size()]);
  text::Detokenizer whole(*site.tokenizer, {});
  std::string expected;
  for (Token token : said) expected += whole.push(token);
  expected += whole.flush();
  SKIFF_CHECK(text == expected, "the stream says: {}", text);
  SKIFF_CHECK(counted == tokens && pieces == tokens, "{} tokens in {} pieces", counted, pieces);
  fmt::print("correct: {} tokens, one event each, the text as sent\n", tokens);
}

// The client is this program, run again in a process of its own.
int run_client(uint16_t port, int connections, int tokens) {
  const StreamReport r =
      run_streams({.port = port, .connections = connections, .body = body(tokens)});
  SKIFF_CHECK(r.failures == 0, "{} streams failed", r.failures);
  const uint64_t said = r.tokens;
  SKIFF_CHECK(said == static_cast<uint64_t>(connections) * static_cast<uint64_t>(tokens),
              "{} tokens", said);
  // Each stream has events for role, end, usage and [DONE] in addition to those of tokens. Tokens
  // that come faster than they are written share one.
  const uint64_t pieces = r.events - static_cast<uint64_t>(connections) * 4;
  SKIFF_CHECK(pieces <= said, "{} events of {} tokens", pieces, said);
  fmt::print(
      "{} streams x {} tokens: {:.0f} tokens/s (target 60000), {:.0f} bytes/token, client "
      "{:.2f} us CPU a token, {:.2f} tokens an event\n/health under this load: p50 {:.2f} ms, p99 "
      "{:.2f} ms (target 5), "
      "max {:.2f} ms of {}\n",
      connections, tokens, static_cast<double>(said) / r.seconds,
      static_cast<double>(r.bytes) / static_cast<double>(said),
      r.client_cpu / static_cast<double>(said) * 1e6,
      static_cast<double>(said) / static_cast<double>(pieces), r.health_p50 * 1e3,
      r.health_p99 * 1e3, r.health_max * 1e3, r.health_count);
  return 0;
}

void stream(const Site& site, int connections, int tokens) {
  const double before = cpu_seconds();
  std::fflush(stdout);
  const int status = std::system(fmt::format("exec /proc/{}/exe --client {} {} {}", getpid(),
                                             site.server->port(), connections, tokens)
                                     .c_str());
  SKIFF_CHECK(status == 0, "the client failed");
  fmt::print("server: {:.2f} us CPU a token\n",
             (cpu_seconds() - before) / (static_cast<double>(connections) * tokens) * 1e6);
}

void hold(const Site& site) {
  const double before = resident_mb();
  site.engine->pause(true);
  std::thread client([&] {
    HeldStreams held(site.server->port(), kIdleStreams, body(100));
    for (int i = 0; i < 100 && held.opened() < kIdleStreams; ++i)
      std::this_thread::sleep_for(100ms);
    const int opened = held.opened();
    std::this_thread::sleep_for(2s);
    const double cpu = cpu_seconds();
    std::this_thread::sleep_for(3s);
    fmt::print(
        "{} idle streams open: {:.0f} MB resident in all, {:.0f} MB more than before (target 200), "
        "the client's sockets included; CPU {:.2f} % of a core with a keep-alive each second\n",
        opened, resident_mb(), resident_mb() - before, (cpu_seconds() - cpu) / 3 * 100);
    SKIFF_CHECK(opened == kIdleStreams, "only {} streams opened", opened);
  });
  client.join();
  site.engine->pause(false);
}

void idle() {
  std::this_thread::sleep_for(500ms);
  const double before = cpu_seconds();
  std::this_thread::sleep_for(5s);
  fmt::print("idle: {:.3f} % of a core (target 1)\n", (cpu_seconds() - before) / 5 * 100);
}

int run(const std::string& folder, int connections, int tokens) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  const Site site(folder);
  check_stream(site, 300);
  hold(site);
  idle();
  fmt::print("a step of the null model takes 1 ms:\n");
  site.engine->pace(1ms);
  for (int round = 0; round < 3; ++round) stream(site, connections, tokens);
  fmt::print("a step of the null model takes no time:\n");
  site.engine->pace(0ms);
  for (int round = 0; round < 3; ++round) stream(site, connections, tokens);
  return 0;
}

}  // namespace
}  // namespace skiff::bench

int main(int argc, char** argv) {
  skiff::init_log("warning");
  const std::string folder = argc > 1 ? argv[1] : "models/demo";
  if (folder == "--client" && argc == 5)
    return skiff::bench::run_client(static_cast<uint16_t>(std::stoi(argv[2])), std::stoi(argv[3]),
                                    std::stoi(argv[4]));
  try {
    return skiff::bench::run(folder, argc > 2 ? std::stoi(argv[2]) : 64,
                             argc > 3 ? std::stoi(argv[3]) : 4000);
  } catch (const skiff::LoadError& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
