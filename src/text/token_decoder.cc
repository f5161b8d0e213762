#include "text/token_decoder.h"

#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "base/utf8.h"
#include "text/byte_level.h"
#include "text/normalizer.h"

namespace skiff::text {
namespace {

using Tokens = std::vector<std::string>;

// Returns the byte that a token like "<0xE4>" names.
std::optional<char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  unsigned value = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, value, 16);
  if (error != std::errc() || end != token.data() + 5) return std::nullopt;
  return static_cast<char>(value);
}

// A run of byte tokens becomes its text if that is valid UTF-8, else one U+FFFD per byte.
void flush_bytes(std::string& bytes, Tokens& out) {
  if (bytes.empty()) return;
  if (is_valid_utf8(bytes)) {
    out.push_back(bytes);
  } else {
    for (size_t i = 0; i < bytes.size(); ++i) out.emplace_back("\uFFFD");
  }
  bytes.clear();
}

void join_bytes(Tokens& tokens) {
  Tokens out;
  std::string bytes;
  for (std::string& token : tokens) {
    if (const auto byte = fallback_byte(token)) {
      bytes += *byte;
    } else {
      flush_bytes(bytes, out);
      out.push_back(std::move(token));
    }
  }
  flush_bytes(bytes, out);
  tokens = std::move(out);
}

void fuse(Tokens& tokens) {
  std::string all;
  for (const std::string& token : tokens) all += token;
  tokens.clear();
  tokens.push_back(std::move(all));
}

// Removes up to `start` copies of `content` from the front and up to `stop` from the back.
void strip(std::string& token, const std::string& content, int start, int stop) {
  std::string_view rest = token;
  for (; start > 0 && rest.starts_with(content); --start) rest.remove_prefix(content.size());
  for (; stop > 0 && rest.ends_with(content); --stop) rest.remove_suffix(content.size());
  token = std::string(rest);
}

std::string replace_mark(const std::string& token, const std::string& mark, const char* by) {
  std::string out;
  size_t done = 0;
  for (size_t at; (at = token.find(mark, done)) != token.npos; done = at + mark.size())
    out.append(token, done, at - done) += by;
  return out.append(token, done);
}

}  // namespace

class TokenDecoder::Reader {
 public:
  Reader(TokenDecoder& out, const std::string& where) : out_(out), where_(where) {}

  void read(const Json& spec) {
    const Fields fields(spec, where_);
    const auto type = fields.need<std::string>("type");
    if (out_.steps_.size() > 64) fail_load("{}: more than 64 steps", where_);
    if (type == "Sequence") {
      for (const Json& child : fields.need<Json::array_t>("decoders")) read(child);
    } else if (type == "ByteLevel") {
      read_byte_level();
    } else if (type == "Replace") {
      read_each(read_replace(fields, &growth_));
      if (growth_ > kMaxTextGrowth)
        fail_load("{}: these steps could grow a text more than {}-fold", where_, kMaxTextGrowth);
    } else if (type == "ByteFallback") {
      each_piece([](std::string& token) {
        if (const auto byte = fallback_byte(token)) token.assign(1, *byte);
      });
      out_.steps_.emplace_back(join_bytes);
    } else if (type == "Fuse") {
      out_.steps_.emplace_back(fuse);
      fused_ = true;
    } else if (type == "Strip") {
      read_strip(fields);
    } else if (type == "Metaspace") {
      read_metaspace(fields);
    } else {
      fail_load("{} type {} is not supported", where_, type.substr(0, 60));
    }
  }

 private:
  // Steps after Fuse apply to the whole text, not to a token.
  void each_piece(std::function<void(std::string&)> step) {
    if (!fused_) out_.piece_steps_.push_back(std::move(step));
  }

  void read_each(std::function<void(std::string&)> step) {
    each_piece(step);
    out_.steps_.emplace_back([step = std::move(step)](Tokens& tokens) {
      for (std::string& token : tokens) step(token);
    });
  }

  void read_byte_level() {
    if (!out_.steps_.empty()) fail_load("{}: ByteLevel must be the first step", where_);
    out_.byte_level_ = fused_ = true;
    out_.steps_.emplace_back([](Tokens& tokens) {
      fuse(tokens);
      tokens[0] = utf8_sanitized(tokens[0]);
    });
  }

  void read_strip(const Fields& fields) {
    const auto content = fields.need<std::string>("content");
    const int start = fields.get("start", 0), stop = fields.get("stop", 0);
    if (content.empty()) fail_load("{}: content is empty", where_);
    read_each([content, start, stop](std::string& token) { strip(token, content, start, stop); });
  }

  void read_metaspace(const Fields& fields) {
    const auto mark = fields.get<std::string>("replacement", "\u2581");
    if (mark.empty()) fail_load("{}: replacement is empty", where_);
    const bool add = fields.get("add_prefix_space", true);
    const bool drop =
        fields.get<std::string>("prepend_scheme", add ? "always" : "never") != "never";
    each_piece([mark](std::string& token) { token = replace_mark(token, mark, " "); });
    out_.steps_.emplace_back([mark, drop](Tokens& tokens) {
      for (size_t i = 0; i < tokens.size(); ++i)
        tokens[i] = replace_mark(tokens[i], mark, i == 0 && drop ? "" : " ");
    });
  }

  TokenDecoder& out_;
  const std::string& where_;
  bool fused_ = false;
  double growth_ = 1;
};

TokenDecoder TokenDecoder::read(const Json& spec, const std::string& where) {
  TokenDecoder out;
  out.spaced_ = spec.is_null();
  if (!spec.is_null()) Reader(out, where).read(spec);
  return out;
}

std::string TokenDecoder::piece(const std::string& written) const {
  if (byte_level_) return bytes_from_alphabet(written).value_or(written);
  std::string out = written;
  for (const auto& step : piece_steps_) step(out);
  return out;
}

std::string TokenDecoder::join(std::vector<std::string> tokens) const {
  for (const auto& step : steps_) step(tokens);
  std::string out;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (spaced_ && i > 0) out += ' ';
    out += tokens[i];
  }
  return out;
}

}  // namespace skiff::text
