// Implements the functions that every template sees.
#include <ctime>

#include "text/jinja/builtins.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace skiff::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // Jinja's own bound

Value range(Interpreter& in, const Args& args) {
  const size_t n = args.positional.size();
  if (n < 1 || n > 3 || !args.named.empty()) fail("range() takes 1 to 3 positional arguments");
  int64_t bounds[3] = {0, 0, 1};
  for (size_t i = 0; i < n; ++i)
    if (!is_integral(args.positional[i], &bounds[n == 1 ? 1 : i]))
      fail("range() needs integers, not {}", type_name(args.positional[i]));
  const auto [start, stop, step] = bounds;
  if (step == 0) fail("range() arg 3 must not be zero");
  Values items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (items.size() >= kMaxRange) fail("range() is longer than {}", kMaxRange);
    items.push_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  std::string label = step == 1 ? fmt::format("range({}, {})", start, stop)
                                : fmt::format("range({}, {}, {})", start, stop, step);
  return Value::seq(in.budget(), Seq::Form::kRange, std::move(items), std::move(label));
}

void put(Interpreter& in, Pairs& items, Value key, Value value) {
  in.budget().step(1 + items.size() / 16);
  check_hashable(in.budget(), key);
  for (auto& [k, v] : items)
    if (equal(in.budget(), k, key)) return void(v = std::move(value));
  items.emplace_back(std::move(key), std::move(value));
}

// Collects the pairs of dict(...) and namespace(...).
Pairs pairs_of(Interpreter& in, const Args& args) {
  if (args.positional.size() > 1) fail("dict() takes at most 1 positional argument");
  Pairs items;
  if (!args.positional.empty()) {
    const Value& from = args.positional[0];
    if (from.is_undefined()) fail("{}", from.undefined_reason());
    if (const Dict* dict = from.as_dict()) {
      in.budget().make_many(dict->items.size(), 2 * sizeof(Value));
      items = dict->items;
    } else {
      for (const Value& pair : iterate(in.budget(), from)) {
        Values two = iterate(in.budget(), pair);
        if (two.size() != 2) fail("dict() needs pairs, not {} values", two.size());
        put(in, items, two[0], two[1]);
      }
    }
  }
  for (const auto& [name, value] : args.named) {
    in.budget().make(64 + name.size());
    put(in, items, name, value);
  }
  return items;
}

Value dict(Interpreter& in, const Args& args) {
  return Value::dict(in.budget(), pairs_of(in, args));
}

Value make_namespace(Interpreter& in, const Args& args) {
  auto space = in.make_namespace();
  for (auto& [key, value] : pairs_of(in, args)) {
    if (!key.is_text()) continue;
    const std::string& name = *key.as_text();
    if (name.size() > kMaxName)
      fail("namespace(): a name of {} bytes, more than {}", name.size(), kMaxName);
    in.budget().make(sizeof(space->items[0]) + name.size());
    space->items.emplace_back(name, std::move(value));
  }
  return Value(std::move(space));
}

Value raise_exception(Interpreter& in, const Args& args) {
  const Value& message = Bound("raise_exception", args, {"message"}).need(0);
  fail("{}", excerpt(to_text(in.budget(), message), 1000));
}

// Python's datetime without a zone prints nothing for %z and %Z, and has %f for microseconds,
// which this clock does not know.
std::string as_of_python(std::string_view format) {
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    const char next = format[i] == '%' && i + 1 < format.size() ? format[++i] : '\0';
    if (next == 'f')
      out += "000000";
    else if (next == '\0')
      out += format[i];
    else if (next != 'z' && next != 'Z')
      out += {'%', next};
  }
  return out;
}

Value strftime_now(Interpreter& in, const Args& args) {
  const std::string format = as_of_python(Bound("strftime_now", args, {"format"}).text(0));
  if (format.size() > 200) fail("strftime_now(): the format is longer than 200 bytes");
  const std::time_t now = in.now();
  std::tm local{};
  localtime_r(&now, &local);
  char text[4096];
  return std::string(text, std::strftime(text, sizeof text, format.c_str(), &local));
}

struct Joiner : Callable {
  explicit Joiner(Value s) : separator(std::move(s)) { depth = separator.depth() + 1; }
  std::string repr() const override { return "<Joiner>"; }
  Value separator;
  bool used = false;

 private:
  Value run(Interpreter&, Args) override {
    return std::exchange(used, true) ? separator : Value("");
  }
};

Value joiner(Interpreter& in, const Args& args) {
  const Bound bound("joiner", args, {"sep"});
  return Value::callable(in.budget(), std::make_shared<Joiner>(bound[0] ? *bound[0] : Value(", ")));
}

struct Cycler : Callable, std::enable_shared_from_this<Cycler> {
  struct Method : Callable {
    Method(std::shared_ptr<const Cycler> c, bool r) : cycler(std::move(c)), resets(r) {
      depth = cycler->depth + 1;
    }
    std::string repr() const override { return "<method of Cycler>"; }
    std::shared_ptr<const Cycler> cycler;
    bool resets;

   private:
    Value run(Interpreter&, Args args) override {
      takes_nothing("cycler method", args);
      size_t& at = cycler->at;
      if (resets) return at = 0, Value();
      return cycler->items[std::exchange(at, (at + 1) % cycler->items.size())];
    }
  };

  explicit Cycler(Values v) : items(std::move(v)) {
    for (const Value& item : items) depth = std::max(depth, item.depth() + 1);
  }
  std::string repr() const override { return "<Cycler>"; }
  std::optional<Value> attribute(Budget& budget, const std::string& name) const override {
    if (name == "current") return items[at];
    if (name != "next" && name != "reset") return std::nullopt;
    return Value::callable(budget, std::make_shared<Method>(shared_from_this(), name == "reset"));
  }
  Values items;
  mutable size_t at = 0;

 private:
  Value run(Interpreter&, Args) override { fail("'Cycler' object is not callable"); }
};

Value cycler(Interpreter& in, const Args& args) {
  if (args.positional.empty() || !args.named.empty()) fail("cycler() needs at least one item");
  in.budget().make_many(args.positional.size(), sizeof(Value));
  return Value::callable(in.budget(), std::make_shared<Cycler>(args.positional));
}

Value lipsum(Interpreter&, const Args&) {
  fail("the function 'lipsum' is refused: a conversation must give the same prompt each time");
}

constexpr std::pair<std::string_view, Builtin::Function> kFunctions[] = {
    {"range", range},
    {"dict", dict},
    {"namespace", make_namespace},
    {"raise_exception", raise_exception},
    {"strftime_now", strftime_now},
    {"joiner", joiner},
    {"cycler", cycler},
    {"lipsum", lipsum}};

}  // namespace

std::span<const std::pair<std::string_view, Builtin::Function>> global_functions() {
  return kFunctions;
}

Value global_function(Budget& budget, const std::string& name) {
  for (const auto& [known, function] : kFunctions)
    if (known == name) return Value::callable(budget, std::make_shared<Builtin>(name, function));
  budget.make(128 + name.size());
  return Value::undefined(fmt::format("'{}' is undefined", name));
}

}  // namespace skiff::jinja
