// Texts that a model writes itself: their tokens are distributed as those that it will see in use
// (Liu et al. 2023, LLM-QAT, arXiv 2305.17888, section 2.1, on data that the model generates).
#include <algorithm>
#include <array>

#include "apps/calibration.h"
#include "base/load_error.h"
#include "base/progress.h"
#include "base/queue.h"
#include "engine/resolved.h"

namespace skiff::apps {
namespace {

constexpr std::array<std::string_view, 24> kQuestions = {
    "What is the capital of France?",
    "Explain in two sentences why the sky is blue.",
    "中国的首都是哪里？",
    "What is 27 + 45?",
    "Write a short story about a boat and a lighthouse.",
    "List five animals that live in the sea.",
    "How do I boil an egg?",
    "请用一句话介绍一下你自己。",
    "Translate to French: The weather is nice today.",
    "Write a Python function that reverses a string.",
    "What is the difference between a virus and a bacterium?",
    "Which is larger, 3/4 or 5/8? Show your work.",
    "Give me three tips for sleeping better.",
    "为什么天空是蓝色的？",
    "Summarize the plot of Romeo and Juliet.",
    "Write a polite email that declines an invitation.",
    "What year did the Second World War end?",
    "A train travels 180 km in 2 hours. What is its speed?",
    "把这句话翻译成英文：我喜欢读书。",
    "Write a SQL query that counts the orders of each customer.",
    "Who wrote Don Quixote?",
    "Explain recursion to a child.",
    "写一首关于春天的短诗。",
    "What are the advantages and drawbacks of electric cars?",
};

std::vector<Token> prompt_of(size_t index, const text::Tokenizer* tokenizer,
                             const text::ChatTemplate* chat, const model::ModelConfig& model) {
  if (tokenizer && chat) {
    text::Conversation conversation;
    conversation.messages = OrderedJson::array(
        {{{"role", "user"}, {"content", std::string(kQuestions[index % kQuestions.size()])}}});
    if (const auto prompt = chat->render(conversation))
      return tokenizer->encode(*prompt, {.add_special = false, .parse_special = true});
  }
  std::vector<Token> start;
  if (tokenizer) start = tokenizer->encode("", {});
  if (start.empty()) start = {std::max(0, model.generation.bos)};
  return start;
}

}  // namespace

std::vector<quantize::Sequence> own_texts(const Args& args, const std::string& folder,
                                          const model::ModelConfig& model, int count, int length) {
  std::shared_ptr<const text::Tokenizer> tokenizer;
  if (auto found = text::load_tokenizer(tokenizer_folder(args, folder)))
    tokenizer = std::move(*found);
  const auto chat = tokenizer ? find_chat_template(args, folder) : nullptr;
  engine::EngineConfig config;
  config.model = folder;
  config.device = "cpu";
  config.threads = static_cast<int>(args.integer("threads"));
  config.max_num_seqs = 16;
  config.quiet = true;
  config.version = SKIFF_VERSION;
  Queue<std::vector<Event>> events;
  const auto llm =
      engine::Llm::start(config, [&](std::vector<Event> e) { events.push(std::move(e)); });
  const int room = std::min(length, llm->resolved().limits.max_context);
  std::vector<quantize::Sequence> texts(static_cast<size_t>(count));
  for (size_t i = 0; i < texts.size(); ++i) {
    texts[i].tokens = prompt_of(i, tokenizer.get(), chat.get(), model);
    texts[i].first = texts[i].tokens.size();
    const int left = room - static_cast<int>(texts[i].tokens.size());
    if (left < 1)
      fail_load("--sequence-length {} leaves no room for an answer to a prompt of {} tokens",
                length, texts[i].tokens.size());
    NewSequence sequence{.id = i + 1, .prompt = texts[i].tokens};
    sequence.params.seed = static_cast<uint64_t>(args.integer("seed")) + i;
    sequence.stop = {.max_tokens = left, .tokens = eos_tokens(model, tokenizer.get())};
    llm->submit(std::move(sequence));
  }
  const Progress bar = make_progress_bar("texts");
  for (size_t done = 0; done < texts.size();) {
    const auto batch = events.pop();
    SKIFF_CHECK(batch.has_value(), "the engine ended early");
    for (const Event& event : *batch) {
      auto& tokens = texts[event.seq - 1].tokens;
      tokens.insert(tokens.end(), event.tokens.begin(), event.tokens.end());
      if (event.finish == Finish::kNone) continue;
      if (event.finish == Finish::kExhausted) fail_load("text {}: {}", event.seq, event.why);
      bar(++done, texts.size());
    }
  }
  llm->stop(/*drain=*/true);
  std::erase_if(texts, [](const auto& text) { return text.tokens.size() <= text.first; });
  if (texts.empty()) fail_load("the model writes nothing to calibrate with; give --data");
  return texts;
}

}  // namespace skiff::apps
