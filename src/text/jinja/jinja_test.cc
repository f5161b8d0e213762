// Compares the language with outputs of Python's jinja2 (tools/text/render_templates.py), and tests
// the bounds of a rendering.
#include <gtest/gtest.h>
#include <skiff_test_paths.h>
#include <stdlib.h>
#include <time.h>
#include <zlib.h>

#include <ctime>
#include <fstream>
#include <random>

#include "base/json.h"
#include "text/jinja/template.h"

namespace skiff::jinja {
namespace {

OrderedJson read_ordered(const std::string& path) {
  std::ifstream in(path);
  return OrderedJson::parse(in);
}

Result<std::string> render(const std::string& text, const OrderedJson& variables,
                           const Limits& limits = {}) {
  auto parsed = Template::parse(text);
  if (!parsed) return parsed.error();
  return parsed->render(
      variables, [] { return std::time_t{1'700'000'000}; }, limits);
}

std::string rendered(const std::string& text,
                     const OrderedJson& variables = OrderedJson::object()) {
  auto result = render(text, variables);
  return result ? *result : fmt::format("ERROR {}", result.error().what);
}

TEST(Jinja, AgreesWithPython) {
  setenv("TZ", "UTC", 1);
  tzset();
  const OrderedJson file = read_ordered(SKIFF_SOURCE_DIR "/tests/text/jinja_cases.json");
  ASSERT_GE(file["cases"].size(), 150u);
  for (const auto& example : file["cases"]) {
    const auto text = example["template"].get<std::string>();
    const auto result = render(text, file["variables"]);
    if (example["output"].is_null()) {
      EXPECT_FALSE(result) << text << "\nshould be refused, gives\n" << *result;
    } else {
      EXPECT_TRUE(result) << text << "\n" << result.error().what;
      if (!result) continue;
      EXPECT_EQ(*result, example["output"].get<std::string>()) << text;
    }
  }
}

std::string unzipped(const std::string& path) {
  std::string out(16 << 20, '\0');
  gzFile file = gzopen(path.c_str(), "rb");
  const int size = file ? gzread(file, out.data(), static_cast<unsigned>(out.size())) : -1;
  if (file) gzclose(file);
  out.resize(static_cast<size_t>(std::max(size, 0)));
  return out;
}

// Renders templates from a grammar of the whole language (tools/text/jinja_grammar.py).
TEST(Jinja, AgreesWithPythonOnRandomTemplates) {
  setenv("TZ", "UTC", 1);
  tzset();
  const auto file =
      OrderedJson::parse(unzipped(SKIFF_SOURCE_DIR "/tests/text/jinja_random.json.gz"));
  ASSERT_GE(file["cases"].size(), 2000u);
  for (const auto& example : file["cases"]) {
    const auto text = example[0].get<std::string>();
    const auto result = render(text, file["variables"]);
    if (example[1].is_null())
      EXPECT_FALSE(result) << text << "\nshould be refused, gives\n" << *result;
    else if (!result)
      ADD_FAILURE() << text << "\n" << result.error().what;
    else
      EXPECT_EQ(*result, example[1].get<std::string>()) << text;
  }
}

TEST(Jinja, ErrorsNameTheLine) {
  EXPECT_EQ(rendered("a\n{{ missing.x }}"), "ERROR line 2: 'missing' is undefined");
  EXPECT_EQ(rendered("a\n\n{% if x %}"), "ERROR line 3: a block is not closed with {% endif %}");
  EXPECT_EQ(rendered("{% include 'x' %}"),
            "ERROR line 1: the tag 'include' is refused: there are no other templates");
  EXPECT_EQ(rendered("\n{{ raise_exception('stop') }}"), "ERROR line 2: stop");
  EXPECT_EQ(rendered("{{ [1].append(2) }}"),
            "ERROR line 1: access to attribute 'append' of 'list' object is unsafe");
  EXPECT_EQ(rendered("x\n{{ 'a }}"), "ERROR line 2: a string is not closed with '");
}

// JSON may have integers that only an unsigned number can hold.
TEST(Jinja, IntegersAboveTheSignedOnes) {
  const OrderedJson n = OrderedJson::parse(R"({"u": 18446744073709551615, "h": 9223372036854775808,
                                              "m": 9223372036854775807})");
  const std::string refused = "ERROR line 1: an integer does not fit into 64 bits";
  EXPECT_EQ(rendered("{{ u }} {{ +u }} {{ u | abs }} {{ u | int }} {{ u | round | int }}", n),
            "18446744073709551615 18446744073709551615 18446744073709551615 18446744073709551615 "
            "18446744073709551615");
  EXPECT_EQ(rendered("{{ -h }} {{ -m }}", n), "-9223372036854775808 -9223372036854775807");
  EXPECT_EQ(rendered("{{ -u }}", n), refused);
  EXPECT_EQ(rendered("{{ u + 1 }}", n), refused);
  EXPECT_EQ(rendered("{{ m | round(-19) }}", n), refused);
}

// Limits in seconds of processor time, which the thread sanitizer multiplies.
#ifdef __SANITIZE_THREAD__
constexpr int kPatience = 50;
#else
constexpr int kPatience = 5;
#endif

// Without bounds, each of these would run or grow without end, or overflow the stack.
TEST(Jinja, HostileTemplatesEnd) {
  const std::string deep_list =
      "{% set ns = namespace(x=[]) %}{% for a in range(99999) %}"
      "{% set ns.x = [ns.x] %}{% endfor %}";
  const std::string doubling =
      "{% set ns = namespace(x=[1]) %}{% for a in range(100) %}"
      "{% set ns.x = [ns.x, ns.x] %}{% endfor %}";
  const std::string nest = "{% for a in range(99999) %}{% for b in range(99999) %}";
  std::string many_names, nested_if, end_if;
  for (int i = 0; i < 30000; ++i) many_names += fmt::format("{{% set v{} = 1 %}}", i);
  for (int i = 0; i < 30; ++i) nested_if += "{% if 1 %}", end_if += "{% endif %}";
  const std::vector<std::string> hostile = {
      nest + "{% endfor %}{% endfor %}", nest + "{{ a }}{{ b }}{% endfor %}{% endfor %}",
      "{{ 'a' * 10000000000 }}", "{{ [1] * 10000000000 }}", "{{ 2 ** 9999999 }}",
      ("{% set ns = namespace(x='ab') %}{% for a in range(99) %}"
       "{% set ns.x = ns.x ~ ns.x %}{% endfor %}"),
      ("{% set ns = namespace(x='ab') %}{% for a in range(99) %}"
       "{% set ns.x = ns.x.replace('', ns.x) %}{% endfor %}"),
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro m() %}{% call m() %}{% endcall %}{% endmacro %}{{ m() }}",
      "{% for x in [[]] recursive %}{{ loop([x]) }}{% endfor %}", deep_list + "{{ ns.x }}",
      doubling + "{{ ns.x }}", doubling + "{{ ns.x | tojson }}",
      doubling +
          "{% set ns.y = [1] %}{% for a in range(100) %}{% set ns.y = [ns.y, ns.y] %}{% endfor "
          "%}{{ ns.x == ns.y }}",
      "{{ 'x' | center(9999999999) }}", "{{ 'x'.zfill(9999999999) }}", "{{ '%9999999999d' % 1 }}",
      "{{ '{:9999999999}'.format(1) }}", "{{ 'x' | indent(9999999999) | length }}{{ 1/0 }}",
      "{{ '{:10000000000}'.format(1) }}{{ '%.9999999999f' % 1 }}", "{{ '%*d' % (9999999999, 1) }}",
      "{{ [1] | batch(9999999999, 0) | list }}", "{{ [1] | slice(9999999999) | list }}",
      "{{ [1] | tojson(indent=9999999999) }}", "{{ 'a'.ljust(9999999999) }}",
      "{{ 'a\\t'.expandtabs(9999999999) }}", "{{ range(10 ** 9) | list }}",
      "{{ ''.__class__.__mro__ }}", "{{ cycler.__init__.__globals__ }}",
      "{{ ''.__class__.__base__.__subclasses__() }}",
      "{{ '{0.__class__.__init__}'.format(1).x.y }}", "{{ ('a' | attr('__class__')).mro() }}",
      "{{ self.__init__.__globals__ }}",
      // Searches that compare everything with everything.
      ("{% set a = 'a' * 1000000 %}{% set b = 'a' * 300000 ~ 'b' %}"
       "{{ a.find(b) + a.rfind(b) + a.count(b) }}{{ b in a }}{{ a.split(b) | length }}"
       "{{ a.replace(b, '') | length }}{{ 1/0 }}"),
      "{% set a = 'a' * 1000000 %}{{ a.strip(a) }}{{ a.strip('b' * 1000000) }}{{ 1/0 }}",
      "{% set a = ['a' * 1000000 ~ 'b'] * 100000 %}{{ ('a' * 1000000 ~ 'c') in a }}",
      ("{% set ns = namespace(x='x') %}{% for i in range(99999) %}{% set ns.x = ns.x | e ~ ns.x %}"
       "{% endfor %}"),
      ("{% set a = ('a' * 100000) | list %}{{ a | unique | list }}{{ a | map('string') | sort | "
       "groupby(0) }}{{ range(99999) | list | unique | list }}"),
      "{{ ('ab-' * 1000000) | wordwrap(1) | length }}{{ 1/0 }}",
      "{{ (['x'] * 1000000) | pprint | length }}{{ 1/0 }}",
      many_names + "{% for i in range(99999) %}{{ v0 }}{{ v29999 }}{% endfor %}",
      // Each level of recursion nests deep in its own body.
      "{% macro m() %}{{ " + std::string(40, '[') + "m()" + std::string(40, ']') +
          " }}{% endmacro %}{{ m() }}",
      "{% macro m(x) %}" + nested_if + "{{ 1 + (2 + (3 ~ (m([x]) | upper | lower))) }}" + end_if +
          "{% endmacro %}{{ m(1) }}",
      ("{% macro m() %}{% call m() %}{% filter upper %}{{ caller() }}{% endfilter %}{% endcall %}"
       "{% endmacro %}{{ m() }}"),
      ("{% macro m() %}{% set x %}{{ [1] | map('string') | list | join(m()) }}{% endset %}"
       "{% endmacro %}{{ m() }}"),
      "{{ " + std::string(100000, '(') + " }}", "{{ " + std::string(100000, '-') + "1 }}",
      "{{ not " + std::string(100000, '[') + " }}", "{{ 1" + std::string(100000, '|'),
      "{% set " + std::string(100000, '(') + " %}"};
  for (const std::string& text : hostile) {
    const std::clock_t start = std::clock();  // processor time: a busy machine is no failure
    EXPECT_FALSE(render(text, OrderedJson::object())) << text.substr(0, 200);
    EXPECT_LT(std::clock() - start, kPatience * CLOCKS_PER_SEC) << text.substr(0, 200);
  }
}

TEST(Jinja, LongChainsAreRefusedNotRecursedInto) {
  const auto repeat = [](const std::string& piece, int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += piece;
    return out;
  };
  for (const char* piece :
       {"+1", ".a", "[0]", "|e", " is odd", "()", " and 1", " or 1", "**1", "*1", " if 1"})
    EXPECT_FALSE(render("{{ 1" + repeat(piece, 50000) + " }}", OrderedJson::object())) << piece;
  EXPECT_FALSE(render(repeat("{% if 1 %}", 50000), OrderedJson::object()));
  EXPECT_EQ(rendered("{{ 1" + repeat("~1", 500) + " }}"), std::string(501, '1'));
}

TEST(Jinja, CirclesAreFreed) {  // the leak checker of a sanitizer build looks at this one
  EXPECT_EQ(
      rendered("{% set ns = namespace() %}{% set ns.self = ns %}{% set ns.m = [ns] %}"
               "{% macro m() %}{% set ns.c = caller %}{{ caller() }}{% endmacro %}"
               "{% call m() %}x{% endcall %}{% for i in [1] %}{% set ns.l = loop %}{% endfor %}"
               "{{ ns.c() }}"),
      "xx");
}

TEST(Jinja, LimitsAreCounted) {
  const OrderedJson none = OrderedJson::object();
  EXPECT_TRUE(render("{% for i in range(100) %}{{ i }}{% endfor %}", none, {.steps = 2000}));
  EXPECT_FALSE(render("{% for i in range(1000) %}{{ i }}{% endfor %}", none, {.steps = 2000}));
  EXPECT_TRUE(render("{{ 'ab' * 10 }}", none, {.output = 20}));
  EXPECT_FALSE(render("{{ 'ab' * 11 }}", none, {.output = 20}));
  EXPECT_FALSE(render("{{ ('ab' * 1000) | length }}", none, {.bytes = 1000}));
}

TEST(Jinja, KeepsTheOrderOfKeys) {
  const auto parsed = parse_ordered_json(R"({"z": 1, "a": {"y": 2, "b": 3}})");
  ASSERT_TRUE(parsed);
  EXPECT_EQ(rendered("{{ v | tojson }}", {{"v", *parsed}}), R"({"z": 1, "a": {"y": 2, "b": 3}})");
}

// Shuffles the bytes of the test cases; no result may crash or hang.
TEST(Jinja, MutatedTemplatesAreSafe) {
  const OrderedJson file = read_ordered(SKIFF_SOURCE_DIR "/tests/text/jinja_cases.json");
  std::vector<std::string> texts;
  for (const auto& example : file["cases"]) texts.push_back(example["template"].get<std::string>());
  std::mt19937 random(7);
  const auto pick = [&](size_t n) {
    return std::uniform_int_distribution<size_t>(0, n - 1)(random);
  };
  int accepted = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string text = texts[pick(texts.size())];
    const std::string& other = texts[pick(texts.size())];
    for (size_t edits = 1 + pick(4); edits > 0; --edits) {
      const size_t at = pick(text.size() + 1), from = pick(other.size() + 1);
      const size_t n = pick(12);
      switch (pick(3)) {
        case 0:
          text.insert(at, other.substr(from, n));
          break;
        case 1:
          text.erase(at, n);
          break;
        default:
          if (at < text.size()) text[at] = static_cast<char>(pick(256));
      }
    }
    accepted += static_cast<bool>(
        render(text, file["variables"], {.steps = 200'000, .bytes = 8 << 20, .output = 1 << 20}));
  }
  EXPECT_GT(accepted, 100);
  EXPECT_LT(accepted, 3900);
}

}  // namespace
}  // namespace skiff::jinja
