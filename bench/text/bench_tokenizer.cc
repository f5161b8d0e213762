// Times tokenizers on one thread, in processor time, after checking sampled lines: their tokens
// equal the plain definition, and stay the same when decoded and encoded again.
//   bench_tokenizer DATA SOURCES [TOKENIZER...]
// DATA holds text/ and tokenizers/NAME/; SOURCES is a folder of C++ files.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "corpus.h"
#include "text/detokenizer.h"
#include "text/naive_tokenizer_testing.h"
#include "text/tokenizer.h"

namespace skiff::bench {
namespace {

constexpr int kRepeats = 5;

double now() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Returns the best of several times; `prepare` is not timed.
template <class Prepare, class Work>
double best_seconds(Prepare&& prepare, Work&& work) {
  double best = HUGE_VAL;
  for (int i = 0; i < kRepeats; ++i) {
    auto subject = prepare();
    const double begin = now();
    work(subject);
    best = std::min(best, now() - begin);
  }
  return best;
}

std::unique_ptr<text::Tokenizer> load(const std::string& folder) {
  auto made = text::load_tokenizer(folder);
  if (made) return std::move(*made);
  fmt::print(stderr, "{}\n", made.error().what);
  std::exit(1);
}

struct Speed {
  double bytes = 0, tokens = 0, seconds = 0;
  void add(const Speed& other) {
    bytes += other.bytes;
    tokens += other.tokens;
    seconds += other.seconds;
  }
};

void print_encode(const std::string& name, const Speed& speed) {
  fmt::print(
      "  encode {:<16} {:>9.0f} bytes {:>8.0f} tokens {:>7.1f} MB/s {:>6.2f} Mtok/s {:>6.3f} "
      "us/token\n",
      name, speed.bytes, speed.tokens, speed.bytes / speed.seconds / 1e6,
      speed.tokens / speed.seconds / 1e6, speed.seconds / speed.tokens * 1e6);
}

constexpr text::EncodeOptions kPlain{.add_special = false, .parse_special = true};

// Every round starts with a new tokenizer, so that its word cache is empty.
Speed time_encode(const std::string& folder, const Text& text) {
  size_t tokens = 0;
  const double seconds =
      best_seconds([&] { return load(folder); },
                   [&](const auto& t) { tokens = t->encode(text.bytes, kPlain).size(); });
  return {static_cast<double>(text.bytes.size()), static_cast<double>(tokens), seconds};
}

void time_decode(const text::Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                 const std::string& what, const std::vector<std::string>& stops) {
  size_t bytes = 0;
  const double seconds = best_seconds([&] { return text::Detokenizer(tokenizer, {.stops = stops}); },
                                      [&](text::Detokenizer& stream) {
                                        bytes = 0;
                                        for (const int32_t id : ids)
                                          bytes += stream.push(id).size();
                                        bytes += stream.flush().size();
                                      });
  fmt::print("  {:<30} {:>6.3f} us/token  ({} bytes)\n", what,
             1e6 * seconds / static_cast<double>(ids.size()), bytes);
}

[[noreturn]] void fail(const std::string& what) {
  fmt::print(stderr, "wrong result: {}\n", what);
  std::exit(1);
}

void check(const std::string& folder, const std::vector<Text>& texts) {
  const auto tokenizer = load(folder);
  const text::NaiveTokenizer naive(Json::parse(read_text(folder + "/tokenizer.json")));
  int compared = 0;
  for (const Text& text : texts) {
    for (size_t at = 0, next; at < text.bytes.size(); at = next + 1) {
      next = std::min(text.bytes.find('\n', at), text.bytes.size());
      const std::string line = text.bytes.substr(at, std::min<size_t>(next - at, 300));
      if (at % 50 != 0 || !is_valid_utf8(line) || !naive.can_encode(line)) continue;
      const auto ids = tokenizer->encode(line, kPlain);
      if (ids != naive.encode(line)) fail(line);
      if (tokenizer->encode(tokenizer->decode(ids, false), kPlain) != ids) fail(line);
      ++compared;
    }
  }
  fmt::print("  {} lines equal the definition\n", compared);
}

void run(const std::string& name, const std::filesystem::path& data,
         const std::vector<Text>& texts) {
  const UnpackedFolder folder(data / "tokenizers" / name);
  const std::string path = folder.path().string();
  const double seconds = best_seconds([] { return 0; }, [&](int) { load(path); });
  fmt::print("{}: load {:.0f} ms\n", name, 1e3 * seconds);
  check(path, texts);
  Speed all;
  std::vector<int32_t> ids;
  const auto tokenizer = load(path);
  for (const Text& text : texts) {
    const Speed speed = time_encode(path, text);
    print_encode(text.name, speed);
    all.add(speed);
    const auto more = tokenizer->encode(text.bytes, kPlain);
    ids.insert(ids.end(), more.begin(), more.end());
  }
  print_encode("all", all);
  time_decode(*tokenizer, ids, "stream, no stop strings", {});
  time_decode(*tokenizer, ids, "stream, 4 stop strings",
              {"\nUser:", "<|never|>", "@@@@", "\n\n\n\n\n\n\n\n\n###"});
  const double whole = best_seconds([] { return 0; }, [&](int) { tokenizer->decode(ids, true); });
  fmt::print("  {:<30} {:>6.3f} us/token\n", "decode as a whole",
             1e6 * whole / static_cast<double>(ids.size()));
}

}  // namespace
}  // namespace skiff::bench

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: bench_tokenizer DATA SOURCES [TOKENIZER...]\n");
    return 2;
  }
  std::vector<std::string> names(argv + 3, argv + argc);
  if (names.empty())
    names = {"qwen2.5",   "llama3-hf-via-bitnet", "deepseek-r1",
             "ernie-4.5", "llama-2-7b",           "mixtral-8x7b-v0.1"};
  const auto texts = skiff::bench::read_corpus(argv[1], argv[2]);
  for (const std::string& name : names) skiff::bench::run(name, argv[1], texts);
}
