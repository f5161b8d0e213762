#include "text/normalizer.h"

#include <algorithm>
#include <memory>
#include <string_view>

#include "base/utf8.h"
#include "text/base64.h"
#include "text/byte_level.h"
#include "text/charsmap.h"
#include "text/clean_text.h"
#include "text/text_regex.h"
#include "text/unicode.h"

namespace skiff::text {
namespace {

constexpr size_t kMaxContent = 256;

std::string replaced(const std::string& text, const std::string& from, const std::string& to) {
  std::string out;
  size_t done = 0;
  for (size_t at; (at = text.find(from, done)) != text.npos; done = at + from.size()) {
    out.append(text, done, at - done);
    out += to;
  }
  return out.append(text, done);
}

std::string replaced(const std::string& text, const TextRegex& from, const std::string& to) {
  std::vector<TextRange> matches;
  TextRegex::Scan(from).find_all(text, matches);
  std::string out;
  size_t done = 0;
  for (const TextRange match : matches) {
    out.append(text, done, match.begin - done);
    out += to;
    done = match.end;
  }
  return out.append(text, done);
}

std::string short_text(const Fields& spec, const char* key) {
  auto text = spec.need<std::string>(key);
  if (text.size() > kMaxContent)
    fail_load("{}: {} of {} bytes, the limit is {}", spec.where(), key, text.size(), kMaxContent);
  return text;
}

void strip(std::string& text, bool left, bool right) {
  size_t begin = 0, end = text.size();
  for (size_t next = 0; left && begin < end; begin = next)
    if (!is_white_space(utf8_next(text, &next))) break;
  for (size_t start = 0; right && end > begin; end = start)
    if (!is_white_space(utf8_before(text, end, &start))) break;
  text = text.substr(begin, end - begin);
}

class Reader {
 public:
  std::vector<NormalizeStep> steps;

  void read(const Json& spec, const std::string& where) {
    const Fields fields(spec, where);
    const auto type = fields.need<std::string>("type");
    if (type == "Sequence") {
      for (const Json& child : fields.need<Json::array_t>("normalizers")) read(child, where);
    } else {
      steps.push_back(read_step(type, fields));
    }
    if (growth_ > kMaxTextGrowth || steps.size() > 64)
      fail_load("{}: these steps could grow a text more than {}-fold", where, kMaxTextGrowth);
  }

 private:
  NormalizeStep read_step(const std::string& type, const Fields& fields) {
    if (type == "NFC") return normal(NormalForm::kNFC, 3);
    if (type == "NFD") return normal(NormalForm::kNFD, 4);
    if (type == "NFKC") return normal(NormalForm::kNFKC, 11);
    if (type == "NFKD") return normal(NormalForm::kNFKD, 11);
    if (type == "ByteLevel") return byte_level();
    if (type == "Precompiled") return precompiled(fields);
    if (type == "BertNormalizer") return bert(fields);
    if (type == "Nmt") return [](std::string& text) { text = nmt_cleaned(text); };
    if (type == "StripAccents") return [](std::string& text) { text = without_marks(text); };
    if (type == "Lowercase") return [](std::string& text) { text = lowercase(text); };
    if (type == "Replace") return read_replace(fields, &growth_);
    if (type == "Prepend")
      return [prefix = short_text(fields, "prepend")](std::string& text) {
        if (!text.empty()) text.insert(0, prefix);
      };
    if (type == "Strip")
      return [left = fields.get("strip_left", true), right = fields.get("strip_right", true)](
                 std::string& text) { strip(text, left, right); };
    fail_load("{} type {} is not supported", fields.where(), type.substr(0, 60));
  }

  // UAX #15: the growth in UTF-8 bytes is at most `factor`.
  NormalizeStep normal(NormalForm form, double factor) {
    growth_ *= factor;
    return [form](std::string& text) { text = normal_form(text, form); };
  }

  NormalizeStep byte_level() {
    growth_ *= 2;
    return [](std::string& text) { text = alphabet_from_bytes(text); };
  }

  NormalizeStep precompiled(const Fields& fields) {
    const auto written = fields.need<std::string>("precompiled_charsmap");
    const auto bytes = bytes_from_base64(written);
    if (bytes && bytes->empty()) return [](std::string&) {};
    auto map = Charsmap::read(bytes.value_or(""));
    if (!map) fail_load("{}: {}", fields.where(), map.error().what);
    growth_ *= map->growth();
    return [map = *map](std::string& text) { text = map.apply(text); };
  }

  NormalizeStep bert(const Fields& fields) {
    BertCleaning options;
    options.clean_text = fields.get("clean_text", true);
    options.handle_chinese_chars = fields.get("handle_chinese_chars", true);
    options.lowercase = fields.get("lowercase", true);
    options.strip_accents = fields.get("strip_accents", options.lowercase);
    growth_ *= 4;  // NFD
    return [options](std::string& text) { text = bert_cleaned(text, options); };
  }

  double growth_ = 1;
};

}  // namespace

NormalizeStep read_replace(const Fields& spec, double* growth) {
  auto to = short_text(spec, "content");
  const Fields pattern = spec.child("pattern");
  if (pattern.has("String")) {
    auto from = short_text(pattern, "String");
    if (from.empty()) fail_load("{}: the pattern is empty", spec.where());
    *growth *= std::max(1.0, static_cast<double>(to.size()) / static_cast<double>(from.size()));
    return [from, to](std::string& text) {
      if (text.find(from) != text.npos) text = replaced(text, from, to);
    };
  }
  auto regex = TextRegex::compile(pattern.need<std::string>("Regex"));
  if (!regex) fail_load("{}: {}", spec.where(), regex.error().what);
  *growth *= std::max<double>(1, static_cast<double>(to.size()));
  return [from = *regex, to](std::string& text) { text = replaced(text, from, to); };
}

std::vector<NormalizeStep> read_normalizer(const Json& spec, const std::string& where) {
  Reader reader;
  if (!spec.is_null()) reader.read(spec, where);
  return std::move(reader.steps);
}

}  // namespace skiff::text
