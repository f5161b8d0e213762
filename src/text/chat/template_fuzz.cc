// Renders mutations of real chat templates: libFuzzer's own, and pieces of other templates and of
// the language that are inserted, exchanged or repeated. The templates are those of the reference
// data where it lies beside the source, else the built-in ones.
//   tools/fuzz.sh 1200 template_fuzz
#include <skiff_test_paths.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string_view>
#include <vector>

#include "text/chat/builtin_templates.h"
#include "text/chat/fuzz_check_testing.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

// Pieces of the language that make values, repeat work, or refer to earlier values.
constexpr std::string_view kPieces[] = {"{% set ns = namespace(x=[1]) %}",
                                        "{% for i in range(100000) %}",
                                        "{% endfor %}",
                                        "{% set ns.x = joiner(ns.x) %}",
                                        "{% set ns.x = cycler(ns.x).next %}",
                                        "{% set ns.x = loop.changed %}",
                                        "{% if ns.x(ns.x) %}{% endif %}",
                                        "{% set ns.x = (ns.x, ns.x) %}",
                                        "{% set ns.x = ns.x ~ ns.x %}",
                                        "{% set ns.x = {ns.x: ns} %}",
                                        "{% set ns = namespace(ns.x) %}",
                                        "{% macro m(a, b=1) %}",
                                        "{% endmacro %}",
                                        "{{ m(*ns.x, **ns.x) }}",
                                        "{% call m() %}",
                                        "{% endcall %}",
                                        "{{ loop(ns.x) }}",
                                        " recursive",
                                        "'a' * 9999999",
                                        "[1] * 99999",
                                        "range(99999)",
                                        " | map('map', 'list')",
                                        " | map(attribute='a.b')",
                                        " | sort(attribute='a,b')",
                                        " | groupby(0)",
                                        " | unique",
                                        " | tojson(indent=ns.x, separators=(ns.x, ns.x))",
                                        " | xmlattr",
                                        " | urlize",
                                        " | wordwrap(1)",
                                        " | pprint",
                                        " | join(ns.x)",
                                        " | replace('', ns.x)",
                                        " | batch(99999, 0)",
                                        ".split(ns.x)",
                                        ".format(*ns.x, **ns.x)",
                                        ".format_map(ns.x)",
                                        ".translate(ns.x)",
                                        ".startswith(ns.x)",
                                        "'{:0100000,}'",
                                        "'%*.*d'",
                                        " % ns.x",
                                        " in ns.x",
                                        " == ns.x",
                                        "[ns.x]",
                                        "[::-1]",
                                        "messages",
                                        "tools",
                                        " is lower",
                                        "caller()",
                                        "{% set x %}",
                                        "{% endset %}",
                                        "{% filter upper %}",
                                        "{% endfilter %}"};

std::vector<std::string>& seeds() {
  static std::vector<std::string> templates = [] {
    std::vector<std::string> out;
    std::error_code failed;
    for (std::filesystem::directory_iterator
             it(SKIFF_SHARED_DIR "/data/chat_templates/templates", failed),
         end;
         !failed && it != end; it.increment(failed)) {
      std::ifstream in(it->path(), std::ios::binary);
      out.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    }
    if (out.empty()) {
      for (const char* family : {"llama", "baichuan", "chatglm"})
        if (const auto* found = skiff::text::find_builtin_template(
                {.names = std::string(family) + "3-chat", .model_type = family, .vocab = 32000}))
          out.emplace_back(found->text);
    }
    return out;
  }();
  return templates;
}

std::string mutated(std::string text, std::mt19937& random) {
  const auto below = [&](size_t n) { return n == 0 ? 0 : random() % n; };
  const std::string& seed = seeds()[below(seeds().size())];
  if (text.size() < 8) text = seed;
  const size_t at = below(text.size() + 1);
  switch (below(6)) {
    case 0: {  // inserts a part of another template
      const size_t from = below(seed.size());
      return text.insert(at, seed, from, below(400));
    }
    case 1:  // in the place of a stretch of this one
      return text.replace(at, below(100), seed, below(seed.size()), below(100));
    case 2: {  // repeats a part of this template
      const std::string again = text.substr(at, below(200));
      return text.insert(below(text.size() + 1), again);
    }
    case 3:
      return text.erase(at, below(60));
    default: {  // inserts a piece of the language, mostly in front of a tag's end
      const size_t end = below(2) ? text.find(below(2) ? " }}" : " %}", at) : at;
      return text.insert(end == text.npos ? at : end, kPieces[below(std::size(kPieces))]);
    }
  }
}

}  // namespace

// Without a corpus libFuzzer starts with inputs of a few bytes, which would truncate the templates.
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  static std::string whole = "-len_control=0";
  static std::vector<char*> arguments(*argv, *argv + *argc);
  arguments.insert(arguments.begin() + 1, whole.data());
  *argc = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  *argv = arguments.data();
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  std::mt19937 random(seed);
  if (random() % 4 == 0 && size > 0) return LLVMFuzzerMutate(data, size, max_size);
  std::string text(reinterpret_cast<const char*>(data), size);
  for (size_t edits = 1 + random() % 4; edits > 0; --edits) text = mutated(std::move(text), random);
  const size_t n = std::min(text.size(), max_size);
  std::memcpy(data, text.data(), n);
  return n;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  skiff::text::check_template(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
