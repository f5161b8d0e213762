// Measures what quantized weights cost in quality: a table of each scheme of --quantization against
// the same model in float32, teacher-forced.
//   bench_quality MODEL FILE [LINES]
// FILE holds JSON lines: {"messages": [...], "answer": "..."} as in tools/demo_model/heldout.jsonl,
// of which the tokens of answers count, or {"ids": [...]}, of which all count.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "arch/shard.h"
#include "base/json.h"
#include "comm/communicator.h"
#include "model/single.h"
#include "model/stored_forms.h"
#include "text/chat/chat_template.h"
#include "text/tokenizer.h"

namespace skiff::bench {
namespace {

// Tokens from `first` on are predicted.
struct Text {
  std::vector<int32_t> ids;
  size_t first = 1;
};

class Reader {
 public:
  explicit Reader(const std::string& folder)
      : tokenizer_(text::load_tokenizer(folder)),
        chat_(text::load_chat_template(folder)),
        eos_(model::read_model_config(folder).generation.eos) {}

  Text read(const Json& line) const {
    if (line.contains("ids")) return {.ids = line.at("ids").get<std::vector<int32_t>>()};
    if (!tokenizer_ || !chat_) fail_load("the model has no tokenizer or no chat template");
    text::Conversation conversation{.messages = line.at("messages")};
    if (line.contains("tools")) conversation.tools = line.at("tools");
    if (line.value("thinking", false)) conversation.kwargs["enable_thinking"] = true;
    const auto prompt = (*chat_)->render(conversation);
    if (!prompt) fail_load("{}", prompt.error().what);
    const text::Tokenizer& tokenizer = **tokenizer_;
    Text out;
    out.ids = tokenizer.encode(*prompt, {.add_special = false, .parse_special = true});
    out.first = out.ids.size();
    const auto answer = tokenizer.encode(line.at("answer").get<std::string>(),
                                         {.add_special = false, .parse_special = false});
    out.ids.insert(out.ids.end(), answer.begin(), answer.end());
    if (!eos_.empty()) out.ids.push_back(eos_.front());
    return out;
  }

 private:
  Result<std::unique_ptr<text::Tokenizer>> tokenizer_;
  Result<std::unique_ptr<text::ChatTemplate>> chat_;
  std::vector<int32_t> eos_;
};

// Log-probabilities of each predicted token's row, and what was predicted.
struct Run {
  std::vector<std::vector<float>> rows;
  std::vector<int32_t> wanted;
  std::vector<size_t> text_of_row;
};

std::vector<float> log_softmax(const float* x, int64_t n) {
  const float best = *std::max_element(x, x + n);
  double total = 0;
  for (int64_t i = 0; i < n; ++i) total += std::exp(static_cast<double>(x[i]) - best);
  const double shift = best + std::log(total);
  std::vector<float> out(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) out[static_cast<size_t>(i)] = static_cast<float>(x[i] - shift);
  return out;
}

Run run(const std::string& folder, const std::vector<Text>& texts, DType dtype,
        const model::SchemeChoice& schemes) {
  const auto ops = make_cpu_ops(0);
  model::ModelConfig config = model::read_model_config(folder);
  if (schemes.of(model::LayerKind::kExperts) != schemes.of(model::LayerKind::kDense))
    separate_shared_experts(config.spec);
  const model::LoadedModel model = model::load_model(
      folder, config, {.precision = uniform_precision(dtype), .schemes = schemes, .progress = {}},
      *ops);
  comm::Mesh mesh = comm::make_solo_mesh();
  Run out;
  for (size_t t = 0; t < texts.size(); ++t) {
    const Text& text = texts[t];
    const auto length = static_cast<int>(text.ids.size());
    model::SingleSequence sequence(model, *ops, mesh, dtype, length, length);
    const Tensor logits = sequence.forward(text.ids);
    for (size_t i = text.first; i < text.ids.size(); ++i) {
      out.rows.push_back(
          log_softmax(logits.row<float>(static_cast<int64_t>(i) - 1), logits.cols()));
      out.wanted.push_back(text.ids[i]);
      out.text_of_row.push_back(t);
    }
  }
  return out;
}

struct Quality {
  double kl = 0, kl_999 = 0;             // mean, and 99.9 % of tokens are below
  double agreement = 0;                  // how often the most likely token is the same
  double log_perplexity = 0, error = 0;  // difference of means, and its paired standard error
  double accuracy = 0;                   // texts all of whose tokens are the most likely ones
};

size_t first_choice(const std::vector<float>& row) {
  return static_cast<size_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

Quality compare(const Run& base, const Run& run, size_t texts) {
  const size_t n = run.rows.size();
  std::vector<double> divergence(n), change(n);
  std::vector<bool> right(texts, true);
  Quality out;
  for (size_t r = 0; r < n; ++r) {
    const std::vector<float>&p = base.rows[r], &q = run.rows[r];
    for (size_t i = 0; i < p.size(); ++i)
      divergence[r] += std::exp(static_cast<double>(p[i])) * (static_cast<double>(p[i]) - q[i]);
    const auto wanted = static_cast<size_t>(run.wanted[r]);
    change[r] = static_cast<double>(p[wanted]) - q[wanted];
    const size_t chosen = first_choice(q);
    out.agreement += chosen == first_choice(p) ? 1 : 0;
    if (chosen != wanted) right[run.text_of_row[r]] = false;
    out.kl += divergence[r];
    out.log_perplexity += change[r];
  }
  const auto count = static_cast<double>(n);
  out.kl /= count, out.agreement /= count, out.log_perplexity /= count;
  for (const double c : change) out.error += std::pow(c - out.log_perplexity, 2);
  out.error = std::sqrt(out.error / (count * (count - 1)));
  std::ranges::sort(divergence);
  out.kl_999 = divergence[static_cast<size_t>(0.999 * (count - 1))];
  out.accuracy = static_cast<double>(std::ranges::count(right, true)) / static_cast<double>(texts);
  return out;
}

void print(std::string_view name, const Quality& q) {
  fmt::print("| {} | {:.2e} | {:.2e} | {:.2f} % | {:+.5f} +- {:.5f} | {:.1f} % |\n", name, q.kl,
             q.kl_999, 100 * q.agreement, q.log_perplexity, q.error, 100 * q.accuracy);
}

int measure(const std::string& folder, const std::string& file, size_t most) {
  const Reader reader(folder);
  std::vector<Text> texts;
  std::ifstream in(file);
  for (std::string line; texts.size() < most && std::getline(in, line);)
    texts.push_back(reader.read(Json::parse(line)));
  if (texts.empty()) fail_load("{}: no lines", file);
  const ModelSpec spec = model::read_model_config(folder).spec;
  const Run base = run(folder, texts, DType::kF32, {});
  fmt::print("{}: {} texts, {} tokens\n\n", folder, texts.size(), base.rows.size());
  fmt::print(
      "| weights | mean KL | 99.9 % KL | same first choice | log perplexity | held-out accuracy |\n"
      "|---|---|---|---|---|---|\n");
  print("float32", compare(base, base, texts.size()));
  print("bfloat16", compare(base, run(folder, texts, DType::kBF16, {}), texts.size()));
  for (const model::Scheme& scheme : model::schemes()) {
    const model::SchemeChoice choice = model::choose_schemes(scheme.name, "", spec);
    print(scheme.name, compare(base, run(folder, texts, DType::kBF16, choice), texts.size()));
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace skiff::bench

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: bench_quality MODEL FILE [LINES]\n");
    return 2;
  }
  try {
    return skiff::bench::measure(argv[1], argv[2],
                                 argc > 3 ? static_cast<size_t>(std::atoll(argv[3])) : SIZE_MAX);
  } catch (const std::exception& e) {
    fmt::print(stderr, "bench_quality: {}\n", e.what());
    return 1;
  }
}
