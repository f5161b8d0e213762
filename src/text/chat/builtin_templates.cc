#include "text/chat/builtin_templates.h"

#include <algorithm>
#include <filesystem>

namespace skiff::text {
namespace {

namespace fs = std::filesystem;

// Turns alternate, the system text goes into the first user turn, and each pair of turns is a
// sequence of its own with BOS and EOS.
constexpr BuiltinTemplate kLlama2{"Llama 2 chat", R"({%- set ns = namespace(system='') -%}
{%- set turns = messages -%}
{%- if messages and messages[0].role == 'system' -%}
  {%- set ns.system = '<<SYS>>\n' ~ messages[0].content ~ '\n<</SYS>>\n\n' -%}
  {%- set turns = messages[1:] -%}
{%- endif -%}
{%- for turn in turns -%}
  {%- if turn.role != ('assistant' if loop.index0 is odd else 'user') -%}
    {{- raise_exception('after an optional system message, roles must alternate between user and assistant') -}}
  {%- endif -%}
  {%- if turn.role == 'user' -%}
    {{- (bos_token or '') ~ '[INST] ' ~ ((ns.system if loop.first else '') ~ turn.content).strip() ~ ' [/INST]' -}}
  {%- else -%}
    {{- ' ' ~ turn.content.strip() ~ ' ' ~ (eos_token or '') -}}
  {%- endif -%}
{%- endfor -%})"};

constexpr BuiltinTemplate kBaichuan2{"Baichuan2 chat", R"({%- for turn in messages -%}
  {%- if turn.role == 'system' -%}
    {%- if not loop.first -%}{{- raise_exception('a system message must come first') -}}{%- endif -%}
    {{- turn.content -}}
  {%- elif turn.role == 'user' -%}
    {{- '<reserved_106>' ~ turn.content -}}
  {%- else -%}
    {{- '<reserved_107>' ~ turn.content -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<reserved_107>' -}}{%- endif -%})"};

// Unlike its successor, this model was trained with an EOS behind every reply.
constexpr BuiltinTemplate kBaichuan1{"Baichuan chat", R"({%- for turn in messages -%}
  {%- if turn.role == 'system' -%}
    {%- if not loop.first -%}{{- raise_exception('a system message must come first') -}}{%- endif -%}
    {{- turn.content -}}
  {%- elif turn.role == 'user' -%}
    {{- '<reserved_102>' ~ turn.content -}}
  {%- else -%}
    {{- '<reserved_103>' ~ turn.content ~ (eos_token or '') -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<reserved_103>' -}}{%- endif -%})"};

// Rounds are counted from 1; a round is a question and, unless it is the last, its answer.
constexpr BuiltinTemplate kChatGlm2{"ChatGLM2", R"({%- set ns = namespace(round=0) -%}
{%- for turn in messages -%}
  {%- if turn.role == 'system' -%}
    {{- turn.content ~ '\n\n' -}}
  {%- elif turn.role == 'user' -%}
    {%- set ns.round = ns.round + 1 -%}
    {{- '[Round ' ~ ns.round ~ ']\n\n问：' ~ turn.content ~ '\n\n' -}}
    {%- if not loop.last or add_generation_prompt -%}{{- '答：' -}}{%- endif -%}
  {%- else -%}
    {{- turn.content ~ ('' if loop.last else '\n\n') -}}
  {%- endif -%}
{%- endfor -%})"};

// The blank after the line end is how its SentencePiece tokenizer starts every piece of text.
constexpr BuiltinTemplate kChatGlm3{"ChatGLM3", R"({%- for turn in messages -%}
  {%- set role = 'observation' if turn.role == 'tool' else turn.role -%}
  {{- '<|' ~ role ~ '|>\n ' ~ turn.content -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%})"};

constexpr BuiltinTemplate kGlm4{"GLM-4 chat", R"({%- for turn in messages -%}
  {%- set role = 'observation' if turn.role == 'tool' else turn.role -%}
  {{- '<|' ~ role ~ '|>\n' ~ turn.content -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%})"};

std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  return text;
}

Json read_or_nothing(const fs::path& path) try {
  std::error_code unused;
  if (!fs::is_regular_file(path, unused)) return Json::object();
  Json file = read_json_file(path.string());
  return file.is_object() ? file : Json::object();
} catch (const LoadError&) {
  return Json::object();
}

std::string text_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// Returns the last part of the path or, in the cache of a model hub, the part that names the model.
std::string folder_name(const std::string& dir) {
  std::error_code failed;
  fs::path path = fs::canonical(dir, failed);
  if (failed) path = fs::path(dir).lexically_normal();
  for (const fs::path& part : path)
    if (part.string().starts_with("models--")) return part.string();
  return path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
}

bool adds_role_tokens(const Json& tokenizer_config) {
  const auto added = tokenizer_config.find("added_tokens_decoder");
  if (added == tokenizer_config.end() || !added->is_object()) return false;
  return std::any_of(added->begin(), added->end(), [](const Json& token) {
    return token.is_object() && text_at(token, "content") == "<|user|>";
  });
}

}  // namespace

ModelHints read_model_hints(const std::string& model_dir, const Json& tokenizer_config) {
  const Json config = read_or_nothing(fs::path(model_dir) / "config.json");
  const Json generation = read_or_nothing(fs::path(model_dir) / "generation_config.json");
  ModelHints hints;
  hints.names = lower(folder_name(model_dir) + "\n" + text_at(config, "_name_or_path") + "\n" +
                      text_at(tokenizer_config, "name_or_path"));
  hints.model_type = lower(text_at(config, "model_type"));
  for (const char* key : {"vocab_size", "padded_vocab_size"})
    if (config.contains(key) && config[key].is_number_integer())
      hints.vocab = config[key].get<int64_t>();
  hints.says_user_token = generation.contains("user_token_id");
  hints.has_role_tokens = adds_role_tokens(tokenizer_config);
  return hints;
}

const BuiltinTemplate* find_builtin_template(const ModelHints& hints) {
  const auto named = [&](const char* part) { return hints.names.find(part) != std::string::npos; };
  const bool chats = named("chat"), large = hints.vocab > 100'000;
  if (named("base")) return nullptr;
  if (hints.model_type == "llama") return chats && hints.vocab == 32'000 ? &kLlama2 : nullptr;
  if (hints.model_type == "baichuan") {
    if (!chats && !hints.says_user_token) return nullptr;
    return large ? &kBaichuan2 : &kBaichuan1;
  }
  if (hints.model_type != "chatglm") return nullptr;
  if (large) return chats ? &kGlm4 : nullptr;
  if (named("chatglm2")) return &kChatGlm2;
  return named("chatglm3") || hints.has_role_tokens ? &kChatGlm3 : nullptr;
}

}  // namespace skiff::text
