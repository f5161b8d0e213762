// text/chat/chat_template_files.h -- where the texts of chat templates are found.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace skiff {

struct NamedTemplate {
  std::string name;  // "default", "tool_use", ...
  std::string text;
  std::string where;  // for messages
};

// tokenizer_config.json, an empty object if there is none. Throws LoadError.
Json read_template_config(const std::filesystem::path& dir);
// The folder's templates, none if it has none; see load_chat_template. Throws LoadError.
std::vector<NamedTemplate> read_templates(const std::filesystem::path& dir, const Json& config);
// kNotFound if `text` is neither a template nor a file.
Result<NamedTemplate> read_override(const std::string& text);
// Written forms by role, and additional_special_tokens. Throws LoadError.
OrderedJson read_special_tokens(const std::filesystem::path& dir, const Json& config);

}  // namespace skiff
