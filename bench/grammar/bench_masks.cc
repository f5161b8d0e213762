// Times masks and compilation: bench_masks TOKENIZER FILE [WIDTH], where each line of the file is
// {"schema": ..., "good": [texts], "bad": [texts]} and WIDTH is that of the logits (default: the
// vocabulary's size, rounded up to 128). First every text is judged; a wrong judgement
// ends the program. Then each schema is compiled anew and its good texts are followed token by
// token, as a server would for one request after another.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <fstream>

#include "base/json.h"
#include "grammar/grammar.h"
#include "text/tokenizer.h"

namespace skiff::grammar {
namespace {

// The thread's processor time: on a machine that others use, the wall clock would count their work.
struct Clock {
  using duration = std::chrono::nanoseconds;
  using time_point = std::chrono::time_point<Clock>;
  static time_point now() {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return time_point(std::chrono::seconds(t.tv_sec) + duration(t.tv_nsec));
  }
};

double micros(Clock::duration d) { return std::chrono::duration<double, std::micro>(d).count(); }

struct Case {
  std::string schema;
  std::vector<std::string> good, bad;
};

std::vector<Case> read_cases(const char* path) {
  std::ifstream in(path);
  std::vector<Case> out;
  for (std::string line; std::getline(in, line);) {
    const auto json = parse_ordered_json(line);
    SKIFF_CHECK(static_cast<bool>(json), "{}", line.substr(0, 80));
    out.push_back({(*json)["schema"].dump(), (*json)["good"], (*json)["bad"]});
  }
  return out;
}

struct Times {
  std::vector<double> compile, mask;
};

// Returns whether the text is accepted.
bool follow(const std::shared_ptr<const Grammar>& grammar, const std::vector<int32_t>& tokens,
            std::vector<uint32_t>& mask, std::vector<double>* times) {
  Matcher matcher(grammar);
  for (const int32_t token : tokens) {
    const auto start = Clock::now();
    matcher.fill(mask);
    if (times) times->push_back(micros(Clock::now() - start));
    if (!(mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1)) return false;
    if (!matcher.accept(token)) return false;
  }
  return matcher.is_complete();
}

void print(const char* what, std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto at = [&](double part) {
    return values[std::min(values.size() - 1,
                           static_cast<size_t>(part * static_cast<double>(values.size())))];
  };
  double sum = 0;
  for (const double value : values) sum += value;
  fmt::print(
      "{:<24} n {:>6}  mean {:>9.1f}  p50 {:>9.1f}  p95 {:>9.1f}  p99 {:>9.1f}  p99.9 {:>9.1f}  "
      "max {:>9.1f} us\n",
      what, values.size(), sum / static_cast<double>(values.size()), at(0.5), at(0.95), at(0.99),
      at(0.999), values.back());
}

int run(const char* folder, const char* path, int width) {
  const auto loaded = text::load_tokenizer(folder);
  SKIFF_CHECK(static_cast<bool>(loaded), "{}", loaded.error().what);
  const text::Tokenizer& tokenizer = **loaded;
  const auto begin = Clock::now();
  if (width == 0) width = (tokenizer.vocab_size() + 127) / 128 * 128;
  const auto vocabulary = Vocabulary::of(tokenizer, width, {});
  fmt::print("vocabulary: {} logits, {} and {} nodes, made in {:.0f} ms\n", vocabulary->width(),
             vocabulary->trie().nodes.size(), vocabulary->without_plain().nodes.size(),
             micros(Clock::now() - begin) / 1000);
  std::vector<uint32_t> mask(vocabulary->mask_words());
  const text::EncodeOptions plain{.add_special = false, .parse_special = false};
  Times times;
  for (const Case& one : read_cases(path)) {
    const auto start = Clock::now();
    const auto grammar =
        compile({.kind = ConstraintKind::kJsonSchema, .text = one.schema}, vocabulary);
    SKIFF_CHECK(static_cast<bool>(grammar), "{}: {}", one.schema, grammar.error().what);
    Matcher(*grammar).fill(mask);
    times.compile.push_back(micros(Clock::now() - start));
    for (const std::string& text : one.good)
      SKIFF_CHECK(follow(*grammar, tokenizer.encode(text, plain), mask, &times.mask),
                  "{} refuses {}", one.schema, text);
    for (const std::string& text : one.bad)
      SKIFF_CHECK(!follow(*grammar, tokenizer.encode(text, plain), mask, nullptr), "{} accepts {}",
                  one.schema, text);
  }
  print("compile to first mask", times.compile);
  print("mask", times.mask);
  return 0;
}

}  // namespace
}  // namespace skiff::grammar

int main(int argc, char** argv) {
  if (argc == 3 || argc == 4)
    return skiff::grammar::run(argv[1], argv[2], argc == 4 ? std::stoi(argv[3]) : 0);
  fmt::print(stderr, "usage: bench_masks TOKENIZER FILE [WIDTH]\n");
  return 2;
}
