#include <algorithm>
#include <cmath>

#include "base/utf8.h"
#include "text/jinja/print.h"

namespace skiff::jinja {
namespace {

void append_unit(std::string& out, uint32_t unit) {
  fmt::format_to(std::back_inserter(out), "\\u{:04x}", unit);
}

void append_character(std::string& out, char32_t c, bool ascii) {
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    case '\f':
      out += "\\f";
      return;
    case '\b':
      out += "\\b";
      return;
    default:
      break;
  }
  if (c >= 0x20 && (c < 0x7f || !ascii)) return utf8_append(out, c);
  if (c < 0x10000) return append_unit(out, c);
  append_unit(out, 0xd800 + ((c - 0x10000) >> 10));
  append_unit(out, 0xdc00 + ((c - 0x10000) & 0x3ff));
}

class Writer {
 public:
  Writer(Budget& budget, const JsonStyle& style) : budget_(budget), style_(style) {}

  void add(const Value& value) {
    const size_t before = out_.size();
    budget_.step();
    if (value.is_text()) return add_string(*value.as_text());
    if (add_scalar(value)) return budget_.make(out_.size() - before);
    if (const Dict* dict = value.as_dict()) return add_dict(*dict);
    const Seq* seq = value.as_seq();
    if (!seq || seq->form > Seq::Form::kTuple)
      fail("Object of type {} is not JSON serializable", type_name(value));
    add_seq(*seq);
  }

  std::string take() { return std::move(out_); }

 private:
  bool add_scalar(const Value& value) {
    if (value.is_none())
      out_ += "null";
    else if (const bool* b = value.as_bool())
      out_ += *b ? "true" : "false";
    else if (const int64_t* i = value.as_int())
      out_ += std::to_string(*i);
    else if (const uint64_t* u = value.as_wide())
      out_ += std::to_string(*u);
    else if (const double* d = value.as_float())
      out_ += number(*d);
    else
      return false;
    return true;
  }

  static std::string number(double d) {
    if (std::isnan(d)) return "NaN";
    if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
    return float_repr(d);
  }

  void add_string(std::string_view text) {
    budget_.make(text.size());
    const size_t before = out_.size();
    out_ += '"';
    for (size_t at = 0; at < text.size();)
      append_character(out_, utf8_next(text, &at), style_.ascii);
    out_ += '"';
    budget_.make(out_.size() - before - text.size());
  }

  void add_key(const Value& key) {
    budget_.step();
    if (key.is_text()) return add_string(*key.as_text());
    out_ += '"';
    if (!add_scalar(key)) fail("a key of type {} is not JSON serializable", type_name(key));
    out_ += '"';
  }

  void add_dict(const Dict& dict) {
    if (dict.items.empty()) return void(out_ += "{}");
    budget_.make_many(dict.items.size(), sizeof(void*) + style_.key_separator.size());
    std::vector<const std::pair<Value, Value>*> items;
    for (const auto& item : dict.items) items.push_back(&item);
    if (style_.sort_keys)
      std::stable_sort(items.begin(), items.end(),
                       [&](auto* a, auto* b) { return compare(budget_, a->first, b->first) < 0; });
    out_ += '{';
    ++level_;
    for (const auto* item : items) {
      start_item(item == items.front());
      add_key(item->first);
      out_ += style_.key_separator;
      add(item->second);
    }
    --level_;
    new_line();
    out_ += '}';
  }

  void add_seq(const Seq& seq) {
    if (seq.items.empty()) return void(out_ += "[]");
    out_ += '[';
    ++level_;
    for (const Value& item : seq.items) {
      start_item(&item == &seq.items.front());
      add(item);
    }
    --level_;
    new_line();
    out_ += ']';
  }

  void start_item(bool first) {
    budget_.make(style_.item_separator.size());
    if (!first) out_ += style_.item_separator;
    new_line();
  }

  void new_line() {
    if (!style_.pretty) return;
    budget_.make(1 + style_.indent.size() * level_);
    out_ += '\n';
    for (size_t i = 0; i < level_; ++i) out_ += style_.indent;
  }

  Budget& budget_;
  const JsonStyle& style_;
  std::string out_;
  size_t level_ = 0;
};

}  // namespace

std::string json_text(Budget& budget, const Value& value, const JsonStyle& style) {
  Writer writer(budget, style);
  writer.add(value);
  return writer.take();
}

}  // namespace skiff::jinja
