// Structural tags: free text with parts between markers that follow a schema or another format.
//
// The old form lists structures {begin, schema, end} and the triggers that announce them; the new
// form is a tree of formats. In both, the written form of a special token stands for that token
// (free_text.h), so formats that name tokens are those that name texts.
#include <algorithm>
#include <optional>

#include "base/json_owner.h"
#include "grammar/free_text.h"
#include "grammar/front_ends.h"
#include "grammar/schema/written_arguments.h"
#include "grammar/tag_fields.h"

namespace skiff::grammar {
namespace {

class TagReader {
 public:
  TagReader(const Constraint& options, RuleSet& rules)
      : options_(options), rules_(rules), syntax_(rules, options) {}

  ExprId read(const OrderedJson& root) {
    if (root.contains("format")) return format(need_member(root, "format", ""), "/format");
    if (root.contains("structures")) return structures(root);
    refuse_malformed("a structural tag needs \"format\", or \"structures\" and \"triggers\"");
  }

 private:
  using Names = std::vector<std::string>;
  using Path = std::string;
  struct Tag {
    std::string begin;
    ExprId rest;  // what follows `begin`
  };
  struct Reader {
    std::string_view type;
    ExprId (TagReader::*read)(const OrderedJson& at, const Path& path);
  };
  ExprSet& exprs() { return rules_.exprs; }
  ExprId marked(std::string_view text) { return marked_text(text, rules_); }

  // The written form of a token, given as such or by its id.
  std::string token_text(const OrderedJson& token, const Path& path) {
    if (token.is_string()) return text_of(token, path);
    const auto width = static_cast<uint64_t>(rules_.vocabulary.width());
    if (!token.is_number_unsigned() || token.get<uint64_t>() >= width)
      refuse_at(path, "a token must be its written form, or an id of the vocabulary");
    std::string text = written_form(rules_.vocabulary.piece(token.get<int32_t>()));
    if (text.empty()) refuse_at(path, fmt::format("token {} stands for no text", token.dump()));
    return text;
  }
  Names token_texts(const OrderedJson& at, const char* key, const Path& path) {
    Names out;
    if (!at.contains(key)) return out;
    if (!at[key].is_array()) refuse_at(path + "/" + key, "must be a list of tokens");
    for (const OrderedJson& one : at[key]) out.push_back(token_text(one, path + "/" + key));
    return out;
  }
  // A text, or {"type": "token", "token": ...}.
  std::string text_or_token(const OrderedJson& value, const Path& path) {
    if (value.is_string()) return text_of(value, path);
    if (!value.is_object() || text_member(value, "type", path) != "token")
      refuse_at(path, "must be a string or a token");
    return token_text(need_member(value, "token", path), path + "/token");
  }
  Names ends_of(const OrderedJson& at, const Path& path) {
    const OrderedJson& end = need_member(at, "end", path);
    if (end.is_array()) return texts_member(at, "end", path);
    return {text_or_token(end, path + "/end")};
  }

  ExprId schema(const OrderedJson& at, const Path& path, std::string_view style) {
    try {
      if (style == "json") return schema_text(at.dump(), syntax_, options_.strict);
      const ExprId arguments = arguments_text(at.dump(), style, options_, rules_);
      if (arguments != kNothing) return arguments;
    } catch (const Refusal& refusal) {
      throw Refusal(refusal.what(), path + refusal.where, refusal.code);
    }
    refuse_at(path, "the schema cannot be satisfied: no value fits it", Code::kUnsupported);
  }

  ExprId triggered(const Names& triggers, const std::vector<Tag>& tags, const Names& excluded,
                   const OrderedJson& at, const Path& path) {
    const bool at_least_one = switch_member(at, "at_least_one", path);
    const bool once = switch_member(at, "stop_after_first", path);
    const Words words(triggers, rules_);
    const ExprId text = Words(excluded, rules_).without(free_text(exprs()));
    std::vector<bool> used(tags.size(), false);
    std::vector<ExprId> calls;
    for (const std::string& trigger : triggers) {
      std::vector<ExprId> rest;
      for (size_t i = 0; i < tags.size(); ++i) {
        if (!tags[i].begin.starts_with(trigger) || used[i]) continue;
        used[i] = true;
        rest.push_back(exprs().concat(marked(tags[i].begin.substr(trigger.size())), tags[i].rest));
      }
      calls.push_back(
          exprs().concat(words.until(text, marked(trigger)), exprs().alt(std::move(rest))));
    }
    for (size_t i = 0; i < tags.size(); ++i)
      if (!used[i])
        refuse_at(path, fmt::format("no trigger begins \"{}\"", tags[i].begin.substr(0, 80)));
    const ExprId call = exprs().alt(std::move(calls)), rest = words.without(text);
    if (once) return at_least_one ? call : exprs().alt({call, rest});
    return exprs().concat(exprs().repeat(call, at_least_one ? 1 : 0, kEndless), rest);
  }

  ExprId structures(const OrderedJson& root) {
    std::vector<Tag> tags;
    size_t i = 0;
    for (const OrderedJson& one : list_member(root, "structures", "")) {
      const Path path = fmt::format("/structures/{}", i++);
      const ExprId body = schema(need_member(one, "schema", path), path + "/schema", "json");
      tags.push_back({text_member(one, "begin", path),
                      exprs().concat(body, marked(text_member(one, "end", path)))});
    }
    return triggered(texts_member(root, "triggers", ""), tags, {}, OrderedJson::object(),
                     "/structures");
  }

  Tag one_tag(const OrderedJson& at, const Path& path) {
    const OrderedJson& content = need_member(at, "content", path);
    const Names ends = ends_of(at, path);
    const bool may_be_empty = ends.size() == 1 && ends[0].empty();
    Tag out{text_or_token(need_member(at, "begin", path), path + "/begin"), kNothing};
    const auto free = free_content(content, path + "/content");
    if (free && !may_be_empty) {
      // Free text lasts until the first end.
      const Words words(ends, rules_);
      out.rest = words.until(*free, words.any());
    } else {
      const ExprId end = may_be_empty ? kEmpty : Words(ends, rules_).any();
      out.rest = exprs().concat(format(content, path + "/content"), end);
    }
    return out;
  }

  // The texts of a format of free text; nothing for other formats.
  std::optional<ExprId> free_content(const OrderedJson& at, const Path& path) {
    if (!at.is_object() || !at.contains("type")) return std::nullopt;
    if (at["type"] == "any_text") return any_text(at, path);
    if (at["type"] == "any_tokens") return tokens(at, path);
    return std::nullopt;
  }

  std::vector<Tag> tags_of(const OrderedJson& at, const Path& path) {
    std::vector<Tag> out;
    size_t i = 0;
    for (const OrderedJson& one : list_member(at, "tags", path))
      out.push_back(one_tag(one, fmt::format("{}/tags/{}", path, i++)));
    return out;
  }

  std::vector<ExprId> elements(const OrderedJson& at, const Path& path) {
    std::vector<ExprId> out;
    size_t i = 0;
    for (const OrderedJson& one : list_member(at, "elements", path))
      out.push_back(format(one, fmt::format("{}/elements/{}", path, i++)));
    return out;
  }

  ExprId content(const OrderedJson& at, const Path& path) {
    return format(need_member(at, "content", path), path + "/content");
  }

  // The formats.
  ExprId const_string(const OrderedJson& at, const Path& path) {
    return marked(text_member(at, "value", path));
  }
  ExprId token(const OrderedJson& at, const Path& path) { return marked(text_or_token(at, path)); }
  ExprId json_schema(const OrderedJson& at, const Path& path) {
    const std::string style = at.contains("style") ? text_member(at, "style", path) : "json";
    if (style != "json" && !is_argument_style(style))
      refuse_at(path + "/style",
                fmt::format("the style \"{}\" is none of json, {}", style.substr(0, 80),
                            argument_style_names()),
                Code::kUnsupported);
    return schema(need_member(at, "json_schema", path), path + "/json_schema", style);
  }
  // xgrammar's name for a schema in that style.
  ExprId qwen_parameters(const OrderedJson& at, const Path& path) {
    return schema(need_member(at, "json_schema", path), path + "/json_schema", "qwen_xml");
  }
  ExprId regex(const OrderedJson& at, const Path& path) {
    return regex_text(text_member(at, "pattern", path), rules_);
  }
  ExprId grammar(const OrderedJson& at, const Path& path) {
    return grammar_text(text_member(at, "grammar", path), rules_);
  }
  ExprId any_text(const OrderedJson& at, const Path& path) {
    for (const char* bound : {"max_tokens", "max_chars"})
      if (at.contains(bound) && !at[bound].is_null())
        refuse_at(path + "/" + bound, fmt::format("\"{}\" is not supported", bound),
                  Code::kUnsupported);
    const bool excludes = at.contains("excludes") && !at["excludes"].empty();
    const Names excluded = excludes ? texts_member(at, "excludes", path) : Names{};
    return Words(excluded, rules_).without(free_text(exprs()));
  }
  ExprId tokens(const OrderedJson& at, const Path& path) {
    return Words(token_texts(at, "exclude_tokens", path), rules_).without(any_tokens(exprs()));
  }
  ExprId sequence(const OrderedJson& at, const Path& path) {
    return exprs().joined(elements(at, path), kEmpty);
  }
  ExprId choice(const OrderedJson& at, const Path& path) { return exprs().alt(elements(at, path)); }
  ExprId optional(const OrderedJson& at, const Path& path) {
    return exprs().optional(content(at, path));
  }
  ExprId star(const OrderedJson& at, const Path& path) {
    return exprs().repeat(content(at, path), 0, kEndless);
  }
  ExprId plus(const OrderedJson& at, const Path& path) {
    return exprs().repeat(content(at, path), 1, kEndless);
  }
  ExprId repeat(const OrderedJson& at, const Path& path) {
    const uint32_t min = count_member(at, "min", 0, path);
    const uint32_t max = count_member(at, "max", kEndless, path);
    if (max < min) refuse_at(path, "\"max\" is less than \"min\"");
    return exprs().repeat(content(at, path), min, max);
  }
  ExprId tag(const OrderedJson& at, const Path& path) {
    const Tag one = one_tag(at, path);
    return exprs().concat(marked(one.begin), one.rest);
  }
  ExprId triggered_tags(const OrderedJson& at, const Path& path) {
    const bool excludes = at.contains("excludes") && !at["excludes"].empty();
    return triggered(texts_member(at, "triggers", path), tags_of(at, path),
                     excludes ? texts_member(at, "excludes", path) : Names{}, at, path + "/tags");
  }
  ExprId token_triggered_tags(const OrderedJson& at, const Path& path) {
    const Names triggers = token_texts(at, "trigger_tokens", path);
    if (triggers.empty()) refuse_at(path, "\"trigger_tokens\" must be a list with entries");
    return triggered(triggers, tags_of(at, path), token_texts(at, "exclude_tokens", path), at,
                     path + "/tags");
  }
  ExprId tags_with_separator(const OrderedJson& at, const Path& path) {
    std::vector<ExprId> choices;
    for (const Tag& one : tags_of(at, path))
      choices.push_back(exprs().concat(marked(one.begin), one.rest));
    const ExprId one = exprs().alt(std::move(choices));
    const ExprId separator = marked(text_member(at, "separator", path));
    const ExprId more = switch_member(at, "stop_after_first", path)
                            ? kEmpty
                            : exprs().repeat(exprs().concat(separator, one), 0, kEndless);
    const ExprId all = exprs().concat(one, more);
    return switch_member(at, "at_least_one", path) ? all : exprs().optional(all);
  }

  ExprId format(const OrderedJson& at, const Path& path) {
    static constexpr Reader kReaders[] = {
        {"const_string", &TagReader::const_string},
        {"token", &TagReader::token},
        {"json_schema", &TagReader::json_schema},
        {"qwen_xml_parameter", &TagReader::qwen_parameters},
        {"regex", &TagReader::regex},
        {"grammar", &TagReader::grammar},
        {"any_text", &TagReader::any_text},
        {"any_tokens", &TagReader::tokens},
        {"sequence", &TagReader::sequence},
        {"or", &TagReader::choice},
        {"optional", &TagReader::optional},
        {"star", &TagReader::star},
        {"plus", &TagReader::plus},
        {"repeat", &TagReader::repeat},
        {"tag", &TagReader::tag},
        {"triggered_tags", &TagReader::triggered_tags},
        {"token_triggered_tags", &TagReader::token_triggered_tags},
        {"tags_with_separator", &TagReader::tags_with_separator},
    };
    if (exprs().fuel().empty()) refuse("the structural tag is too complex (its fuel is spent)");
    const std::string type = text_member(at, "type", path);
    const auto* reader = std::ranges::find(kReaders, type, &Reader::type);
    if (reader == std::end(kReaders))
      refuse_at(path + "/type", fmt::format("the type \"{}\" is not supported", type.substr(0, 80)),
                Code::kUnsupported);
    return (this->*reader->read)(at, path);
  }

  const Constraint& options_;
  RuleSet& rules_;
  JsonSyntax syntax_;
};

}  // namespace

ExprId structural_tag_text(std::string_view tag, const Constraint& options, RuleSet& rules) {
  // A schema of 64 levels lies some levels deep.
  constexpr int kMaxDepth = 96;
  constexpr size_t kMaxKeys = 5000;
  auto parsed = parse_ordered_json(
      tag, {.max_bytes = tag.size(), .max_depth = kMaxDepth, .max_keys = kMaxKeys});
  if (!parsed) refuse_malformed("the structural tag is not valid JSON: {}", parsed.error().what);
  const JsonOwner<OrderedJson> root(std::move(*parsed));
  if (!(*root).is_object()) refuse_malformed("a structural tag must be an object");
  return TagReader(options, rules).read(*root);
}

}  // namespace skiff::grammar
