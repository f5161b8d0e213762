// `skiff tokenize`: turns text into ids, ids into text, and conversations into prompts.
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "apps/commands.h"
#include "base/json.h"
#include "base/load_error.h"

namespace skiff::apps {
namespace {

Json parse_line(std::string_view line, size_t number) {
  constexpr size_t kMaxLine = size_t{1} << 30;
  auto parsed = parse_json(line, {.max_bytes = kMaxLine});
  if (!parsed) fail_load("line {}: {}", number, parsed.error().what);
  return std::move(*parsed);
}

// Appends the result for one line. `special`: BOS and EOS are added (text) or kept (ids).
using Convert = void (*)(const text::Tokenizer& tokenizer, const Json& value, size_t number,
                         bool special, std::string& out);

void encode_line(const text::Tokenizer& tokenizer, const Json& value, size_t number, bool special,
                 std::string& out) {
  if (!value.is_string()) fail_load("line {}: expected a JSON string", number);
  const auto ids = tokenizer.encode(value.get_ref<const std::string&>(),
                                    {.add_special = special, .parse_special = true});
  out += '[';
  for (const int32_t id : ids) {
    const fmt::format_int digits(id);
    out.append(digits.data(), digits.size()) += ',';
  }
  if (!ids.empty()) out.pop_back();
  out += ']';
}

void decode_line(const text::Tokenizer& tokenizer, const Json& value, size_t number, bool special,
                 std::string& out) {
  std::vector<int32_t> ids;
  if (!value.is_array()) fail_load("line {}: expected an array of token ids", number);
  for (const Json& id : value) {
    if (!id.is_number_integer() || id < 0 || id >= tokenizer.vocab_size())
      fail_load("line {}: {} is not a token id in [0, {})", number, id.dump(),
                tokenizer.vocab_size());
    ids.push_back(id.get<int32_t>());
  }
  out += Json(tokenizer.decode(ids, /*skip_special=*/!special)).dump(-1, ' ', false);
}

void write_all(std::string& text) {
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t count = ::write(STDOUT_FILENO, rest.data(), rest.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_load("standard output: {}", std::strerror(errno));
    rest.remove_prefix(static_cast<size_t>(count));
  }
  text.clear();
}

// Appends some of standard input to `buffer`; false at its end.
bool read_some(std::string& buffer) {
  constexpr size_t kChunk = size_t{1} << 18;
  const size_t old = buffer.size();
  buffer.resize(old + kChunk);
  ssize_t count = 0;
  do {
    count = ::read(STDIN_FILENO, buffer.data() + old, kChunk);
  } while (count < 0 && errno == EINTR);
  if (count < 0) fail_load("standard input: {}", std::strerror(errno));
  buffer.resize(old + static_cast<size_t>(count));
  return count > 0;
}

// Passes each line of standard input to `take`. Output is flushed before a read could block, so
// that a person or a program at the other end sees each answer.
template <class Take>
void for_each_line(std::string& out, Take take) {
  constexpr size_t kFlush = size_t{1} << 16;
  std::string in;
  size_t number = 0, searched = 0;
  for (bool more = true; more;) {
    write_all(out);
    more = read_some(in);
    size_t begin = 0;
    for (size_t end; (end = in.find('\n', searched)) != in.npos; begin = searched = end + 1) {
      take(std::string_view(in).substr(begin, end - begin), ++number);
      if (out.size() > kFlush) write_all(out);
    }
    in.erase(0, begin);
    searched = in.size();
    if (!more && !in.empty()) take(in, ++number);
  }
  write_all(out);
}

}  // namespace

int run_tokenize(const Args& args) {
  const std::string folder = model_folder(args);
  if (args.given("chat")) return render_conversation(args, folder);
  const auto tokenizer = need_tokenizer(args, folder);
  const bool special = args.on("special");
  const Convert convert = args.on("decode") ? decode_line : encode_line;
  std::string out;
  // Flushes the answers to the lines before the broken one.
  try {
    for_each_line(out, [&](std::string_view line, size_t number) {
      convert(*tokenizer, parse_line(line, number), number, special, out);
      out += '\n';
    });
  } catch (const LoadError&) {
    write_all(out);
    throw;
  }
  return 0;
}

}  // namespace skiff::apps
