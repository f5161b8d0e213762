#include "text/sentencepiece_family.h"

namespace skiff::text {
namespace {

// ChatGLM2 and 3 share class and model; the roles are ChatGLM3's and lie in the padding of
// ChatGLM2's vocabulary, so they do no harm where the configuration does not say which model it is.
// "sop" and "eop" occur in ordinary texts; they are special only right behind another special
// token, where templates put them.
SentencePieceFamily chatglm(const TokenizerConfig& config) {
  SentencePieceFamily out;
  const auto append = [&](const char* content, bool glued) {
    out.appended.push_back({.content = content, .special = true, .glued = glued});
  };
  for (const char* mask : {"[MASK]", "[gMASK]", "[sMASK]"}) append(mask, false);
  for (const char* piece : {"sop", "eop"}) append(piece, true);
  if (config.name_or_path.find("chatglm2") == std::string::npos)
    for (const char* role : {"<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"})
      append(role, false);
  out.before = {"[gMASK]", "sop"};
  return out;
}

}  // namespace

SentencePieceFamily sentencepiece_family(const TokenizerConfig& config) {
  const std::string& kind = config.tokenizer_class;
  if (kind.starts_with("ChatGLMTokenizer")) return chatglm(config);
  SentencePieceFamily out;
  out.bos = kind.empty() || config.is_llama() || kind.starts_with("BaichuanTokenizer");
  return out;
}

}  // namespace skiff::text
