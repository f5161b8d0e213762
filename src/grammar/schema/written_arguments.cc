#include "grammar/schema/written_arguments.h"

#include <algorithm>

#include "base/schema_types.h"
#include "grammar/free_text.h"
#include "grammar/schema/lowering.h"

namespace skiff::grammar {
namespace {

// An argument is: before_key KEY after_key VALUE after_value; `between` stands between two.
struct Style {
  std::string_view name;
  std::string_view before_key, after_key, after_value;
  std::string_view after_key_of_text = {};  // where the value is plain text; empty: after_key
  std::string_view between = {};
  // What plain text may not hold, parted by blanks; empty: strings are literals.
  std::string_view ends_text = {};
  bool own_lines = false;  // the marks have the line ends around the value
  Spelling spelling = Spelling::kTaggedJson;
};

constexpr Style kStyles[] = {
    {.name = "qwen_xml",
     .before_key = "<parameter=",
     .after_key = ">\n",
     .after_value = "\n</parameter>\n",
     .ends_text = "</parameter> <parameter= </function>",
     .own_lines = true},
    {.name = "minimax_xml",
     .before_key = "<parameter name=\"",
     .after_key = "\">",
     .after_value = "</parameter>\n",
     .ends_text = "</parameter>"},
    {.name = "deepseek_xml",
     .before_key = "<｜DSML｜parameter name=\"",
     .after_key = "\" string=\"false\">",
     .after_value = "</｜DSML｜parameter>\n",
     .after_key_of_text = "\" string=\"true\">",
     .ends_text = "</｜DSML｜parameter>"},
    {.name = "glm_xml",
     .before_key = "<arg_key>",
     .after_key = "</arg_key>\n<arg_value>",
     .after_value = "</arg_value>\n",
     .ends_text = "</arg_value>"},
    {.name = "python",
     .before_key = "",
     .after_key = "=",
     .after_value = "",
     .between = ", ",
     .spelling = Spelling::kPython},
};

const Style* find_style(std::string_view name) {
  const auto* style = std::ranges::find(kStyles, name, &Style::name);
  return style == std::end(kStyles) ? nullptr : style;
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    out.emplace_back(text.substr(0, text.find(' ')));
    text.remove_prefix(std::min(text.size(), out.back().size() + 1));
  }
  return out;
}

bool allows_null(const Shape& shape) {
  if ((shape.types & kNullType) == 0) return false;
  return !shape.values ||
         std::ranges::any_of(*shape.values, [](Node one) { return one->is_null(); });
}

class Arguments {
 public:
  Arguments(const Document& document, const Style& style, const Constraint& options, RuleSet& rules)
      : document_(document),
        style_(style),
        rules_(rules),
        syntax_(rules, options, style.spelling),
        lowering_(document, syntax_, options.strict),
        types_(*document.root()),
        plain_(rules.exprs, Spelling::kUtf8) {}

  ExprId all() {
    std::vector<ExprId> choices;
    for (const Shape& shape : lowering_.expander().expand(document_.root()))
      if (shape.types & kObjectType) choices.push_back(object(shape));
    const ExprId out = exprs().alt(std::move(choices));
    lowering_.check_depth(out);
    return out;
  }

 private:
  ExprSet& exprs() { return rules_.exprs; }
  ExprId marked(std::string_view text) { return marked_text(text, rules_); }

  void check(const Shape& shape, size_t names) const {
    const auto no = [&](const char* keyword, const char* of = "") {
      throw Refusal(
          fmt::format("{}{} cannot be followed in this notation of arguments", keyword, of),
          document_.pointer({document_.root()}, keyword));
    };
    if (shape.values)
      no(member_of(document_.root(), "const") ? "const" : "enum", " of whole objects");
    if (!shape.names.empty()) no("propertyNames");
    if (!member_patterns(shape).empty()) no("patternProperties");
    if (shape.min_members > shape.required.size()) no("minProperties");
    if (shape.max_members < names) no("maxProperties");
  }

  // Characters that the reader of a name might take for a mark.
  void check_name(const std::string& name) const {
    const bool python = style_.spelling == Spelling::kPython;
    const auto good = [&](char c) {
      const bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-' ||
                        c == '.' || (c >= '0' && c <= '9');
      return word || (!python && (static_cast<uint8_t>(c) >= 0x80 || c == '$' || c == '@'));
    };
    if (name.empty() || !std::ranges::all_of(name, good))
      throw Refusal("the name of this argument cannot be written in this notation of arguments",
                    "/properties");
  }

  ExprId object(const Shape& shape) {
    std::vector<std::string> names = declared_names(shape);
    for (const std::string& name : shape.required)
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    check(shape, names.size());
    const ExprId between = marked(style_.between);
    const ExprId other = names.empty() ? other_member(shape) : kNothing;
    const ExprId more = exprs().repeat(exprs().concat(between, other), 0, kEndless);
    // Members are put together from the last to the first, as in_order() of lower_object.cc does.
    ExprId after = more, first = exprs().optional(exprs().concat(other, more));
    for (auto name = names.rbegin(); name != names.rend(); ++name) {
      const bool required = std::ranges::find(shape.required, *name) != shape.required.end();
      const ExprId text = member(*name, lowering_.nodes_of(shape, *name));
      if (text == kNothing && required) return kNothing;
      if (text == kNothing) continue;
      const ExprId here = exprs().concat(text, after);
      first = required ? here : exprs().alt({here, first});
      const ExprId next = exprs().concat(between, text);
      after = exprs().concat(required ? next : exprs().optional(next), after);
    }
    return first;
  }

  // The types of an argument for its reader.
  JsonTypes types_of(const std::string& name) {
    const Node properties = member_of(document_.root(), "properties");
    const Node schema = properties ? member_of(properties, name) : nullptr;
    return schema ? types_.of(*schema) : kJsonAny;
  }

  ExprId member(const std::string& name, const Nodes& nodes) {
    check_name(name);
    const ExprId key = marked(std::string(style_.before_key) + name);
    const JsonTypes types = types_of(name);
    if (style_.ends_text.empty() || !only_text(types)) return written(key, lowering_.value(nodes));
    ExprId text = lowering_.string_bodies(nodes, {plain_, plain_.any()}).value_or(kNothing);
    if (types & kJsonNull) text = exprs().both({text, exprs().negate(null_for_reader())});
    const bool null = std::ranges::any_of(lowering_.expander().expand_all(nodes), allows_null);
    return exprs().alt(
        {written_text(key, text), null ? written(key, exprs().literal("null")) : kNothing});
  }

  // The texts that a reader takes for null where the string may be that: in any case, and as Python
  // writes it.
  ExprId null_for_reader() {
    const ExprId blanks =
        exprs().repeat(exprs().alt({exprs().literal(" "), exprs().literal("\t"),
                                    exprs().literal("\r"), exprs().literal("\n")}),
                       0, kEndless);
    ExprId word = kEmpty;
    for (const char c : std::string_view("llun")) {
      ByteSet either;
      either.add(static_cast<uint8_t>(c)), either.add(static_cast<uint8_t>(c - 0x20));
      word = exprs().concat(exprs().bytes(either), word);
    }
    return exprs().concat({blanks, exprs().alt({word, exprs().literal("None")}), blanks});
  }

  // A member that the schema does not name.
  ExprId other_member(const Shape& shape) {
    constexpr uint32_t kMaxName = 64;
    const Nodes nodes = other_nodes(shape, {}, {});
    ByteSet letters = ByteSet::range('a', 'z') | ByteSet::range('A', 'Z');
    letters.add('_');
    const ExprId name = exprs().concat(
        exprs().bytes(letters),
        exprs().repeat(exprs().bytes(letters | ByteSet::range('0', '9')), 0, kMaxName - 1));
    const ExprId key = exprs().concat(marked(style_.before_key), name);
    const bool any = std::ranges::all_of(
        nodes, [](Node node) { return node->is_boolean() ? node->get<bool>() : node->empty(); });
    if (any && !style_.ends_text.empty())
      return written_text(key, exprs().repeat(plain_.any(), 0, kEndless));
    return written(key, lowering_.value(nodes));
  }

  ExprId written(ExprId key, ExprId value) {
    return exprs().concat({key, marked(style_.after_key), value, marked(style_.after_value)});
  }

  // A reader drops a line end at the start and at the end of a value.
  ExprId written_text(ExprId key, ExprId text) {
    if (text == kNothing) return kNothing;
    text = Words(words_of(style_.ends_text), rules_).without(text);
    if (!style_.own_lines) {
      const ExprId any = exprs().anything(), line = exprs().literal("\n");
      text = exprs().both({text, exprs().negate(exprs().concat(line, any)),
                           exprs().negate(exprs().concat(any, line))});
    }
    const std::string_view own = style_.after_key_of_text;
    return exprs().concat(
        {key, marked(own.empty() ? style_.after_key : own), text, marked(style_.after_value)});
  }

  const Document& document_;
  const Style& style_;
  RuleSet& rules_;
  JsonSyntax syntax_;
  SchemaLowering lowering_;
  SchemaTypes types_;
  Speller plain_;
};

}  // namespace

bool is_argument_style(std::string_view name) { return find_style(name) != nullptr; }

std::string argument_style_names() {
  std::string out;
  for (const Style& style : kStyles) out.append(out.empty() ? "" : ", ").append(style.name);
  return out;
}

ExprId arguments_text(std::string_view schema, std::string_view style, const Constraint& options,
                      RuleSet& rules) {
  const Document document(schema, schema.size());
  const ExprId out = Arguments(document, *find_style(style), options, rules).all();
  if (rules.exprs.fuel().empty()) refuse("the schema is too complex (its fuel is spent)");
  return out;
}

}  // namespace skiff::grammar
