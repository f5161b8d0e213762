#include "serve/pooling/call.h"

#include <algorithm>

#include "serve/openai/prompt.h"

namespace skiff::pooling {
namespace {

using openai::MaybeProblem;
using openai::Problem;

constexpr int64_t kMaxInt = (int64_t{1} << 31) - 1;

Error invalid(std::string_view field, std::string what) {
  return Error{Code::kInvalid, fmt::format("{} {}", field, what), std::string(field)};
}

MaybeProblem read_flag(const OrderedJson& value, std::optional<bool>& out) {
  bool flag = false;
  if (auto problem = openai::read_boolean(value, flag)) return problem;
  out = flag;
  return std::nullopt;
}

MaybeProblem read_int(const OrderedJson& value, int64_t low, int64_t high, int& out) {
  int64_t number = 0;
  if (auto problem = openai::read_integer(value, low, high, number)) return problem;
  out = static_cast<int>(number);
  return std::nullopt;
}

MaybeProblem read_short(const OrderedJson& value, size_t most, std::string& out) {
  if (auto problem = openai::read_string(value, out)) return problem;
  if (out.size() > most)
    return Problem{fmt::format("has {} bytes; at most {} are allowed", out.size(), most)};
  return std::nullopt;
}

MaybeProblem read_truncate(const OrderedJson& value, PoolingCall& call) {
  int64_t most = 0;
  if (auto problem = openai::read_integer(value, -1, kMaxInt, most)) return problem;
  if (most == 0) return Problem{"must be -1 (as many as the context has) or at least 1, but is 0"};
  call.truncate = most;
  return std::nullopt;
}

MaybeProblem read_salt(const OrderedJson& value, PoolingCall& call) {
  std::string& salt = call.request.cache.salt;
  if (auto problem = read_short(value, 1024, salt)) return problem;
  return salt.empty() ? MaybeProblem(Problem{"must not be empty"}) : std::nullopt;
}

MaybeProblem read_encoding(const OrderedJson& value, PoolingCall& call) {
  std::string word;
  if (auto problem = openai::read_string(value, word)) return problem;
  if (word != "float" && word != "base64")
    return Problem{"must be \"float\" or \"base64\", but is " + openai::described(value)};
  call.base64 = word == "base64";
  return std::nullopt;
}

// A prompt as text or as tokens.
MaybeProblem read_prompt(const OrderedJson& value, PoolingCall& call) {
  if (value.is_string()) {
    call.inputs.emplace_back(value.get<std::string>());
    return std::nullopt;
  }
  std::vector<Token> tokens;
  if (auto problem = openai::read_token_ids(value, tokens)) return problem;
  call.inputs.emplace_back(std::move(tokens));
  return std::nullopt;
}

Parsed read_input(const OrderedJson& value, PoolingCall& call) {
  const bool single =
      value.is_string() || (value.is_array() && !value.empty() && value.front().is_number());
  if (!single && (!value.is_array() || value.empty()))
    return invalid("input",
                   "must be a string, a list of strings, a list of token ids, or a list of such "
                   "lists, and not empty, but is " +
                       openai::described(value));
  if (single) {
    if (const auto problem = read_prompt(value, call)) return invalid("input", problem->what);
    return std::nullopt;
  }
  if (value.size() > kMaxPrompts)
    return invalid(
        "input", fmt::format("has {} entries; at most {} are allowed", value.size(), kMaxPrompts));
  for (size_t i = 0; i < value.size(); ++i)
    if (const auto problem = read_prompt(value[i], call))
      return invalid("input", fmt::format("has an entry, number {}, that {}", i, problem->what));
  return std::nullopt;
}

std::optional<std::string> text_of(const OrderedJson& value) {
  if (value.is_string()) return value.get<std::string>();
  const auto text = value.is_object() ? value.find("text") : value.end();
  if (!value.is_object() || text == value.end() || !text->is_string()) return std::nullopt;
  return text->get<std::string>();
}

}  // namespace

std::vector<Field> common_fields() {
  return {
      {"model", [](auto& v, auto& c) { return openai::read_string(v, c.model); }},
      {"request_id", [](auto& v, auto& c) { return read_short(v, 256, c.request_id); }},
      {"user", [](auto&, auto&) { return MaybeProblem(); }},
      {"priority",
       [](auto& v, auto& c) { return read_int(v, -kMaxInt, kMaxInt, c.request.priority); }},
      {"cache_salt", read_salt},
      {"truncate_prompt_tokens", read_truncate},
      {"add_special_tokens", [](auto& v, auto& c) { return read_flag(v, c.add_special); }},
      {"timeout",
       [](auto& v, auto& c) {
         return openai::read_number(v, 0.001, 604800, c.request.timeout_seconds);
       }},
  };
}

std::vector<Field> embedding_fields() {
  return {
      {"encoding_format", read_encoding},
      {"dimensions", [](auto& v, auto& c) { return read_int(v, 1, kMaxInt, c.dimensions); }},
      {"normalize", [](auto& v, auto& c) { return read_flag(v, c.normalize); }},
  };
}

std::vector<Field> conversation_fields() {
  return {
      {"add_generation_prompt",
       [](auto& v, auto& c) {
         return openai::read_boolean(v, c.conversation.add_generation_prompt);
       }},
      {"continue_final_message",
       [](auto& v, auto& c) {
         return openai::read_boolean(v, c.conversation.continue_final_message);
       }},
      {"chat_template",
       [](auto& v, auto& c) { return openai::read_string(v, c.request.chat_template); }},
      {"chat_template_kwargs",
       [](auto& v, auto& c) { return openai::read_template_kwargs(v, c.conversation); }},
      {"tools", [](auto& v, auto& c) { return openai::read_tools(v, c.conversation); }},
  };
}

std::vector<Field> pair_fields() {
  return {
      {"instruction", [](auto& v, auto& c) { return read_short(v, 1 << 16, c.instruction); }},
      {"activation", [](auto& v, auto& c) { return read_flag(v, c.activation); }},
      {"use_activation", [](auto& v, auto& c) { return read_flag(v, c.activation); }},
  };
}

Parsed read_fields(const OrderedJson& body, const std::vector<Field>& fields,
                   const std::vector<std::string_view>& inputs, PoolingCall& call) {
  constexpr size_t kMaxNames = 16, kMaxBytes = 64;
  if (!body.is_object())
    return Error{Code::kInvalid,
                 "the body must be a JSON object, but is " + openai::described(body), ""};
  call.conversation.add_generation_prompt = false;
  for (const auto& [name, value] : body.items()) {
    const auto found = std::ranges::find(fields, std::string_view(name), &Field::name);
    if (found == fields.end()) {
      const bool input = std::ranges::count(inputs, std::string_view(name)) > 0;
      if (!input && call.unknown_fields.size() < kMaxNames)
        call.unknown_fields.push_back(name.substr(0, kMaxBytes));
      continue;
    }
    if (value.is_null()) continue;
    if (auto problem = found->read(value, call))
      return Error{problem->code, fmt::format("{} {}", name, problem->what), name};
  }
  return std::nullopt;
}

Parsed read_inputs(const OrderedJson& body, PoolingCall& call) {
  const auto given = [&](const char* name) {
    const auto found = body.find(name);
    return found == body.end() || found->is_null() ? nullptr : &*found;
  };
  const OrderedJson *input = given("input"), *messages = given("messages");
  if (input && messages) return invalid("input", "and messages cannot both be given");
  if (input) return read_input(*input, call);
  if (!messages) return Error{Code::kNotFound, "input is required", "input"};
  auto checked = openai::read_message_list(*messages);
  if (!checked) return checked.error();
  call.conversation.messages = std::move(*checked);
  const std::optional<bool> asked =
      call.conversation.add_generation_prompt ? std::optional(true) : std::nullopt;
  if (auto error = openai::check_continuation(call.conversation, asked)) return error;
  call.inputs.emplace_back(std::move(call.conversation));
  return std::nullopt;
}

Parsed read_texts(const OrderedJson& body, std::string_view name, std::vector<std::string>& out) {
  const auto found = body.find(std::string(name));
  if (found == body.end() || found->is_null())
    return Error{Code::kNotFound, std::string(name) + " is required", std::string(name)};
  if (auto single = text_of(*found)) {
    out.push_back(std::move(*single));
    return std::nullopt;
  }
  if (!found->is_array() || found->empty())
    return invalid(name,
                   "must be a string, an object with \"text\", or a list of these that is not "
                   "empty, but is " +
                       openai::described(*found));
  if (found->size() > kMaxPrompts)
    return invalid(
        name, fmt::format("has {} entries; at most {} are allowed", found->size(), kMaxPrompts));
  for (const OrderedJson& entry : *found) {
    auto text = text_of(entry);
    if (!text)
      return invalid(name, fmt::format("has an entry, number {}, that is neither a string nor an "
                                       "object with \"text\", but {}",
                                       out.size(), openai::described(entry)));
    out.push_back(std::move(*text));
  }
  return std::nullopt;
}

}  // namespace skiff::pooling
