// `skiff serve`: engine, service and server, put together and taken down in order.
#include <filesystem>
#include <thread>

#include "apps/commands.h"
#include "apps/signals.h"
#include "base/load_error.h"
#include "base/log.h"
#include "serve/engine_service.h"
#include "serve/server.h"

namespace skiff {
namespace {

std::vector<std::string> model_names(const Args& args, const std::string& folder) {
  std::vector<std::string> names = args.texts("served-model-name");
  if (names.empty()) {
    const auto path = std::filesystem::weakly_canonical(folder);
    names.push_back(path.filename().string());
    names.push_back(folder);
  }
  return names;
}

SamplingDefaults defaults_of(const GenerationDefaults& g) {
  return {.temperature = g.do_sample ? g.temperature : 0,
          .top_p = g.top_p,
          .repetition = g.repetition,
          .top_k = g.top_k};
}

ServiceConfig service_config(const Args& args, const std::string& name, const Llm& llm,
                             const Tokenizer& tokenizer) {
  ServiceConfig config;
  config.model_name = name;
  config.max_model_len = llm.config().max_model_len;
  config.vocab_size = llm.model().spec.vocab;
  config.eos = eos_tokens(llm.model(), &tokenizer);
  config.max_logprobs = static_cast<int>(args.integer("max-logprobs"));
  if (!args.on("enable-logprob")) config.max_logprobs = 0;
  config.max_num_seqs = llm.config().max_num_seqs;
  config.seed = static_cast<uint64_t>(args.integer("seed"));
  return config;
}

ServerConfig server_config(const Args& args, const std::string& folder, const Llm& llm) {
  ServerConfig config;
  config.http.host = args.text("host");
  config.http.port = static_cast<uint16_t>(args.integer("port"));
  config.http.worker_threads = static_cast<int>(args.integer("workers"));
  config.http.max_body = static_cast<size_t>(args.integer("max-body-size"));
  config.model_names = model_names(args, folder);
  config.model_path = folder;
  config.version = SKIFF_VERSION;
  config.defaults = defaults_of(llm.model().generation);
  config.refuse_unknown_fields = args.on("refuse-unknown-fields");
  config.max_concurrency = static_cast<int>(args.integer("max-concurrency"));
  return config;
}

void say_ready(const std::string& host, uint16_t port, const std::string& model) {
  const std::string reachable = host == "0.0.0.0" || host == "::" ? "127.0.0.1" : host;
  fmt::print(
      "\nServing {} on http://{}:{} (Ctrl-C stops). Try it:\n\n"
      "curl http://{}:{}/v1/chat/completions -H 'Content-Type: application/json' "
      "-d '{{\"messages\": [{{\"role\": \"user\", \"content\": "
      "\"What is the capital of France?\"}}]}}'\n",
      model, reachable, port, reachable, port);
  std::fflush(stdout);
}

// What would leave a server more open than its owner believes is refused, not warned about.
void refuse_missing_protection(const Args& args) {
  for (const char* flag : {"api-key", "ssl-certfile", "ssl-keyfile"})
    if (args.given(flag))
      fail_load(
          "--{} is not there yet, and starting without it would leave the server open; "
          "put it behind a proxy and drop the flag",
          flag);
  if (args.given("metrics-port") && args.integer("metrics-port") != args.integer("port"))
    spdlog::warn("--metrics-port {} is ignored: metrics are on the main port {}",
                 args.integer("metrics-port"), args.integer("port"));
}

// The first signal lets replies finish, the second cuts them off.
bool wind_down(Server& server, double seconds) {
  spdlog::info("stopping: finishing replies for up to {} s; a second signal cuts them off",
               seconds);
  std::thread second([&] {
    if (wait_for_signal() != 0) server.force();
  });
  const bool clean = server.drain(seconds);
  stop_waiting();
  second.join();
  return clean;
}

}  // namespace

int run_serve(const Args& args) {
  refuse_missing_protection(args);
  const std::string folder = model_folder(args);
  std::shared_ptr<const Tokenizer> tokenizer = need_tokenizer(args, folder);
  std::shared_ptr<const ChatTemplate> chat = find_chat_template(args, folder);
  if (!chat) spdlog::warn("{} has no chat template: chat completions will be refused", folder);

  auto events = std::make_shared<EventQueue>();
  const auto llm = Llm::start(engine_config(args, folder), [events](std::vector<Event> batch) {
    events->push(std::move(batch));
  });
  LlmPort port(*llm);
  EngineService service(service_config(args, model_names(args, folder).front(), *llm, *tokenizer),
                        port, events, tokenizer, chat);
  Server server(server_config(args, folder, *llm), service);
  catch_signals();
  server.start();
  say_ready(args.text("host"), server.port(), model_names(args, folder).front());

  wait_for_signal();
  const bool clean =
      wind_down(server, static_cast<double>(args.integer("timeout-graceful-shutdown")));
  server.stop();
  service.stop();
  llm->stop(/*drain=*/false);
  spdlog::info("stopped{}", clean ? "" : "; some replies were cut off");
  return 0;
}

}  // namespace skiff
