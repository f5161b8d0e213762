// `skiff chat`: a conversation in the terminal.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "apps/chat/line_editor.h"
#include "apps/chat/session.h"
#include "apps/commands.h"
#include "base/load_error.h"
#include "base/log.h"
#include "engine/resolved.h"
#include "serve/service/engine_service.h"

namespace skiff::apps {
namespace {

bool set_in_environment(const char* name) {
  const char* value = std::getenv(name);
  return value && *value;
}

// A terminal that understands escape codes.
bool capable() {
  const char* term = std::getenv("TERM");
  return term && *term && std::string_view(term) != "dumb";
}

Look look_of(const Args& args) {
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  return {.interactive = terminal && isatty(STDIN_FILENO) && !args.given("message"),
          .colour = terminal && capable() && !set_in_environment("NO_COLOR")};
}

std::unique_ptr<LineSource> lines_of(const Look& look, ChatSignals& signals,
                                     const HistoryFile& history) {
  if (look.interactive && capable())
    return make_line_editor(signals, history.load(), chat_completion);
  return std::make_unique<PlainLines>(STDIN_FILENO, signals, look.interactive ? stdout : nullptr);
}

std::string folder_name(const std::string& folder) {
  const std::filesystem::path path = std::filesystem::weakly_canonical(folder);
  return path.filename().empty() ? folder : path.filename().string();
}

service::ServiceConfig service_config(const engine::Llm& llm, const text::Tokenizer& tokenizer) {
  service::ServiceConfig config;
  config.max_model_len = llm.resolved().limits.max_context;
  config.vocab_size = llm.model().spec.vocab;
  config.eos = eos_tokens(llm.model(), &tokenizer);
  return config;
}

int converse(const Args& args, const Look& look, service::Service& service,
             const model::ModelConfig& model, const std::string& name) {
  ChatSignals signals(look.interactive);
  const bool keep = look.interactive && args.on("history");
  const HistoryFile history(keep ? history_path(std::getenv("XDG_STATE_HOME"), std::getenv("HOME"))
                                 : "");
  const auto lines = lines_of(look, signals, history);
  ChatScreen screen(look, stdout, stderr);
  ChatSession session({service, signals, *lines, history, screen},
                      ChatSettings(args, model.generation), name);
  session.set_system(args.text("system"));
  screen.aside(fmt::format("{}, a context of {} tokens. /help lists commands, Ctrl-D leaves.", name,
                           service.max_model_len()));
  const int code = args.given("message") ? session.ask_once(args.text("message")) : session.run();
  if (screen.failed()) fail_load("cannot write to stdout");
  return code;
}

}  // namespace

int run_chat(const Args& args) {
  const std::string folder = model_folder(args);
  const Look look = look_of(args);
  if (!args.given("log-level")) spdlog::set_level(spdlog::level::warn);
  const model::ModelConfig model = model::read_model_config(folder, args.text("model-config-name"));
  static_cast<void>(ChatSettings(args, model.generation));  // throws before anything is loaded
  std::shared_ptr<const text::Tokenizer> tokenizer = need_tokenizer(args, folder);
  std::shared_ptr<const text::ChatTemplate> chat = find_chat_template(args, folder);
  if (!chat) fail_load("{} has no chat template; give one with --chat-template", folder);
  auto events = std::make_shared<service::EventQueue>();
  engine::EngineConfig config = engine_config(args, folder);
  if (!args.given("max-num-seqs")) config.max_num_seqs = 1;
  config.quiet = !look.interactive && !args.given("log-level");
  const auto llm = engine::Llm::start(
      config, [events](std::vector<Event> batch) { events->push(std::move(batch)); });
  service::LlmPort port(*llm);
  service::EngineService service(service_config(*llm, *tokenizer), port, events, tokenizer, chat);
  const int code = converse(args, look, service, model, folder_name(folder));
  service.stop();
  llm->stop(/*drain=*/false);
  return code;
}

}  // namespace skiff::apps
