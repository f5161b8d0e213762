// Fields that constrain the form of a reply, in the spellings of OpenAI, vLLM, FastDeploy and
// SGLang. Each constrains or is refused; two of them in one request are refused.
#include <algorithm>
#include <iterator>
#include <utility>

#include "serve/openai/fields.h"

namespace skiff::openai {
namespace {

using grammar::Constraint;
using grammar::ConstraintKind;

MaybeProblem set(CallDraft& draft, std::string field, Constraint constraint) {
  service::Request& request = draft.call.request;
  if (request.constraint)
    return Problem{fmt::format("is a second constraint beside {}; give one of them",
                               request.constraint_field)};
  constraint.no_whitespace |= draft.no_whitespace;
  request.constraint = std::move(constraint);
  request.constraint_field = std::move(field);
  return std::nullopt;
}

// A text as it is; with `parsed`, also any JSON, whose text then counts.
MaybeProblem text_of(const OrderedJson& value, bool parsed, std::string& out) {
  if (value.is_string()) {
    out = value.get<std::string>();
    return std::nullopt;
  }
  if (!parsed) return Problem{"must be a string, but is " + described(value)};
  if (!value.is_object() && !value.is_boolean())
    return Problem{"must be a JSON Schema or its text, but is " + described(value)};
  out = value.dump();
  return std::nullopt;
}

FieldReader text_field(const char* name, ConstraintKind kind, bool parsed) {
  return [=](const OrderedJson& value, CallDraft& draft) -> MaybeProblem {
    Constraint constraint{.kind = kind};
    if (auto problem = text_of(value, parsed, constraint.text)) return problem;
    return set(draft, name, std::move(constraint));
  };
}

FieldReader choice_field(const char* name) {
  return [=](const OrderedJson& value, CallDraft& draft) -> MaybeProblem {
    if (!value.is_array()) return Problem{"must be a list of strings, but is " + described(value)};
    return set(draft, name, {.kind = ConstraintKind::kChoice, .text = value.dump()});
  };
}

FieldReader object_switch(const char* name) {
  return [=](const OrderedJson& value, CallDraft& draft) -> MaybeProblem {
    bool on = false;
    if (auto problem = read_boolean(value, on)) return problem;
    if (!on) return std::nullopt;
    return set(draft, name, {.kind = ConstraintKind::kJsonObject});
  };
}

MaybeProblem set_schema(const OrderedJson& schema, const OrderedJson& holder,
                        const char* strict_name, CallDraft& draft) {
  Constraint constraint{.kind = ConstraintKind::kJsonSchema};
  constraint.text = schema.dump();
  if (const auto strict = holder.find("strict"); strict != holder.end() && !strict->is_null()) {
    if (!strict->is_boolean())
      return Problem{fmt::format("needs true or false as \"{}\"", strict_name)};
    constraint.strict = strict->get<bool>();
  }
  return set(draft, "response_format", std::move(constraint));
}

MaybeProblem read_json_schema(const OrderedJson& format, CallDraft& draft) {
  const auto outer = format.find("json_schema");
  if (outer == format.end() || !outer->is_object())
    return Problem{"of type json_schema needs the object \"json_schema\""};
  auto schema = outer->find("schema");
  if (schema == outer->end()) return Problem{"needs \"json_schema.schema\""};
  if (!schema->is_object() && !schema->is_boolean())
    return Problem{"needs an object as \"json_schema.schema\", but has " + described(*schema)};
  return set_schema(*schema, *outer, "json_schema.strict", draft);
}

// llama.cpp's form has a schema beside the type. One without keys says no more than the type does.
MaybeProblem read_json_object(const OrderedJson& format, CallDraft& draft) {
  const auto schema = format.find("schema");
  if (schema == format.end() || schema->is_null() || *schema == OrderedJson::object())
    return set(draft, "response_format", {.kind = ConstraintKind::kJsonObject});
  if (!schema->is_object())
    return Problem{"needs an object as \"schema\", but has " + described(*schema)};
  return set_schema(*schema, format, "strict", draft);
}

// A key that is not known may ask for a form that the reply would not have.
MaybeProblem refuse_unknown_keys(const OrderedJson& format) {
  static constexpr std::string_view kKnown[] = {"type", "json_schema", "schema",
                                                "name", "description", "strict"};
  for (const auto& [name, value] : format.items())
    if (!value.is_null() && std::ranges::find(kKnown, name) == std::end(kKnown))
      return Problem{fmt::format("has the key \"{}\", which is not supported", name.substr(0, 64)),
                     Code::kUnsupported};
  return std::nullopt;
}

MaybeProblem read_response_format(const OrderedJson& value, CallDraft& draft) {
  const auto type = value.is_object() ? value.find("type") : value.end();
  if (!value.is_object() || type == value.end() || !type->is_string())
    return Problem{"must be an object with a \"type\""};
  if (*type == "text" || *type == "json_object" || *type == "json_schema")
    if (auto problem = refuse_unknown_keys(value)) return problem;
  if (*type == "text") return std::nullopt;
  if (*type == "json_object") return read_json_object(value, draft);
  if (*type == "json_schema") return read_json_schema(value, draft);
  if (*type == "structural_tag")
    return set(draft, "response_format",
               {.kind = ConstraintKind::kStructuralTag, .text = value.dump()});
  return Problem{fmt::format("of type {} is not known; text, json_object, json_schema and "
                             "structural_tag are",
                             described(*type)),
                 Code::kUnsupported};
}

MaybeProblem read_structural_tag(const OrderedJson& value, CallDraft& draft) {
  if (!value.is_string() && !value.is_object())
    return Problem{"must be an object or its text, but is " + described(value)};
  return set(draft, "structural_tag",
             {.kind = ConstraintKind::kStructuralTag,
              .text = value.is_string() ? value.get<std::string>() : value.dump()});
}

constexpr size_t kMaxPattern = 1024;  // bytes of a whitespace pattern

MaybeProblem read_pattern(const OrderedJson& value, std::string& out) {
  if (auto problem = read_string(value, out)) return problem;
  if (out.size() > kMaxPattern)
    return Problem{fmt::format("has {} bytes; at most {} are allowed", out.size(), kMaxPattern)};
  return std::nullopt;
}

// Returns whether JSON is a part of the form, or may be.
bool has_json(ConstraintKind kind) {
  using enum ConstraintKind;
  return kind == kJsonObject || kind == kJsonSchema || kind == kStructuralTag;
}

// Sets the whitespace of the request's constraint, which was asked for beside it. Problems read on
// behind a name of the pattern's field.
MaybeProblem set_pattern(service::Request& request, std::string pattern) {
  if (pattern.empty() || !request.constraint) return std::nullopt;
  Constraint& constraint = *request.constraint;
  if (!has_json(constraint.kind))
    return Problem{fmt::format("is of no use beside {}, which has no JSON; leave out one of them",
                               request.constraint_field)};
  if (constraint.no_whitespace)
    return Problem{
        "allows whitespace, which \"disable_any_whitespace\" in structured_outputs "
        "forbids; give one of them"};
  if (!constraint.whitespace_pattern.empty() && constraint.whitespace_pattern != pattern)
    return Problem{"differs from \"whitespace_pattern\" in structured_outputs; give one of them"};
  constraint.whitespace_pattern = std::move(pattern);
  return std::nullopt;
}

// Members of vLLM's object that it writes, too, where they are off.
constexpr std::string_view kSwitchedOff[] = {"disable_additional_properties", "disable_fallback",
                                             "backend_was_auto", "_backend_was_auto"};

// vLLM's object: one kind of constraint, and options.
MaybeProblem read_structured_outputs(const OrderedJson& value, CallDraft& draft) {
  if (!value.is_object()) return Problem{"must be an object, but is " + described(value)};
  struct Key {
    std::string_view name;
    FieldReader read;
  };
  static const Key kKeys[] = {
      {"json", text_field("structured_outputs.json", ConstraintKind::kJsonSchema, true)},
      {"regex", text_field("structured_outputs.regex", ConstraintKind::kRegex, false)},
      {"choice", choice_field("structured_outputs.choice")},
      {"grammar", text_field("structured_outputs.grammar", ConstraintKind::kGrammar, false)},
      {"json_object", object_switch("structured_outputs.json_object")},
      {"structural_tag", read_structural_tag},
  };
  std::string pattern;
  for (const auto& [name, part] : value.items()) {
    if (part.is_null()) continue;
    MaybeProblem problem;
    bool known = false;
    for (const Key& key : kKeys)
      if (name == key.name) problem = key.read(part, draft), known = true;
    if (name == "disable_any_whitespace") {
      problem = read_boolean(part, draft.no_whitespace), known = true;
    } else if (name == "whitespace_pattern") {
      problem = read_pattern(part, pattern), known = true;
    } else if (part == false && std::ranges::find(kSwitchedOff, name) != std::end(kSwitchedOff)) {
      known = true;
    }
    if (problem) return Problem{fmt::format("has a \"{}\" that {}", name, problem->what)};
    if (known) continue;
    const bool misspelt = name == "choices";
    return Problem{fmt::format("has the key \"{}\", which {}", name.substr(0, 64),
                               misspelt ? "is spelt \"choice\"" : "is not supported"),
                   misspelt ? Code::kInvalid : Code::kUnsupported};
  }
  auto& constraint = draft.call.request.constraint;
  if (!constraint)
    return Problem{"needs one of json, regex, choice, grammar, json_object and structural_tag"};
  constraint->no_whitespace |= draft.no_whitespace;
  if (auto problem = set_pattern(draft.call.request, std::move(pattern)))
    return Problem{"has a \"whitespace_pattern\" that " + problem->what};
  return std::nullopt;
}

// The back ends that clients know by name; each means this server's own.
MaybeProblem read_backend(const OrderedJson& value, CallDraft&) {
  std::string name;
  if (auto problem = read_string(value, name)) return problem;
  for (const std::string_view known : {"auto", "xgrammar", "guidance", "outlines"})
    if (name == known) return std::nullopt;
  return Problem{fmt::format("is {}, which is none of auto, xgrammar, guidance and outlines",
                             described(value))};
}

MaybeProblem read_whitespace_pattern(const OrderedJson& value, CallDraft& draft) {
  return read_pattern(value, draft.whitespace_pattern);
}

FieldReader spelt(const char* right) {
  return [=](const OrderedJson&, CallDraft&) -> MaybeProblem {
    return Problem{fmt::format("is not a field of a request; {}", right)};
  };
}

}  // namespace

std::optional<Error> set_whitespace(CallDraft& draft) {
  const char* field = "guided_whitespace_pattern";
  auto problem = set_pattern(draft.call.request, std::move(draft.whitespace_pattern));
  if (!problem) return std::nullopt;
  return Error{problem->code, fmt::format("{} {}", field, problem->what), field};
}

std::vector<Field> constraint_fields() {
  using enum Scope;
  return {
      {"response_format", kBoth, read_response_format},
      {"guided_json", kBoth, text_field("guided_json", ConstraintKind::kJsonSchema, true)},
      {"guided_regex", kBoth, text_field("guided_regex", ConstraintKind::kRegex, false)},
      {"guided_choice", kBoth, choice_field("guided_choice")},
      {"guided_grammar", kBoth, text_field("guided_grammar", ConstraintKind::kGrammar, false)},
      {"guided_json_object", kBoth, object_switch("guided_json_object")},
      {"guided_decoding_backend", kBoth, read_backend},
      {"guided_whitespace_pattern", kBoth, read_whitespace_pattern},
      {"structural_tag", kBoth, read_structural_tag},
      {"structured_outputs", kBoth, read_structured_outputs},
      {"json_schema", kBoth, text_field("json_schema", ConstraintKind::kJsonSchema, true)},
      {"regex", kBoth, text_field("regex", ConstraintKind::kRegex, false)},
      {"ebnf", kBoth, text_field("ebnf", ConstraintKind::kGrammar, false)},
      {"grammar", kBoth, text_field("grammar", ConstraintKind::kGrammar, false)},
      {"choices", kBoth, spelt("the field is guided_choice, or structured_outputs.choice")},
      {"extra_body", kBoth, spelt("it is an argument of a client, which sends its members")},
  };
}

}  // namespace skiff::openai
