#include "apps/calibration.h"

#include <algorithm>
#include <fstream>

#include "base/json.h"
#include "base/load_error.h"
#include "base/random.h"
#include "base/utf8.h"

namespace skiff::apps {
namespace {

using quantize::Sequence;

constexpr size_t kShortest = 2;  // tokens, so that one of them is predicted

class Reader {
 public:
  Reader(const Args& args, const std::string& folder, const model::ModelConfig& model)
      : args_(args),
        folder_(folder),
        eos_(model.generation.eos),
        vocab_(model.spec.vocab),
        length_(static_cast<size_t>(args.integer("sequence-length"))) {}

  // Appends what one line holds; long texts become several sequences.
  void read(const Json& line, const std::string& where, std::vector<Sequence>& to) {
    if (!line.is_object()) fail_load("{}: expected an object", where);
    try {
      if (line.contains("ids")) return cut(ids_of(line.at("ids"), where), to);
      if (line.contains("messages")) return add_chat(line, where, to);
      if (line.contains("text")) {
        const auto text = line.at("text").get<std::string>();
        return cut(tokenizer().encode(text, {}), to);
      }
    } catch (const nlohmann::json::exception&) {
      fail_load("{}: \"text\" or \"answer\" is no text, or \"thinking\" no truth value", where);
    }
    fail_load("{}: has none of \"text\", \"messages\" and \"ids\"", where);
  }

 private:
  const text::Tokenizer& tokenizer() {
    if (!tokenizer_) tokenizer_ = need_tokenizer(args_, folder_);
    return *tokenizer_;
  }
  std::vector<int32_t> ids_of(const Json& list, const std::string& where) const {
    if (!list.is_array()) fail_load("{}: \"ids\" is no list", where);
    std::vector<int32_t> ids;
    for (const Json& id : list) {
      if (!id.is_number_integer() || id < 0 || id >= vocab_)
        fail_load("{}: {} is no token id in [0, {})", where, id.dump().substr(0, 40), vocab_);
      ids.push_back(id.get<int32_t>());
    }
    return ids;
  }
  // What the model would answer counts, or, in a conversation without an answer, all of it.
  void add_chat(const Json& line, const std::string& where, std::vector<Sequence>& to) {
    if (!chat_) chat_ = find_chat_template(args_, folder_);
    if (!chat_)
      fail_load(
          "{}: the model has no chat template for \"messages\"; give one with "
          "--chat-template",
          where);
    text::Conversation conversation{.messages = line.at("messages")};
    if (line.contains("tools")) conversation.tools = line.at("tools");
    if (line.value("thinking", false)) conversation.kwargs["enable_thinking"] = true;
    const bool answered = line.contains("answer");
    conversation.add_generation_prompt = answered;
    const auto prompt = chat_->render(conversation);
    if (!prompt) fail_load("{}: {}", where, prompt.error().what);
    auto ids = tokenizer().encode(*prompt, {.add_special = false, .parse_special = true});
    Sequence sequence{.tokens = {}, .first = 1};
    if (answered) {
      sequence.first = std::max<size_t>(1, ids.size());
      const auto answer = tokenizer().encode(line.at("answer").get<std::string>(),
                                             {.add_special = false, .parse_special = false});
      ids.insert(ids.end(), answer.begin(), answer.end());
      if (!eos_.empty()) ids.push_back(eos_.front());
    }
    if (ids.size() > length_) ids.resize(length_);
    if (ids.size() < kShortest || sequence.first >= ids.size()) return;
    sequence.tokens = std::move(ids);
    to.push_back(std::move(sequence));
  }
  void cut(const std::vector<int32_t>& ids, std::vector<Sequence>& to) const {
    for (size_t at = 0; at < ids.size(); at += length_) {
      const size_t end = std::min(at + length_, ids.size());
      if (end - at < kShortest) break;
      to.push_back({.tokens = {ids.begin() + static_cast<std::ptrdiff_t>(at),
                               ids.begin() + static_cast<std::ptrdiff_t>(end)}});
    }
  }

  const Args& args_;
  const std::string& folder_;
  const std::vector<int32_t> eos_;
  const int vocab_;
  const size_t length_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::shared_ptr<const text::ChatTemplate> chat_;
};

std::vector<Sequence> read_data(const Args& args, const std::string& folder,
                                const model::ModelConfig& model) {
  const std::string path = args.text("data");
  std::ifstream in(path);
  if (!in) fail_load("{}: cannot be read (--data)", path);
  Reader reader(args, folder, model);
  std::vector<Sequence> all;
  std::string line;
  for (size_t number = 1; std::getline(in, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = fmt::format("{}: line {}", path, number);
    const auto parsed = parse_json(line);
    if (!parsed) fail_load("{}: {}", where, parsed.error().what);
    reader.read(*parsed, where, all);
  }
  if (all.empty()) fail_load("{}: holds no text of two tokens (--data)", path);
  return all;
}

// Fisher and Yates, by a generator of our own, so that every build draws the same.
void shuffle(std::vector<Sequence>& all, uint64_t seed) {
  uint64_t state = seed;
  for (size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[splitmix64(state) % i]);
}

}  // namespace

// Where there are too few texts for both parts, each gets its share.
quantize::Data calibration_data(const Args& args, const std::string& folder,
                                const model::ModelConfig& model) {
  const auto samples = static_cast<size_t>(args.integer("samples"));
  const auto heldout = static_cast<size_t>(args.integer("eval-samples"));
  const size_t wanted = samples + heldout;
  if (wanted == 0) return {};
  std::vector<Sequence> all = args.given("data")
                                  ? read_data(args, folder, model)
                                  : own_texts(args, folder, model, static_cast<int>(wanted),
                                              static_cast<int>(args.integer("sequence-length")));
  shuffle(all, static_cast<uint64_t>(args.integer("seed")));
  if (all.size() > wanted) all.resize(wanted);
  size_t measured = std::min(heldout, all.size());
  if (all.size() < wanted) {
    measured = all.size() * heldout / wanted;
    if (heldout > 0 && samples > 0 && all.size() < 2)
      fail_load(
          "one text cannot be both calibrated on and measured with; give more in --data, or "
          "--eval-samples 0");
    if (heldout > 0 && samples > 0) measured = std::clamp<size_t>(measured, 1, all.size() - 1);
  }
  quantize::Data data;
  const auto split = all.end() - static_cast<std::ptrdiff_t>(measured);
  data.calibration.assign(all.begin(), split);
  data.heldout.assign(split, all.end());
  size_t predicted = 0;
  for (const Sequence& s : data.heldout) predicted += s.tokens.size() - s.first;
  if (!data.heldout.empty() && predicted < 2)
    fail_load("the held-out texts have {} tokens to predict; give more data", predicted);
  return data;
}

}  // namespace skiff::apps
