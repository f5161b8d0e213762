#include "text/tiktoken_family.h"

#include "base/load_error.h"

namespace skiff::text {
namespace {

// The pattern of cl100k; Qwen's differs by splitting numbers into single digits.
constexpr std::string_view kWordsDigits3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kWordsDigits1 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

void number_off(std::vector<std::string>& out, const char* stem, int begin, int end) {
  for (int i = begin; i < end; ++i) out.push_back(fmt::format("<|{}_{}|>", stem, i));
}

// There are 256 in all. Later releases name some of the reserved ones in tokenizer_config.json.
TiktokenFamily llama3() {
  TiktokenFamily out{.name = "Llama 3", .pattern = kWordsDigits3};
  constexpr const char* kReserved = "reserved_special_token";
  out.specials = {"<|begin_of_text|>", "<|end_of_text|>"};
  number_off(out.specials, kReserved, 0, 4);
  out.specials.insert(out.specials.end(), {"<|start_header_id|>", "<|end_header_id|>"});
  number_off(out.specials, kReserved, 4, 5);
  out.specials.emplace_back("<|eot_id|>");
  number_off(out.specials, kReserved, 5, 251);
  out.bos = out.specials[0];
  out.eos = out.specials[1];
  out.before = {out.bos};
  return out;
}

TiktokenFamily qwen() {
  TiktokenFamily out{.name = "Qwen", .pattern = kWordsDigits1, .nfc = true};
  out.specials = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  number_off(out.specials, "extra", 0, 205);
  out.eos = out.specials[0];
  return out;
}

// Its special tokens are all in tokenizer_config.json.
TiktokenFamily glm4() {
  TiktokenFamily out{.name = "GLM-4", .pattern = kWordsDigits3};
  out.before = {"[gMASK]", "<sop>"};
  out.eos = "<|endoftext|>";
  return out;
}

TiktokenFamily cl100k() {
  TiktokenFamily out{.name = "cl100k", .pattern = kWordsDigits3};
  out.specials = {"", "<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"};
  out.specials.resize(20);
  out.specials.emplace_back("<|endofprompt|>");
  out.eos = "<|endoftext|>";
  return out;
}

struct Row {
  std::string_view tokenizer_class;  // selects the family if it is not empty
  size_t ranks;                      // selects the family if no class does; 0: never
  TiktokenFamily (*make)();
};

constexpr Row kFamilies[] = {
    {"QWenTokenizer", 151643, qwen},
    {"ChatGLM4Tokenizer", 0, glm4},
    {"", 128000, llama3},
    {"", 100256, cl100k},
};

}  // namespace

TiktokenFamily tiktoken_family(const TokenizerConfig& config, size_t ranks,
                               const std::string& where) {
  const std::string& kind = config.tokenizer_class;
  for (const Row& row : kFamilies)
    if (!row.tokenizer_class.empty() && row.tokenizer_class == kind) return row.make();
  // These classes identify no family: any fast tokenizer's configuration may name them.
  const bool silent = kind.empty() || kind == "PreTrainedTokenizerFast" ||
                      kind.starts_with("LlamaTokenizer") || kind.starts_with("GPT2Tokenizer") ||
                      kind.starts_with("Qwen2Tokenizer");
  for (const Row& row : kFamilies)
    if (silent && row.ranks == ranks) return row.make();
  fail_load(
      "{}: a tiktoken file of {} ranks with tokenizer_class \"{}\" is not supported: it does not "
      "say "
      "how texts are split; put the tokenizer.json of the model beside it",
      where, ranks, kind);
}

}  // namespace skiff::text
