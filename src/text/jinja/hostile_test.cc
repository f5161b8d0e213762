// Tests templates that are meant to crash or stall a server or to exhaust its memory. All their
// work is charged, so the limit on steps, bytes or time ends them.
#include <gtest/gtest.h>
#include <malloc.h>
#include <time.h>

#include <ctime>
#include <fstream>
#include <functional>

#include "base/json.h"
#include "text/jinja/builtins.h"
#include "text/jinja/template.h"

namespace skiff::jinja {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
// Sanitizers multiply processor time.
constexpr double kPatience = kSanitized ? 20 : 1;

Limits without_deadline() {
  Limits limits;
  limits.time = std::chrono::hours(1);
  return limits;
}

Result<std::string> render(const std::string& text, const Limits& limits = without_deadline()) {
  auto parsed = Template::parse(text);
  if (!parsed) return parsed.error();
  return parsed->render(
      OrderedJson::object(), [] { return std::time_t{0}; }, limits);
}

// Counts the time of this thread only, so a busy machine causes no failure.
double processor_seconds(const std::function<void()>& work) {
  const auto now = [] {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  };
  const double start = now();
  work();
  return now() - start;
}

// Returns the peak resident memory of the process while `work` ran, above that at its start.
double peak_megabytes(const std::function<void()>& work) {
  const auto status = [](const std::string& field) {
    std::ifstream in("/proc/self/status");
    for (std::string word; in >> word;)
      if (word == field) {
        double kilobytes = 0;
        in >> kilobytes;
        return kilobytes / 1024;
      }
    return 0.0;
  };
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << 5;  // resets VmHWM
  const double before = status("VmRSS:");
  work();
  return status("VmHWM:") - before;
}

std::string repeated(const std::string& piece, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += piece;
  return out;
}

// Each template builds a chain of references that is destroyed, compared or called by recursion.
TEST(HostileTemplates, ChainsDoNotOverflowTheStack) {
  const std::vector<std::string> chains = {
      ("{% set ns=namespace(j='x') %}{% for k in range(3) %}{% for i in range(100000) %}"
       "{% set ns.j=joiner(ns.j) %}{% endfor %}{% endfor %}"),
      ("{% set ns=namespace(p='x') %}{% for i in range(100000) %}{% for x in [1] %}"
       "{% set ns.c=loop.changed %}{% endfor %}{% if ns.c(ns.p) %}{% endif %}{% set ns.p=ns.c %}"
       "{% endfor %}"),
      ("{% set ns=namespace(j='x') %}{% for i in range(99999) %}{% set ns.j=cycler(ns.j).next %}"
       "{% endfor %}"),
      ("{% set ns=namespace(j=[]) %}{% for i in range(99999) %}{% set ns.j=[ns.j].index %}"
       "{% endfor %}"),
      ("{% set ns=namespace(j='x') %}{% for i in range(99999) %}{% set ns.j=[joiner([ns.j])] %}"
       "{% endfor %}"),
      "{{ ['a'] | map(*(['map'] * 100000)) | list }}",
      "{{ ['a'] | select(*(['map'] * 1000)) | map(*(['map'] * 1000)) | list }}",
      // Closures that chain the scopes of a recursive loop.
      "{% set ns=namespace(f=none) %}" +
          repeated("{% macro m() %}{% for i in range(300) recursive %}{% if i < 299 %}"
                   "{{ loop([i + 1]) }}{% endif %}",
                   20) +
          "{% set ns.f = caller %}" + repeated("{% endfor %}{% endmacro %}{{ m() }}", 20)};
  for (const std::string& text : chains) (void)render(text);
  EXPECT_FALSE(render(chains[0]));
  EXPECT_FALSE(render(chains[5]));
}

TEST(HostileTemplates, LoopChangedAnswersAfterItsLoop) {
  const auto text = render(
      "{% set ns=namespace() %}{% for x in [1] %}{% set ns.c=loop.changed %}{% endfor %}"
      "{{ ns.c(1) }}{{ ns.c(1) }}{{ ns.c(ns.c) }}{{ ns.c(ns.c) }}");
  ASSERT_TRUE(text);
  EXPECT_EQ(*text, "TrueFalseTrueFalse");
}

// The leak checker of a sanitizer build checks this test, too.
TEST(HostileTemplates, LoopChangedCalledWithItselfIsFreed) {
  const std::string leak =
      "{% set ns=namespace() %}{% for x in ['A'*6000000] %}{% set ns.c=loop.changed %}{% endfor %}"
      "{% if ns.c(ns.c) %}{% endif %}";
  const auto in_use = [] {
    const auto info = mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  ASSERT_TRUE(render(leak));
  const size_t before = in_use();
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(render(leak));
  EXPECT_LT(in_use(), before + (6 << 20));
}

// Each of these templates once took up to twenty times the memory that the limit on bytes allows.
TEST(HostileTemplates, MemoryIsCharged) {
  const std::vector<std::string> hungry = {
      "{% set d={'A'*15000000:1} %}{% for i in range(30) %}{% set n=namespace(d) %}{% endfor %}",
      ("{% macro f() %}{% endmacro %}{% set d={'A'*15000000:1} %}{% for i in range(30) %}"
       "{{ f(**d) }}{% endfor %}"),
      "{% set b='a'*5000000 %}{{ ([1]*40) | tojson(separators=(b,b)) | length }}",
      "{% set b='a'*5000000 %}{{ {'x':1,'y':2,'z':3} | tojson(separators=(b,b)) | length }}",
      "{{ ('a,'*2500000).split(',') | length }}",
      "{{ ('a '*5000000).split() | length }}",
      "{{ ('\\n'*5000000) | pprint | length }}",
      "{{ ('\\n'*5000000).splitlines() | length }}",
      "{{ ['a'] | map(*(['map'] * 3000)) | list }}",
      "{{ range(90000) | map(attribute='a'*8000) | list | length }}",
      "{{ range(3000) | sort(attribute=','*25000) | length }}",
      "{{ ('.'*15000000) | urlize | length }}",
      "{{ 'a' | urlize(rel=('ab'*1000000) | list | join(' ')) | length }}",
      "{% macro r(n) %}{{ 'a'*1500000 }}{{ r(n+1) }}{% endmacro %}{{ r(0) }}"};
  Limits limits = without_deadline();
  limits.bytes = 64 << 20;
  limits.value = 16 << 20;
  if (kSanitized) return;  // sanitizers' allocators keep freed memory
  for (const std::string& text : hungry)
    EXPECT_LT(peak_megabytes([&] { (void)render(text, limits); }), 160) << text;
}

// Each of these templates once did work for which it was not charged. Here only the limit on steps
// may end it, not the deadline.
TEST(HostileTemplates, WorkIsCharged) {
  const std::string big = "{% set b='a'*2000000 %}{% for i in range(100000) %}";
  Limits limits = without_deadline();
  limits.steps = 1'000'000;
  std::vector<std::string> busy;
  for (const char* call : {"''.startswith(b)",
                           "b.isidentifier()",
                           "b|int",
                           "b|float(0)",
                           "[1][b]",
                           "[b,b]|max",
                           "b is filter",
                           "b is lower",
                           "x|default(b)",
                           "f(**{b:1})",
                           "dict(b=b)|length",
                           "'{x}'.format_map({'x':1,b:2})",
                           "1|attr(b)",
                           "[1]|map(attribute=b)|list",
                           "b is eq(1)",
                           "[1]|join(b)",
                           "b|first",
                           "'x'.strip(b)",
                           "[b]|sort",
                           "b|wordcount",
                           "strftime_now(b)"})
    busy.push_back(big + "{% if " + call + " %}{% endif %}{% endfor %}");
  busy.push_back(
      "{% set ns=namespace(x=(1,)) %}{% for i in range(60) %}{% set ns.x=(ns.x,ns.x) %}{% endfor %}"
      "{{ {ns.x:1} }}");
  busy.push_back("{{ range(300) | sort(attribute=','*200000) | length }}");
  for (const std::string& text : busy) {
    EXPECT_LT(processor_seconds([&] { (void)render(text, limits); }), 2 * kPatience) << text;
  }
}

// Each of these once took time quadratic in the length of one text.
TEST(HostileTemplates, OneCallIsLinear) {
  for (const char* text :
       {"{{ {'a'*4000000:1} | xmlattr | length }}",
        "{% for i in range(20) %}{{ '{:0100000,}'.format(1) | length }}{% endfor %}",
        "{% for i in range(2000) %}{{ '{:.100000}'.format(0.1) }}{% endfor %}"})
    EXPECT_LT(processor_seconds([&] { EXPECT_TRUE(render(text)) << text; }), kPatience) << text;
}

TEST(HostileTemplates, TheDeadlineEndsWhatStepsAllow) {
  Limits limits;
  limits.steps = UINT64_MAX - 1;
  limits.bytes = UINT64_MAX;
  limits.time = std::chrono::milliseconds(50);
  for (const char* text :
       {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% set b='a'*20000000 %}{% for i in range(99999) %}{{ (b|upper)[:1] }}{% endfor %}"}) {
    const double seconds = processor_seconds([&] {
      const auto result = render(text, limits);
      ASSERT_FALSE(result);
      EXPECT_NE(result.error().what.find("the template takes more than 50 ms"), std::string::npos)
          << result.error().what;
    });
    EXPECT_LT(seconds, 1 * kPatience);
  }
  limits.time = std::chrono::nanoseconds::max();
  EXPECT_TRUE(render("{{ 1 }}", limits));
}

double parse_seconds(const std::string& text) {
  double best = 1e9;
  for (int i = 0; i < 3; ++i)
    best = std::min(best, processor_seconds([&] { (void)Template::parse(text); }));
  return best;
}

std::string numbered(const std::string& before, const std::string& after, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out.append(before).append(std::to_string(i)).append(after);
  return out;
}

TEST(HostileTemplates, ParsingIsLinear) {
  const std::vector<std::function<std::string(int)>> makers = {
      [](int n) { return "{% macro m(" + numbered("a", ",", n) + "z) %}{% endmacro %}"; },
      [](int n) { return "{{ f(" + numbered("a", "=1,", n) + "z=1) }}"; },
      [](int n) { return numbered("{% block b", " %}{% endblock %}", n); },
      [](int n) { return "{% raw %}" + repeated("{% ", n); },
      [](int n) { return "{{ [" + repeated("a|e,", n) + "] }}"; },
      [](int n) { return "{{ '" + repeated("\\x41", n) + "' }}"; },
      [](int n) { return "{#" + repeated("-#", n); },
      [](int n) { return repeated("{%- raw %} {%- endraw -%} \n ", n); },
      [](int n) { return "{{ a" + std::string(static_cast<size_t>(n), ' ') + "}}"; }};
  for (const auto& make : makers) {
    const double few = parse_seconds(make(4000)), many = parse_seconds(make(32000));
    EXPECT_LT(many, 24 * few + 0.02 * kPatience) << make(2);
  }
}

TEST(HostileTemplates, NamesAndArgumentListsAreBounded) {
  const std::string name(1024, 'n'), longer(1025, 'n');
  EXPECT_TRUE(render("{% set " + name + "=1 %}{{ " + name + " }}"));
  EXPECT_FALSE(render("{% set " + longer + "=1 %}{{ " + longer + " }}"));
  EXPECT_TRUE(
      render("{{ dict(**{'n'*1024:1}) | length }}{{ namespace({'n'*1024:1}) is defined }}"));
  EXPECT_FALSE(render("{{ dict(**{'n'*1025:1}) | length }}"));
  EXPECT_FALSE(render("{{ namespace({'n'*1025:1}) is defined }}"));
  EXPECT_TRUE(render("{% macro m(" + numbered("a", "=1,", 999) + "z=1) %}{% endmacro %}{{ m() }}"));
  EXPECT_FALSE(render("{% macro m(" + numbered("a", "=1,", 1000) + "z=1) %}{% endmacro %}"));
  EXPECT_TRUE(render("{{ dict(" + numbered("a", "=1,", 1000) + ") | length }}"));
  EXPECT_FALSE(render("{{ dict(" + numbered("a", "=1,", 1001) + ") | length }}"));
}

// The arguments with which every function of a table is called, to check that each is charged in
// proportion to its arguments; a new function cannot be forgotten.
struct Work {
  uint64_t steps;
  double seconds;
};

Work work_of(const std::function<void(Interpreter&)>& call) {
  Limits limits = without_deadline();
  limits.steps = 1'000'000;
  Interpreter in(Budget(limits), [] { return std::time_t{0}; });
  const double seconds = processor_seconds([&] {
    try {
      call(in);
    } catch (const TemplateError& refusal) {
      EXPECT_STRNE(refusal.what(), "");
    }
  });
  return {in.budget().steps(), seconds};
}

class EveryBuiltin {
 public:
  using Call = std::function<void(Interpreter&, const Value& input, const Args& args)>;

  static void each(const std::function<void(const std::string& name, const Call& call)>& visit) {
    for (const auto table : filter_tables())
      for (const FilterEntry& entry : table)
        visit("filter " + std::string(entry.name),
              [&](Interpreter& in, const Value& input, const Args& args) {
                apply_filter(in, std::string(entry.name), input, args);
              });
    for (const TestEntry& entry : all_tests())
      visit("test " + std::string(entry.name),
            [&](Interpreter& in, const Value& input, const Args& args) {
              apply_test(in, std::string(entry.name), input, args);
            });
    for (const std::string_view name : text_method_names())
      visit("method " + std::string(name),
            [&](Interpreter& in, const Value& input, const Args& args) {
              const Value method = method_of(in, input, std::string(name));
              if (!method.is_none()) in.call(method, args);
            });
    for (const auto& [name, unused] : global_functions())
      visit("function " + std::string(name),
            [name = name](Interpreter& in, const Value& input, Args args) {
              args.positional.insert(args.positional.begin(), input);
              in.call(global_function(in.budget(), std::string(name)), std::move(args));
            });
  }
};

TEST(HostileTemplates, EveryBuiltinIsChargedForItsInputAndItsArguments) {
  Budget unbounded(without_deadline());
  constexpr size_t kBytes = 1 << 18, kItems = 1 << 14;
  const Value text(std::string(kBytes, 'a'));
  const Value list = Value::list(unbounded, Values(kItems, Value(int64_t{1})));
  const Value small("a");
  int functions = 0;
  EveryBuiltin::each([&](const std::string& name, const EveryBuiltin::Call& call) {
    ++functions;
    const auto steps = [&](const Value& input, const Args& args) {
      return work_of([&](Interpreter& in) { call(in, input, args); }).steps;
    };
    EXPECT_GE(steps(text, {}), kBytes / 64) << name;
    EXPECT_GE(steps(small, {{text}, {}}), kBytes / 64) << name;
    EXPECT_GE(steps(small, {{}, {{"x", text}}}), kBytes / 64) << name;
    EXPECT_GE(steps(small, {{list}, {}}), kItems / 64) << name;
    EXPECT_GE(steps(small, {Values(kItems, small), {}}), kItems / 64) << name;
    if (!name.starts_with("method")) {
      EXPECT_GE(steps(list, {}), kItems / 64) << name;
    }
  });
  EXPECT_GT(functions, 100);
}

// A function that is quadratic in one text takes several seconds here.
TEST(HostileTemplates, EveryBuiltinIsFastOnHardTexts) {
  constexpr size_t kBytes = 96 << 10;
  for (const char* piece :
       {"a", " ", "\n", "<a>", "-a", "{}", "%s", "(", "http://a.b ", "\u0301"}) {
    std::string bytes;
    while (bytes.size() < kBytes) bytes += piece;
    const Value text(bytes);
    EveryBuiltin::each([&](const std::string& name, const EveryBuiltin::Call& call) {
      for (const Args& args : {Args{}, Args{{text}, {}}}) {
        const Work work = work_of([&](Interpreter& in) { call(in, text, args); });
        EXPECT_LT(work.seconds, 0.5 * kPatience) << name << " of " << piece;
      }
    });
  }
}

}  // namespace
}  // namespace skiff::jinja
