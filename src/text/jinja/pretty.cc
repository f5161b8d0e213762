#include "text/jinja/pretty.h"

#include <algorithm>

#include "base/utf8.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace skiff::jinja {
namespace {

constexpr int kWidth = 80;

int width_of(std::string_view text) { return static_cast<int>(count_characters(text)); }

// Orders by type where two values have no order.
bool stands_before(Budget& budget, const Value& a, const Value& b) {
  double unused;
  const bool numbers = is_number(a, &unused) && is_number(b, &unused);
  if (numbers || (a.is_text() && b.is_text())) return compare(budget, a, b) < 0;
  return std::string_view(type_name(a)) < type_name(b);
}

// Returns the value with the keys of every dict sorted.
Value with_sorted_keys(Budget& budget, const Value& value) {
  if (const Dict* dict = value.as_dict()) {
    Pairs items;
    for (const auto& [key, item] : dict->items)
      items.emplace_back(key, with_sorted_keys(budget, item));
    std::stable_sort(items.begin(), items.end(), [&](const auto& a, const auto& b) {
      return stands_before(budget, a.first, b.first);
    });
    return Value::dict(budget, std::move(items));
  }
  const Seq* seq = value.as_seq();
  if (!seq || seq->form > Seq::Form::kTuple) return value;
  Values items;
  for (const Value& item : seq->items) items.push_back(with_sorted_keys(budget, item));
  return Value::seq(budget, seq->form, std::move(items));
}

// Splits into runs without white space, each with the white space behind it.
std::vector<std::string> words_of(Budget& budget, std::string_view line) {
  std::vector<std::string> words;
  bool in_blank = true;
  for (size_t at = 0; at < line.size();) {
    const size_t start = at;
    const bool blank = is_space(utf8_next(line, &at));
    if (words.empty() || (in_blank && !blank)) {
      budget.make(2 * sizeof(std::string));
      words.emplace_back();
    }
    words.back() += line.substr(start, at - start);
    in_blank = blank;
  }
  return words;
}

std::vector<std::string> lines_of(Budget& budget, std::string_view text) {
  std::vector<std::string> lines;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find_first_of("\n\r", start), text.size() - 1) + 1;
    const bool pair = text[end - 1] == '\r' && end < text.size() && text[end] == '\n';
    budget.make(2 * sizeof(std::string) + end - start);
    lines.emplace_back(text.substr(start, end + pair - start));
    start = end + pair;
  }
  return lines;
}

class Pretty {
 public:
  explicit Pretty(Budget& budget) : budget_(budget) {}

  // `indent` is the column; `allowance` is the number of characters that must still fit behind the
  // value on its last line.
  void add(const Value& value, int indent, int allowance, int level) {
    const std::string plain = repr(budget_, value);
    if (width_of(plain) <= kWidth - indent - allowance) return write(plain);
    const Seq* seq = value.as_seq();
    if (value.as_dict() && !value.as_dict()->items.empty())
      add_dict(*value.as_dict(), indent, allowance + 1, level + 1);
    else if (seq && seq->form <= Seq::Form::kTuple && !seq->items.empty())
      add_seq(*seq, indent, allowance, level + 1);
    else if (value.is_text() && !value.is_markup() && !value.as_text()->empty())
      add_text(*value.as_text(), indent, allowance, level + 1);
    else
      write(plain);
  }

  std::string take() { return std::move(out_); }

 private:
  void write(std::string_view text) {
    budget_.make(text.size());
    out_ += text;
  }

  void new_line(int indent) {
    budget_.make(static_cast<uint64_t>(indent) + 1);
    out_.append(1, '\n').append(static_cast<size_t>(indent), ' ');
  }

  void add_dict(const Dict& dict, int indent, int allowance, int level) {
    write("{");
    for (const auto& item : dict.items) {
      const bool last = &item == &dict.items.back();
      const std::string key = repr(budget_, item.first);
      write(key + ": ");
      add(item.second, indent + 1 + width_of(key) + 2, last ? allowance : 1, level);
      if (last) break;
      write(",");
      new_line(indent + 1);
    }
    write("}");
  }

  void add_seq(const Seq& seq, int indent, int allowance, int level) {
    const bool tuple = seq.form == Seq::Form::kTuple;
    const std::string_view end = !tuple ? "]" : seq.items.size() == 1 ? ",)" : ")";
    write(tuple ? "(" : "[");
    for (const Value& item : seq.items) {
      const bool last = &item == &seq.items.back();
      add(item, indent + 1, last ? allowance + width_of(end) : 1, level);
      if (last) break;
      write(",");
      new_line(indent + 1);
    }
    write(end);
  }

  // Cuts at line ends and between words; Python joins adjacent literals.
  void add_text(const std::string& text, int indent, int allowance, int level) {
    const bool outermost = level == 1;
    indent += outermost;
    allowance += outermost;
    const int room = kWidth - indent;
    std::vector<std::string> chunks;
    const auto lines = lines_of(budget_, text);
    for (const std::string& line : lines) {
      const int taken = &line == &lines.back() ? allowance : 0;
      if (width_of(quoted(line)) <= room - taken)
        chunks.push_back(quoted(line));
      else
        add_words(chunks, line, room, taken);
    }
    if (chunks.size() == 1) return write(chunks[0]);
    if (outermost) write("(");
    for (const std::string& chunk : chunks) {
      if (&chunk != &chunks.front()) new_line(indent);
      write(chunk);
    }
    if (outermost) write(")");
  }

  void add_words(std::vector<std::string>& chunks, std::string_view line, int room, int allowance) {
    std::string current;
    const auto words = words_of(budget_, line);
    for (const std::string& word : words) {
      budget_.make(current.size() + word.size());
      const int taken = &word == &words.back() ? allowance : 0;
      if (width_of(quoted(current + word)) > room - taken) {
        if (!current.empty()) chunks.push_back(quoted(current));
        current = word;
      } else {
        current += word;
      }
    }
    if (!current.empty()) chunks.push_back(quoted(current));
  }

  std::string quoted(const std::string& text) { return repr(budget_, Value(text)); }

  Budget& budget_;
  std::string out_;
};

}  // namespace

std::string pretty(Budget& budget, const Value& value) {
  Pretty out(budget);
  out.add(with_sorted_keys(budget, value), 0, 0, 0);
  return out.take();
}

}  // namespace skiff::jinja
