#include "apps/yaml.h"

#include <fmt/format.h>
#include <yaml.h>

#include <algorithm>
#include <array>
#include <utility>

#include "apps/args.h"
#include "base/check.h"
#include "base/log.h"

namespace skiff::apps {
namespace {

class Event {
 public:
  Event() = default;
  ~Event() { yaml_event_delete(&event_); }
  Event(const Event&) = delete;
  yaml_event_t* get() { return &event_; }
  const yaml_event_t* operator->() const { return &event_; }
  size_t line() const { return event_.start_mark.line + 1; }

 private:
  yaml_event_t event_{};
};

class Reader {
 public:
  Reader(std::string_view text, const std::string& where) : where_(where) {
    SKIFF_CHECK(yaml_parser_initialize(&parser_), "no memory for a YAML parser");
    yaml_parser_set_encoding(&parser_, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text.data()),
                                 text.size());
  }
  ~Reader() { yaml_parser_delete(&parser_); }
  Reader(const Reader&) = delete;

  YamlNode document() {
    YamlNode root{.kind = YamlNode::kObject};
    expect(YAML_STREAM_START_EVENT);
    Event begin;
    next(begin);
    if (begin->type == YAML_STREAM_END_EVENT) return root;
    Event first;
    next(first);
    root = node(first, 0);
    expect(YAML_DOCUMENT_END_EVENT);
    Event end;
    next(end);
    if (end->type != YAML_STREAM_END_EVENT) refuse(end.line(), "a second document");
    return root;
  }

 private:
  [[noreturn]] void refuse(size_t line, std::string_view what) const {
    throw UsageError(fmt::format("{}:{}: {} is not supported here", where_, line, what));
  }

  void next(Event& event) {
    if (yaml_parser_parse(&parser_, event.get())) return;
    throw UsageError(fmt::format("{}:{}: {}", where_, parser_.problem_mark.line + 1,
                                 parser_.problem ? parser_.problem : "this is no YAML"));
  }

  void expect(yaml_event_type_t type) {
    Event event;
    next(event);
    SKIFF_CHECK(event->type == type, "event {} of YAML", static_cast<int>(event->type));
  }

  YamlNode node(const Event& event, int depth) {
    if (depth > kMaxYamlDepth)
      throw UsageError(
          fmt::format("{}:{}: more than {} levels", where_, event.line(), kMaxYamlDepth));
    switch (event->type) {
      case YAML_SCALAR_EVENT:
        return scalar(event);
      case YAML_SEQUENCE_START_EVENT:
        check_properties(event, event->data.sequence_start.anchor, event->data.sequence_start.tag);
        return list(event.line(), depth);
      case YAML_MAPPING_START_EVENT:
        check_properties(event, event->data.mapping_start.anchor, event->data.mapping_start.tag);
        return object(event.line(), depth);
      default:
        refuse(event.line(), "an alias");
    }
  }

  void check_properties(const Event& event, const yaml_char_t* anchor,
                        const yaml_char_t* tag) const {
    if (anchor) refuse(event.line(), "an anchor");
    if (tag) refuse(event.line(), "a tag");
  }

  YamlNode scalar(const Event& event) const {
    const auto& data = event->data.scalar;
    check_properties(event, data.anchor, data.tag);
    YamlNode out{.line = event.line()};
    out.text.assign(reinterpret_cast<const char*>(data.value), data.length);
    if (out.text.find('\0') != std::string::npos) refuse(event.line(), "a NUL");
    out.plain = data.style == YAML_PLAIN_SCALAR_STYLE;
    return out;
  }

  YamlNode list(size_t line, int depth) {
    YamlNode out{.kind = YamlNode::kList, .line = line};
    for (;;) {
      Event event;
      next(event);
      if (event->type == YAML_SEQUENCE_END_EVENT) return out;
      out.items.push_back(node(event, depth + 1));
    }
  }

  YamlNode object(size_t line, int depth) {
    YamlNode out{.kind = YamlNode::kObject, .line = line};
    for (;;) {
      Event key, value;
      next(key);
      if (key->type == YAML_MAPPING_END_EVENT) return out;
      if (key->type != YAML_SCALAR_EVENT) refuse(key.line(), "a key that is no text");
      if (out.keys.size() == kMaxYamlKeys)
        throw UsageError(fmt::format("{}:{}: more than {} keys", where_, key.line(), kMaxYamlKeys));
      const YamlNode name = scalar(key);
      if (std::ranges::find(out.keys, name.text) != out.keys.end())
        throw UsageError(fmt::format("{}:{}: the key \"{}\" comes twice", where_, key.line(),
                                     escaped(name.text)));
      next(value);
      out.items.push_back(node(value, depth + 1));
      out.items.back().line = key.line();
      out.keys.push_back(name.text);
    }
  }

  const std::string& where_;
  yaml_parser_t parser_{};
};

template <size_t N>
bool any_of(std::string_view text, const std::array<std::string_view, N>& words) {
  std::string low(text);
  for (char& c : low)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return std::ranges::find(words, low) != words.end();
}

}  // namespace

bool YamlNode::is_null() const {
  return kind == kScalar && plain &&
         any_of(text, std::to_array<std::string_view>({"", "~", "null"}));
}

std::optional<bool> YamlNode::truth() const {
  if (kind != kScalar || !plain) return std::nullopt;
  if (any_of(text, std::to_array<std::string_view>({"true", "yes", "on"}))) return true;
  if (any_of(text, std::to_array<std::string_view>({"false", "no", "off"}))) return false;
  return std::nullopt;
}

OrderedJson YamlNode::json() const {
  if (kind == kScalar) {
    if (is_null()) return nullptr;
    if (const auto yes = truth()) return *yes;
    if (plain)
      if (auto number = parse_ordered_json(text); number && number->is_number()) return *number;
    return text;
  }
  OrderedJson out = kind == kList ? OrderedJson::array() : OrderedJson::object();
  for (size_t i = 0; i < items.size(); ++i)
    if (kind == kList)
      out.push_back(items[i].json());
    else
      out[keys[i]] = items[i].json();
  return out;
}

YamlNode read_yaml(std::string_view text, const std::string& where) {
  if (text.size() > kMaxYamlBytes)
    throw UsageError(fmt::format("{}: more than {} bytes", where, kMaxYamlBytes));
  return Reader(text, where).document();
}

}  // namespace skiff::apps
