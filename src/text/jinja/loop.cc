#include "text/jinja/loop.h"

#include "text/jinja/builtins.h"
#include "text/jinja/unicode.h"

namespace skiff::jinja {
namespace {

// Implements loop.cycle and loop.changed.
struct LoopMethod : Callable {
  LoopMethod(std::shared_ptr<Loop> l, bool c) : loop(std::move(l)), cycle(c) {
    depth = loop->depth + 1;
  }
  std::string repr() const override { return cycle ? "<method cycle>" : "<method changed>"; }
  std::shared_ptr<Loop> loop;
  bool cycle;

 private:
  Value run(Interpreter& in, Args args) override {
    if (cycle) {
      if (args.positional.empty()) fail("no items for cycling given");
      return args.positional[loop->index % args.positional.size()];
    }
    const Value seen = Value::list(in.budget(), args.positional);
    const bool same =
        loop->last_seen && equal(in.budget(), seen, Value::list(in.budget(), *loop->last_seen));
    if (!std::exchange(loop->kept, true)) in.keep(loop);
    loop->last_seen = std::move(args.positional);
    return !same;
  }
};

}  // namespace

Value loop_attribute(Interpreter& in, const Value& self, const std::string& name) {
  const std::shared_ptr<Loop>& loop = self.loop();
  const auto i = static_cast<int64_t>(loop->index), n = static_cast<int64_t>(loop->items.size());
  if (name == "index") return i + 1;
  if (name == "index0") return i;
  if (name == "revindex") return n - i;
  if (name == "revindex0") return n - i - 1;
  if (name == "first") return i == 0;
  if (name == "last") return i + 1 >= n;
  if (name == "length") return n;
  if (name == "depth") return int64_t{loop->nesting + 1};
  if (name == "depth0") return int64_t{loop->nesting};
  if (name == "previtem")
    return i > 0 ? loop->items[loop->index - 1] : Value::undefined("there is no previous item");
  if (name == "nextitem")
    return i + 1 < n ? loop->items[loop->index + 1] : Value::undefined("there is no next item");
  if (name == "cycle")
    return Value::callable(in.budget(), std::make_shared<LoopMethod>(loop, true));
  if (name == "changed")
    return Value::callable(in.budget(), std::make_shared<LoopMethod>(loop, false));
  in.budget().make(192);
  return Value::undefined(fmt::format("'LoopContext object' has no attribute '{}'", excerpt(name)));
}

}  // namespace skiff::jinja
