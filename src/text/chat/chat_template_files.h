// text/chat/chat_template_files.h -- finds the texts of chat templates.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace skiff::text {

struct NamedTemplate {
  std::string name;  // "default", "tool_use", ...
  std::string text;
  std::string where;  // the source, for messages
};

// Reads tokenizer_config.json; returns an empty object if there is none. Throws LoadError.
Json read_template_config(const std::filesystem::path& dir);
// Returns the folder's templates, if it has any; see load_chat_template. Throws LoadError.
std::vector<NamedTemplate> read_templates(const std::filesystem::path& dir, const Json& config);
// Returns kNotFound if `text` is neither a template nor a file.
Result<NamedTemplate> read_override(const std::string& text);
// Returns the written forms of special tokens by role, and additional_special_tokens. Throws
// LoadError.
OrderedJson read_special_tokens(const std::filesystem::path& dir, const Json& config);

}  // namespace skiff::text
