// text/chat/builtin_templates.h -- chat templates of families that were published without one, and
// the rules that recognise such a model. A wrong template is worse than none, so each rule needs a
// sign that the model was trained to chat.
#pragma once
#include <string>
#include <string_view>

#include "base/json.h"

namespace skiff::text {

struct BuiltinTemplate {
  std::string_view family;  // the name that messages show
  std::string_view text;
};

// The facts about a model folder from which a template is chosen.
struct ModelHints {
  // Folder, config.json's _name_or_path and tokenizer_config.json's name_or_path, in lower case.
  std::string names;
  std::string model_type;
  int64_t vocab = 0;
  bool says_user_token = false;  // generation_config.json has "user_token_id"
  bool has_role_tokens = false;  // the tokenizer adds <|user|>
};

// Missing and unreadable files count as empty ones.
ModelHints read_model_hints(const std::string& model_dir, const Json& tokenizer_config);

// Selects the template by these rules:
//   Llama 2       "llama" with 32000 tokens and "chat" in a name
//   Baichuan 2, 1 "baichuan" (more than 100000 tokens: 2) and "chat" in a name or a user token
//   ChatGLM2      "chatglm" and "chatglm2" in a name
//   ChatGLM3      "chatglm" and "chatglm3" in a name or role tokens
//   GLM-4         "chatglm" with more than 100000 tokens and "chat" in a name
// and no "base" in a name. Null for every other model.
const BuiltinTemplate* find_builtin_template(const ModelHints& hints);

}  // namespace skiff::text
