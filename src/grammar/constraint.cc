#include "grammar/constraint.h"

#include "base/json.h"
#include "base/json_owner.h"

namespace skiff::grammar {
namespace {

// Calls visit(name, field) for each text, and for each switch, of a constraint.
template <class Value, class Visit>
void each_text(Value& constraint, const Visit& visit) {
  visit("text", constraint.text);
  visit("whitespace_pattern", constraint.whitespace_pattern);
  visit("calls", constraint.calls);
  visit("begin", constraint.reasoning.begin);
  visit("end", constraint.reasoning.end);
  visit("content", constraint.reasoning.content);
  visit("content_end", constraint.reasoning.content_end);
}

template <class Value, class Visit>
void each_switch(Value& constraint, const Visit& visit) {
  visit("no_whitespace", constraint.no_whitespace);
  visit("strict", constraint.strict);
  visit("inside", constraint.reasoning.inside);
}

}  // namespace

std::string constraint_source(const Constraint& constraint) {
  Json out = {{"kind", static_cast<int>(constraint.kind)}};
  each_text(constraint, [&](const char* name, const std::string& text) {
    if (!text.empty()) out[name] = text;
  });
  each_switch(constraint, [&](const char* name, bool on) {
    if (on) out[name] = true;
  });
  if (constraint.answers != 1) out["answers"] = constraint.answers;
  // Texts that are not UTF-8 are refused when they are compiled, so it does not matter which.
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<Constraint> read_constraint_source(std::string_view source) {
  constexpr size_t kMaxBytes = size_t{4} << 20;
  auto parsed = parse_json(source, {.max_bytes = kMaxBytes, .max_depth = 2});
  if (!parsed) return Error{Code::kInvalid, "a constraint's source: " + parsed.error().what};
  const JsonOwner<Json> owner(std::move(*parsed));
  const Json& json = *owner;
  const auto bad = [](const std::string& name) {
    return Error{Code::kInvalid, "a constraint's source has no proper \"" + name + "\""};
  };
  const auto kind = json.is_object() ? json.find("kind") : json.end();
  constexpr auto kLast = static_cast<int>(ConstraintKind::kStructuralTag);
  if (!json.is_object() || kind == json.end() || !kind->is_number_unsigned() ||
      kind->get<uint64_t>() > kLast)
    return bad("kind");
  Constraint out{.kind = static_cast<ConstraintKind>(kind->get<int>())};
  size_t known = 1;
  std::string wrong;
  each_text(out, [&](const char* name, std::string& text) {
    const auto found = json.find(name);
    if (found == json.end()) return;
    ++known;
    if (found->is_string())
      text = found->get<std::string>();
    else
      wrong = name;
  });
  each_switch(out, [&](const char* name, bool& on) {
    const auto found = json.find(name);
    if (found == json.end()) return;
    ++known;
    if (found->is_boolean())
      on = found->get<bool>();
    else
      wrong = name;
  });
  if (const auto answers = json.find("answers"); answers != json.end()) {
    ++known;
    constexpr uint64_t kMost = 1u << 20;
    if (answers->is_number_unsigned() && *answers > 0u && *answers <= kMost)
      out.answers = answers->get<int>();
    else
      wrong = "answers";
  }
  if (known != json.size()) wrong = "kind and nothing else";
  if (!wrong.empty()) return bad(wrong);
  return out;
}

}  // namespace skiff::grammar
