// Structural tags: free text with parts between markers that follow a schema or another format.
//
// The old form lists structures {begin, schema, end} and the triggers that announce them; the new
// form is a tree of formats.
#include <algorithm>

#include "base/json_owner.h"
#include "grammar/front_ends.h"

namespace skiff::grammar {
namespace {

constexpr uint32_t kMaxRepeat = 10'000;

class TagReader {
 public:
  TagReader(const Constraint& constraint, RuleSet& rules)
      : rules_(rules), syntax_(rules, constraint), strict_(constraint.strict) {}

  ExprId read(const OrderedJson& root) {
    if (root.contains("format")) return format(need(root, "format", ""), "/format");
    if (root.contains("structures")) return structures(root);
    refuse("a structural tag needs \"format\", or \"structures\" and \"triggers\"");
  }

 private:
  struct Tag {
    std::string begin;
    ExprId rest;  // what follows `begin`
  };
  ExprSet& exprs() { return rules_.exprs; }

  static const OrderedJson& need(const OrderedJson& at, const char* key, const std::string& path) {
    if (!at.is_object() || !at.contains(key))
      throw Refusal(fmt::format("\"{}\" is missing", key), path);
    return at[key];
  }
  static std::string text(const OrderedJson& at, const char* key, const std::string& path) {
    const OrderedJson& value = need(at, key, path);
    if (!value.is_string())
      throw Refusal(fmt::format("\"{}\" must be a string", key), path + "/" + key);
    return value.get<std::string>();
  }
  static std::vector<std::string> texts(const OrderedJson& at, const char* key,
                                        const std::string& path) {
    const OrderedJson& value = need(at, key, path);
    std::vector<std::string> out;
    if (value.is_string()) out.push_back(value.get<std::string>());
    if (value.is_array())
      for (const OrderedJson& one : value)
        if (one.is_string()) out.push_back(one.get<std::string>());
    if (out.empty() || (value.is_array() && out.size() != value.size()))
      throw Refusal(fmt::format("\"{}\" must be a list of strings", key), path + "/" + key);
    return out;
  }
  static bool flag(const OrderedJson& at, const char* key, const std::string& path) {
    if (!at.contains(key)) return false;
    if (!at[key].is_boolean())
      throw Refusal(fmt::format("\"{}\" must be true or false", key), path + "/" + key);
    return at[key].get<bool>();
  }
  static const OrderedJson& list(const OrderedJson& at, const char* key, const std::string& path) {
    const OrderedJson& value = need(at, key, path);
    if (!value.is_array() || value.empty())
      throw Refusal(fmt::format("\"{}\" must be a list with entries", key), path + "/" + key);
    return value;
  }

  ExprId schema(const OrderedJson& schema, const std::string& path) {
    try {
      return schema_text(schema.dump(), syntax_, strict_);
    } catch (const Refusal& refusal) {
      throw Refusal(refusal.what(), path + refusal.where);
    }
  }

  ExprId one_of(const std::vector<std::string>& words) {
    std::vector<ExprId> out;
    for (const std::string& word : words) {
      if (word.empty()) refuse("a trigger, an end or an excluded text is empty");
      out.push_back(exprs().literal(word));
    }
    return exprs().alt(std::move(out));
  }
  // Text without any of the words.
  ExprId text_without(ExprId words) {
    const ExprId any = exprs().anything();
    return words == kNothing ? any : exprs().negate(exprs().concat({any, words, any}));
  }
  // Text up to and with the first of `words` that appears, which is `word`.
  ExprId text_to(ExprId word, ExprId words) {
    const ExprId any = exprs().anything();
    const ExprId more = exprs().repeat(exprs().bytes(ByteSet::all()), 1, kEndless);
    return exprs().both(
        {exprs().concat(any, word), exprs().negate(exprs().concat({any, words, more}))});
  }

  ExprId triggered(const std::vector<std::string>& triggers, const std::vector<Tag>& tags,
                   bool at_least_one, bool stop_after_first, const std::string& path) {
    const ExprId words = one_of(triggers);
    std::vector<bool> used(tags.size(), false);
    std::vector<ExprId> calls;
    for (const std::string& trigger : triggers) {
      std::vector<ExprId> rest;
      for (size_t i = 0; i < tags.size(); ++i) {
        if (!tags[i].begin.starts_with(trigger)) continue;
        used[i] = true;
        rest.push_back(
            exprs().concat(exprs().literal(tags[i].begin.substr(trigger.size())), tags[i].rest));
      }
      calls.push_back(
          exprs().concat(text_to(exprs().literal(trigger), words), exprs().alt(std::move(rest))));
    }
    for (size_t i = 0; i < tags.size(); ++i)
      if (!used[i])
        throw Refusal(fmt::format("no trigger begins \"{}\"", tags[i].begin.substr(0, 80)), path);
    const ExprId call = exprs().alt(std::move(calls)), rest = text_without(words);
    if (stop_after_first) return at_least_one ? call : exprs().alt({call, rest});
    return exprs().concat(exprs().repeat(call, at_least_one ? 1 : 0, kEndless), rest);
  }

  ExprId structures(const OrderedJson& root) {
    std::vector<Tag> tags;
    size_t i = 0;
    for (const OrderedJson& one : list(root, "structures", "")) {
      const std::string path = fmt::format("/structures/{}", i++);
      const ExprId body = schema(need(one, "schema", path), path + "/schema");
      tags.push_back({text(one, "begin", path),
                      exprs().concat(body, exprs().literal(text(one, "end", path)))});
    }
    return triggered(texts(root, "triggers", ""), tags, false, false, "/structures");
  }

  Tag tag(const OrderedJson& at, const std::string& path) {
    const OrderedJson& content = need(at, "content", path);
    const std::vector<std::string> ends = texts(at, "end", path);
    const bool may_be_empty = ends.size() == 1 && ends[0].empty();
    Tag out{text(at, "begin", path), kNothing};
    if (content.is_object() && content.contains("type") && content["type"] == "any_text" &&
        !may_be_empty) {
      // Free text lasts until the first end.
      const ExprId words = one_of(ends), excluded = excludes(content, path + "/content");
      const ExprId body = text_to(words, words);
      out.rest = exprs().both({body, text_without(excluded)});
    } else {
      const ExprId end = may_be_empty ? kEmpty : one_of(ends);
      out.rest = exprs().concat(format(content, path + "/content"), end);
    }
    return out;
  }

  ExprId excludes(const OrderedJson& at, const std::string& path) {
    for (const char* bound : {"max_tokens", "max_chars"})
      if (at.contains(bound) && !at[bound].is_null())
        throw Refusal(fmt::format("\"{}\" is not supported", bound), path + "/" + bound);
    if (!at.contains("excludes") || at["excludes"].empty()) return kNothing;
    return one_of(texts(at, "excludes", path));
  }

  std::vector<Tag> tags(const OrderedJson& at, const std::string& path) {
    std::vector<Tag> out;
    size_t i = 0;
    for (const OrderedJson& one : list(at, "tags", path))
      out.push_back(tag(one, fmt::format("{}/tags/{}", path, i++)));
    return out;
  }

  std::vector<ExprId> elements(const OrderedJson& at, const std::string& path) {
    std::vector<ExprId> out;
    size_t i = 0;
    for (const OrderedJson& one : list(at, "elements", path))
      out.push_back(format(one, fmt::format("{}/elements/{}", path, i++)));
    return out;
  }

  uint32_t count(const OrderedJson& at, const char* key, uint32_t fallback,
                 const std::string& path) {
    if (!at.contains(key) || at[key] == -1) return fallback;
    if (!at[key].is_number_unsigned() || at[key].get<uint64_t>() > kMaxRepeat)
      throw Refusal(fmt::format("\"{}\" must be a number up to {}", key, kMaxRepeat),
                    path + "/" + key);
    return at[key].get<uint32_t>();
  }

  ExprId separated(const OrderedJson& at, const std::string& path) {
    std::vector<ExprId> choices;
    for (const Tag& one : tags(at, path))
      choices.push_back(exprs().concat(exprs().literal(one.begin), one.rest));
    const ExprId one = exprs().alt(std::move(choices));
    const ExprId separator = exprs().literal(text(at, "separator", path));
    const ExprId more = flag(at, "stop_after_first", path)
                            ? kEmpty
                            : exprs().repeat(exprs().concat(separator, one), 0, kEndless);
    const ExprId all = exprs().concat(one, more);
    return flag(at, "at_least_one", path) ? all : exprs().optional(all);
  }

  ExprId json_schema(const OrderedJson& at, const std::string& path) {
    if (at.contains("style") && at["style"] != "json")
      throw Refusal(fmt::format("the style {} is not supported; \"json\" is", at["style"].dump()),
                    path + "/style");
    return schema(need(at, "json_schema", path), path + "/json_schema");
  }

  ExprId format(const OrderedJson& at, const std::string& path) {
    if (exprs().fuel().empty()) refuse("the structural tag is too complex (its fuel is spent)");
    const std::string type = text(at, "type", path);
    if (type == "const_string") return exprs().literal(text(at, "value", path));
    if (type == "json_schema") return json_schema(at, path);
    if (type == "regex") return regex_text(text(at, "pattern", path), rules_);
    if (type == "grammar") return grammar_text(text(at, "grammar", path), rules_);
    if (type == "any_text") return text_without(excludes(at, path));
    if (type == "sequence") return exprs().joined(elements(at, path), kEmpty);
    if (type == "or") return exprs().alt(elements(at, path));
    if (type == "optional") return exprs().optional(content(at, path));
    if (type == "star") return exprs().repeat(content(at, path), 0, kEndless);
    if (type == "plus") return exprs().repeat(content(at, path), 1, kEndless);
    if (type == "repeat") {
      const uint32_t min = count(at, "min", 0, path), max = count(at, "max", kEndless, path);
      if (max < min) throw Refusal("\"max\" is less than \"min\"", path);
      return exprs().repeat(content(at, path), min, max);
    }
    if (type == "tag") {
      const Tag one = tag(at, path);
      return exprs().concat(exprs().literal(one.begin), one.rest);
    }
    if (type == "triggered_tags")
      return triggered(texts(at, "triggers", path), tags(at, path), flag(at, "at_least_one", path),
                       flag(at, "stop_after_first", path), path + "/tags");
    if (type == "tags_with_separator") return separated(at, path);
    throw Refusal(fmt::format("the type \"{}\" is not supported", type.substr(0, 80)),
                  path + "/type");
  }

  ExprId content(const OrderedJson& at, const std::string& path) {
    return format(need(at, "content", path), path + "/content");
  }

  RuleSet& rules_;
  JsonSyntax syntax_;
  bool strict_;
};

}  // namespace

ExprId structural_tag_text(const Constraint& constraint, RuleSet& rules) {
  constexpr int kMaxDepth = 64;
  auto parsed = parse_ordered_json(constraint.text, {.max_depth = kMaxDepth});
  if (!parsed) refuse("the structural tag is not valid JSON: {}", parsed.error().what);
  const JsonOwner<OrderedJson> root(std::move(*parsed));
  if (!(*root).is_object()) refuse("a structural tag must be an object");
  return TagReader(constraint, rules).read(*root);
}

}  // namespace skiff::grammar
