// `skiff predict`: prompts in, JSON lines out, in the order of the prompts.
#include <charconv>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>

#include "apps/commands.h"
#include "apps/npy.h"
#include "base/json.h"
#include "base/load_error.h"
#include "base/progress.h"
#include "base/queue.h"
#include "base/utf8.h"
#include "comm/communicator.h"
#include "engine/backend.h"
#include "engine/resolve.h"
#include "model/single.h"

namespace skiff::apps {
namespace {

// One prompt. `src` and `tgt` are copied to the output unchanged.
struct Item {
  Json src, tgt = "";
  std::optional<OrderedJson> messages;  // rendered by the chat template
  std::optional<std::string> text;
  std::vector<Token> tokens;
};

std::vector<Token> parse_ids(const std::string& list) {
  std::vector<Token> ids;
  const char* at = list.data();
  const char* end = at + list.size();
  while (at != end) {
    Token id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc() || (next != end && *next != ',') || (next != end && next + 1 == end))
      throw UsageError(fmt::format("--prompt-token-ids wants ids as in 1,2,3, not \"{}\"", list));
    ids.push_back(id);
    at = next == end ? end : next + 1;
  }
  if (ids.empty()) throw UsageError("--prompt-token-ids is empty");
  return ids;
}

OrderedJson as_user(const std::string& text) {
  return OrderedJson::array({{{"role", "user"}, {"content", text}}});
}

// Reads what `skiff chat` saves: the answer to the last question, if there is one, becomes `tgt`.
Item item_of_messages(const Json& line, const std::string& where) {
  for (const auto& [key, value] : line.items())
    if (key != "messages") fail_load("{}: \"{}\" beside \"messages\" is not read", where, key);
  OrderedJson messages = line.at("messages");
  if (!messages.is_array() || messages.empty()) fail_load("{}: \"messages\" is no list", where);
  Item item{.src = line.at("messages")};
  const OrderedJson& last = messages.back();
  if (last.is_object() && last.value("role", OrderedJson()) == "assistant") {
    item.tgt = last.value("content", OrderedJson(""));
    messages.erase(messages.size() - 1);
  }
  item.messages = std::move(messages);
  return item;
}

// Reads a line of PaddleNLP's data files: src is a text or the user's turns of a chat, and tgt (a
// text or a list) holds the answers so far.
Item item_of(const Json& line, const std::string& where) {
  if (line.is_object() && line.contains("messages")) return item_of_messages(line, where);
  if (!line.is_object() || !line.contains("src"))
    fail_load("{}: expected an object with \"src\" or \"messages\"", where);
  Item item{.src = line.at("src"), .tgt = line.value("tgt", Json(""))};
  if (item.src.is_string()) {
    item.text = item.src.get<std::string>();
    return item;
  }
  if (!item.src.is_array() || item.src.empty())
    fail_load("{}: \"src\" is neither a text nor a list of turns", where);
  item.messages = OrderedJson::array();
  for (size_t i = 0; i < item.src.size(); ++i) {
    if (!item.src[i].is_string()) fail_load("{}: turn {} of \"src\" is not a text", where, i);
    item.messages->push_back({{"role", "user"}, {"content", item.src[i].get<std::string>()}});
    if (i + 1 == item.src.size() || !item.tgt.is_array() || i >= item.tgt.size()) continue;
    if (!item.tgt[i].is_string()) fail_load("{}: answer {} of \"tgt\" is not a text", where, i);
    item.messages->push_back({{"role", "assistant"}, {"content", item.tgt[i].get<std::string>()}});
  }
  return item;
}

std::vector<Item> read_items(const Args& args) {
  std::vector<Item> items;
  for (const std::string& text : args.texts("prompt")) items.push_back({.src = text, .text = text});
  for (const std::string& list : args.texts("prompt-token-ids"))
    items.push_back({.src = list, .tokens = parse_ids(list)});
  if (args.given("data-file")) {
    const std::string path = args.text("data-file");
    std::ifstream in(path);
    if (!in) fail_load("{}: cannot be read (--data-file)", path);
    std::string line;
    for (size_t number = 1; std::getline(in, line); ++number) {
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      const std::string where = fmt::format("{}: line {}", path, number);
      const auto parsed = parse_json(line);
      if (!parsed) fail_load("{}: {}", where, parsed.error().what);
      items.push_back(item_of(*parsed, where));
    }
  }
  if (items.empty())
    throw UsageError("skiff predict needs --prompt, --prompt-token-ids or --data-file");
  return items;
}

// Tokenizes a text; checks a prompt of ids against the vocabulary.
void tokenize_items(std::vector<Item>& items, const text::Tokenizer* tokenizer,
                    const text::ChatTemplate* chat, const ModelSpec& spec) {
  for (Item& item : items) {
    if (item.messages) {
      if (!chat) fail_load("--chat: the model has no chat template; give one with --chat-template");
      text::Conversation conversation;
      conversation.messages = *item.messages;
      const auto prompt = chat->render(conversation);
      if (!prompt) throw LoadError(prompt.error().what);
      item.tokens = tokenizer->encode(*prompt, {.add_special = false, .parse_special = true});
    } else if (item.text) {
      if (!is_valid_utf8(*item.text)) fail_load("--prompt is not valid UTF-8");
      item.tokens = tokenizer->encode(*item.text, {});
      if (item.tokens.empty()) fail_load("the prompt is empty: it has no tokens");
    }
    for (Token id : item.tokens)
      if (id < 0 || id >= spec.vocab)
        fail_load("token id {} lies outside the vocabulary [0, {})", id, spec.vocab);
  }
}

void dump_logits(const Args& args, const engine::EngineConfig& config,
                 const model::ModelConfig& model, const std::vector<Token>& tokens) {
  const engine::Resolved resolved = engine::resolve(config, model);
  const auto ops = engine::make_ops(resolved);
  // It throws where memory is too small, before anything is loaded.
  model::plan_memory(model.spec, engine::memory_request(resolved, model.spec, *ops));
  const model::LoadedModel loaded = model::load_model(resolved.model.folder, model,
                                                      {.precision = resolved.precision,
                                                       .schemes = resolved.schemes,
                                                       .format = resolved.model.format,
                                                       .dummy_seed = resolved.model.seed},
                                                      *ops);
  const int length = static_cast<int>(tokens.size());
  const int asked = static_cast<int>(args.integer("chunk-size"));
  const int chunk = asked > 0 ? std::min(asked, length) : std::min(length, 512);
  comm::Mesh mesh = comm::make_solo_mesh();
  model::SingleSequence sequence(loaded, *ops, mesh, resolved.precision.act, length, chunk);
  NpyWriter out(args.text("dump-logits"), length, model.spec.vocab);
  for (int begin = 0; begin < length; begin += chunk)
    out.append(sequence.forward(std::span(tokens).subspan(
        static_cast<size_t>(begin), static_cast<size_t>(std::min(chunk, length - begin)))));
  out.close();
}

struct Answer {
  std::vector<Token> tokens;
  Finish finish = Finish::kNone;
};

std::string_view reason(Finish finish) {
  return finish == Finish::kStop ? "stop" : finish == Finish::kLength ? "length" : "error";
}

std::string json_line(const Item& item, const Answer& answer, const std::vector<Token>& stops,
                      const text::Tokenizer* tokenizer) {
  std::vector<Token> shown = answer.tokens;
  const bool ended = answer.finish == Finish::kStop && !shown.empty() &&
                     std::find(stops.begin(), stops.end(), shown.back()) != stops.end();
  if (ended) shown.pop_back();
  OrderedJson line;
  line["src"] = OrderedJson(item.src);
  line["tgt"] = OrderedJson(item.tgt);
  line["output"] = tokenizer ? tokenizer->decode(shown, /*skip_special=*/true) : "";
  line["token_ids"] = answer.tokens;
  line["finish_reason"] = reason(answer.finish);
  return line.dump();
}

// Submits all prompts at once; the scheduler decides which share a step.
std::vector<Answer> generate(const std::vector<Item>& items, const engine::EngineConfig& config,
                             const SamplingParams& params, const StopRule& stop) {
  Queue<std::vector<Event>> events;
  const auto llm =
      engine::Llm::start(config, [&](std::vector<Event> e) { events.push(std::move(e)); });
  for (size_t i = 0; i < items.size(); ++i) {
    const auto room = static_cast<size_t>(llm->resolved().limits.max_context);
    if (items[i].tokens.size() >= room)
      fail_load("prompt {} has {} tokens; with --max-model-len {} a prompt may have at most {}",
                i + 1, items[i].tokens.size(), room, room - 1);
  }
  for (size_t i = 0; i < items.size(); ++i) {
    NewSequence sequence{.id = i + 1, .prompt = items[i].tokens, .params = params, .stop = stop};
    sequence.params.seed += i;
    llm->submit(std::move(sequence));
  }
  std::vector<Answer> answers(items.size());
  const Progress bar = make_progress_bar(items.size() > 8 ? "prompts" : "");
  for (size_t done = 0; done < items.size();) {
    const auto batch = events.pop();
    SKIFF_CHECK(batch.has_value(), "the engine ended early");
    for (const Event& event : *batch) {
      Answer& answer = answers[event.seq - 1];
      answer.tokens.insert(answer.tokens.end(), event.tokens.begin(), event.tokens.end());
      if (event.finish == Finish::kNone) continue;
      if (event.finish == Finish::kExhausted) fail_load("prompt {}: {}", event.seq, event.why);
      answer.finish = event.finish;
      bar(++done, items.size());
    }
  }
  llm->stop(/*drain=*/true);
  return answers;
}

}  // namespace

int run_predict(const Args& args) {
  const std::string folder = model_folder(args);
  std::vector<Item> items = read_items(args);
  engine::EngineConfig config = engine_config(args, folder);
  const model::ModelConfig model = engine::read_model(config);
  const bool needs_text =
      std::ranges::any_of(items, [](const Item& i) { return i.tokens.empty(); });

  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<const text::ChatTemplate> chat;
  if (needs_text) {
    tokenizer = need_tokenizer(args, folder);
    chat = find_chat_template(args, folder);
  } else if (args.given("tokenizer")) {
    tokenizer = need_tokenizer(args, folder);
  } else if (auto found = text::load_tokenizer(folder)) {
    tokenizer = std::move(*found);
  }
  if (args.given("chat") ? args.on("chat") : chat != nullptr)
    for (Item& item : items)
      if (item.text) item.messages = as_user(*item.text);
  tokenize_items(items, tokenizer.get(), chat.get(), model.spec);

  if (args.given("dump-logits")) {
    if (items.size() != 1) throw UsageError("--dump-logits takes exactly one prompt");
    if (config.tensor_parallel > 1)
      throw UsageError("--dump-logits computes on one rank; leave --tensor-parallel-size out");
    dump_logits(args, config, model, items[0].tokens);
  }

  StopRule stop{.max_tokens = static_cast<int>(args.integer("max-tokens"))};
  const std::vector<Token> eos = eos_tokens(model, tokenizer.get());
  if (!args.on("ignore-eos")) stop.tokens = eos;
  std::ofstream file;
  const std::string path = args.text("output-file");
  if (!path.empty()) {
    file.open(path);
    if (!file) fail_load("{}: cannot be written (--output-file)", path);
  }
  config.quiet = items.size() <= 8;
  const std::vector<Answer> answers = generate(items, config, sampling_params(args), stop);
  std::ostream& out = path.empty() ? std::cout : file;
  for (size_t i = 0; i < items.size(); ++i)
    out << json_line(items[i], answers[i], stop.tokens, tokenizer.get()) << '\n';
  out.flush();
  if (!out) fail_load("{}: writing failed; is the disk full?", path.empty() ? "stdout" : path);
  return 0;
}

}  // namespace skiff::apps
