#include "text/jinja/print.h"

#include <charconv>
#include <cmath>
#include <cstdlib>

#include "base/utf8.h"
#include "text/jinja/loop.h"
#include "text/jinja/unicode.h"

namespace skiff::jinja {
namespace {

void append_escaped(std::string& out, char32_t c) {
  if (c < 0x100)
    fmt::format_to(std::back_inserter(out), "\\x{:02x}", uint32_t{c});
  else if (c < 0x10000)
    fmt::format_to(std::back_inserter(out), "\\u{:04x}", uint32_t{c});
  else
    fmt::format_to(std::back_inserter(out), "\\U{:08x}", uint32_t{c});
}

std::string python_quoted(std::string_view text) {
  const bool use_double = text.find('\'') != text.npos && text.find('"') == text.npos;
  const char quote = use_double ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const char32_t c = utf8_next(text, &at);
    if (c == static_cast<char32_t>(quote) || c == '\\')
      out += {'\\', static_cast<char>(c)};
    else if (c == '\n')
      out += "\\n";
    else if (c == '\r')
      out += "\\r";
    else if (c == '\t')
      out += "\\t";
    else if (is_printable(c))
      utf8_append(out, c);
    else
      append_escaped(out, c);
  }
  return out += quote;
}

class Printer {
 public:
  explicit Printer(Budget& budget) : budget_(budget) {}

  void add(const Value& value) {
    const size_t before = out_.size();
    budget_.step();
    if (const bool* b = value.as_bool())
      out_ += *b ? "True" : "False";
    else if (value.is_none())
      out_ += "None";
    else if (value.is_undefined())
      out_ += "Undefined";
    else if (const int64_t* i = value.as_int())
      out_ += std::to_string(*i);
    else if (const uint64_t* u = value.as_wide())
      out_ += std::to_string(*u);
    else if (const double* d = value.as_float())
      out_ += float_repr(*d);
    else if (const std::string* s = value.as_text())
      out_ += value.is_markup() ? "Markup(" + python_quoted(*s) + ")" : python_quoted(*s);
    else if (const Dict* dict = value.as_dict())
      add_dict(*dict);
    else if (const Seq* seq = value.as_seq())
      add_seq(*seq);
    else if (Callable* c = value.as_callable())
      out_ += c->repr();
    else
      add_other(value);
    if (value.depth() == 0) budget_.make(out_.size() - before);
  }

  std::string take() { return std::move(out_); }

 private:
  void add_other(const Value& value) {
    if (const Namespace* space = value.as_namespace()) return add_namespace(*space);
    const Loop& loop = *value.as_loop();
    out_ += fmt::format("<LoopContext {}/{}>", loop.index + 1, loop.items.size());
  }

  // A namespace may hold itself.
  void add_namespace(const Namespace& space) {
    if (namespaces_ >= kMaxNamespaces) fail("a namespace inside {} others", kMaxNamespaces);
    ++namespaces_;
    out_ += "<Namespace {";
    for (const auto& [key, item] : space.items) {
      if (&key != &space.items.front().first) out_ += ", ";
      budget_.make(key.size());
      out_ += python_quoted(key) + ": ";
      add(item);
    }
    out_ += "}>";
    --namespaces_;
  }

  void add_dict(const Dict& dict) {
    out_ += '{';
    for (const auto& [key, item] : dict.items) {
      if (&key != &dict.items.front().first) out_ += ", ";
      add(key);
      out_ += ": ";
      add(item);
    }
    out_ += '}';
  }

  void add_seq(const Seq& seq) {
    if (seq.form == Seq::Form::kRange) return void(out_ += seq.label);
    if (seq.form == Seq::Form::kGenerator) return void(out_ += "<generator object>");
    const bool tuple = seq.form == Seq::Form::kTuple;
    if (seq.form == Seq::Form::kView) out_ += seq.label + "(";
    out_ += tuple ? '(' : '[';
    for (const Value& item : seq.items) {
      if (&item != &seq.items.front()) out_ += ", ";
      add(item);
    }
    if (tuple && seq.items.size() == 1) out_ += ',';
    out_ += tuple ? ')' : ']';
    if (seq.form == Seq::Form::kView) out_ += ')';
  }

  static constexpr int kMaxNamespaces = 20;
  Budget& budget_;
  std::string out_;
  int namespaces_ = 0;
};

}  // namespace

std::string to_text(Budget& budget, const Value& value) {
  if (const std::string* s = value.as_text()) {
    budget.make(s->size());
    return *s;
  }
  if (value.is_undefined()) return {};
  return repr(budget, value);
}

std::string repr(Budget& budget, const Value& value) {
  Printer printer(budget);
  printer.add(value);
  return printer.take();
}

// Prints the shortest digits that read back as the same number, laid out as in Python: with an
// exponent below -4 or from 16 on.
std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<size_t>(end.ptr - buffer));
  const size_t e = text.find('e');
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  if (exponent < -4 || exponent >= 16) return std::string(text);
  char fixed[40];
  const auto fixed_end =
      std::to_chars(fixed, fixed + sizeof fixed, value, std::chars_format::fixed);
  std::string out(fixed, fixed_end.ptr);
  if (out.find('.') == out.npos) out += ".0";
  return out;
}

}  // namespace skiff::jinja
