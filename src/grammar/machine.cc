#include "grammar/machine.h"

#include <algorithm>

namespace skiff::grammar {
namespace {

uint64_t mixed(uint64_t h, uint64_t value) {
  h = (h ^ value) * 0x9E3779B97F4A7C15u;
  return h ^ (h >> 31);
}

}  // namespace

Machine::Machine(ExprSet& exprs, std::span<const ExprId> starts) : exprs_(exprs), starts_(starts) {
  classes_ = static_cast<size_t>(exprs_.num_classes());
  for (int byte = 0; byte < 256; ++byte)
    class_of_[static_cast<size_t>(byte)] = exprs_.class_of(static_cast<uint8_t>(byte));
  stacks_.resize(2);  // kBottom and kUnknown have no frames
  configs_.emplace_back();
  next_.assign(classes_, kDead);
}

ConfigId Machine::start() {
  if (start_ != kDead) return start_;
  const ConfigId out = close({{starts_[0], kBottom}});
  if (!exhausted()) start_ = out;
  return out;
}

size_t Machine::bytes_used() const {
  constexpr size_t kMapEntry = 48;
  return configs_.capacity() * sizeof(Config) + elements_.capacity() * sizeof(Element) +
         next_.capacity() * sizeof(ConfigId) + stacks_.capacity() * sizeof(Stack) +
         frames_.capacity() * sizeof(Frame) +
         kMapEntry * (config_index_.size() + stack_index_.size() + unions_.size() +
                      derived_.size() + copied_.size() + 2 * calls_.size());
}

ByteSet Machine::first(ConfigId id) const {
  ByteSet out;
  for (const Element& element : elements(id)) out |= exprs_[element.state].first;
  return out;
}

ExprId Machine::derived(ExprId state, uint8_t byte) {
  const uint64_t key = uint64_t{state} << 8 | class_of_[byte];
  if (const auto known = derived_.find(key); known != derived_.end()) return known->second;
  const ExprId out = exprs_.derivative(state, byte);
  if (!exhausted()) derived_[key] = out;
  return out;
}

std::vector<CallOf> Machine::calls(ExprId state) {
  const auto known = calls_.find(state);
  if (known != calls_.end()) return known->second;
  std::vector<CallOf> out = exprs_.calls_of(state);
  if (!exhausted()) calls_[state] = out;
  return out;
}

ConfigId Machine::alone(ExprId state) { return intern({{state, kUnknown}}, false, false); }

StackId Machine::copied(const Machine& from, StackId stack) {
  if (stack <= kUnknown) return stack;
  if (const auto known = copied_.find(stack); known != copied_.end()) return known->second;
  const Stack& theirs = from.stacks_[stack];
  exprs_.fuel().burn(theirs.count);
  std::vector<Frame> frames(from.frames_.begin() + theirs.begin,
                            from.frames_.begin() + theirs.begin + theirs.count);
  for (Frame& frame : frames) frame.below = copied(from, frame.below);
  return copied_[stack] = intern_stack(frames);
}

ConfigId Machine::returned(StackId stack) {
  std::vector<Element> kernel;
  for (uint32_t i = 0; i < stacks_[stack].count; ++i) {
    const Frame& frame = frames_[stacks_[stack].begin + i];
    kernel.push_back({frame.rest, frame.below});
  }
  return close(kernel);
}

ConfigId Machine::take_step(ConfigId config, uint8_t byte) {
  std::vector<Element> kernel;
  exprs_.fuel().burn(configs_[config].count);
  for (uint32_t i = 0; i < configs_[config].count; ++i) {
    const Element element = elements_[configs_[config].begin + i];
    if (!exprs_[element.state].first.has(byte)) continue;
    const ExprId next = derived(element.state, byte);
    if (next != kNothing) kernel.push_back({next, element.stack});
  }
  const ConfigId out = kernel.empty() ? kDead : close(kernel);
  if (exhausted()) return kDead;
  next_[config * classes_ + class_of_[byte]] = out;
  return out;
}

// Adds what elements call and what they return to, until nothing new appears.
ConfigId Machine::close(const std::vector<Element>& kernel) {
  constexpr size_t kFew = 16;
  std::vector<Element> all;
  std::unordered_map<ExprId, size_t> places;  // used from kFew elements on
  std::vector<size_t> work;
  bool complete = false, escaped = false;
  const auto place_of = [&](ExprId state) {
    if (all.size() > kFew) {
      const auto place = places.find(state);
      return place == places.end() ? all.size() : place->second;
    }
    size_t i = 0;
    while (i < all.size() && all[i].state != state) ++i;
    return i;
  };
  const auto add = [&](ExprId state, StackId stack) {
    const size_t i = place_of(state);
    if (i == all.size()) {
      all.push_back({state, stack});
      if (all.size() == kFew + 1)
        for (size_t k = 0; k < all.size(); ++k) places[all[k].state] = k;
      else if (all.size() > kFew)
        places[state] = i;
      work.push_back(i);
      return;
    }
    const StackId both = united(all[i].stack, stack);
    if (both == all[i].stack) return;
    all[i].stack = both;
    work.push_back(i);
  };
  for (const Element& element : kernel) add(element.state, element.stack);
  while (!work.empty() && exprs_.fuel().burn()) {
    const Element element = all[work.back()];
    work.pop_back();
    if (exprs_[element.state].nullable) {
      // A union may hold kBottom or kUnknown as a frame of its own (see united).
      const Stack stack = stacks_[element.stack];
      if (element.stack == kBottom) complete = true;
      if (element.stack == kUnknown) escaped = true;
      exprs_.fuel().burn(stack.count);
      for (uint32_t i = 0; i < stack.count; ++i) {
        const Frame frame = frames_[stack.begin + i];
        if (frame.rest == kNothing)
          (frame.below == kBottom ? complete : escaped) = true;
        else
          add(frame.rest, frame.below);
      }
    }
    if (!exprs_[element.state].has_calls) continue;
    const std::vector<CallOf> called = calls(element.state);
    exprs_.fuel().burn(static_cast<int64_t>(4 * called.size()));
    for (const CallOf& call : called) {
      const StackId stack = call.rest == kEmpty ? element.stack : push(call.rest, element.stack);
      if (stacks_[stack].depth <= kMaxDepth) add(starts_[call.rule], stack);
    }
  }
  exprs_.fuel().burn(static_cast<int64_t>(4 * all.size()));
  std::erase_if(all, [&](const Element& element) { return exprs_[element.state].first.none(); });
  std::sort(all.begin(), all.end(),
            [](const Element& x, const Element& y) { return x.state < y.state; });
  return intern(all, complete, escaped);
}

ConfigId Machine::intern(const std::vector<Element>& elements, bool complete, bool escaped) {
  if (elements.empty() && !complete && !escaped) return kDead;
  uint64_t h = mixed(complete ? 1 : 2, escaped ? 1 : 2);
  for (const Element& element : elements)
    h = mixed(h, uint64_t{element.state} << 32 | element.stack);
  const auto [begin, end] = config_index_.equal_range(h);
  for (auto it = begin; it != end; ++it) {
    const Config& known = configs_[it->second];
    const auto mine = this->elements(it->second);
    if (known.complete == complete && known.escaped == escaped &&
        std::equal(mine.begin(), mine.end(), elements.begin(), elements.end()))
      return it->second;
  }
  const auto id = static_cast<ConfigId>(configs_.size());
  configs_.push_back({static_cast<uint32_t>(elements_.size()),
                      static_cast<uint32_t>(elements.size()), complete, escaped});
  elements_.insert(elements_.end(), elements.begin(), elements.end());
  next_.resize(next_.size() + classes_, kNotYet);
  config_index_.emplace(h, id);
  return id;
}

StackId Machine::intern_stack(const std::vector<Frame>& frames) {
  uint64_t h = 7;
  for (const Frame& frame : frames) h = mixed(h, uint64_t{frame.rest} << 32 | frame.below);
  const auto [begin, end] = stack_index_.equal_range(h);
  for (auto it = begin; it != end; ++it) {
    const Stack& known = stacks_[it->second];
    if (std::equal(frames.begin(), frames.end(), frames_.begin() + known.begin,
                   frames_.begin() + known.begin + known.count, [](const Frame& x, const Frame& y) {
                     return x.rest == y.rest && x.below == y.below;
                   }))
      return it->second;
  }
  Stack stack{static_cast<uint32_t>(frames_.size()), static_cast<uint32_t>(frames.size()), 0};
  for (const Frame& frame : frames)
    stack.depth = std::max(stack.depth, stacks_[frame.below].depth + 1);
  frames_.insert(frames_.end(), frames.begin(), frames.end());
  stacks_.push_back(stack);
  const auto id = static_cast<StackId>(stacks_.size() - 1);
  stack_index_.emplace(h, id);
  return id;
}

// The stacks of either. The two without frames appear in a union as frames that go on with
// kNothing.
StackId Machine::united(StackId x, StackId y) {
  if (x == y || !exprs_.fuel().burn()) return x;
  if (x > y) std::swap(x, y);
  const uint64_t key = uint64_t{x} << 32 | y;
  if (const auto known = unions_.find(key); known != unions_.end()) return known->second;
  const auto frames_of = [&](StackId id) {
    if (id <= kUnknown) return std::vector<Frame>{{kNothing, id}};
    const auto begin = frames_.begin() + stacks_[id].begin;
    return std::vector<Frame>(begin, begin + stacks_[id].count);
  };
  std::vector<Frame> merged;
  const auto mine = frames_of(x), theirs = frames_of(y);
  exprs_.fuel().burn(static_cast<int64_t>(4 * (mine.size() + theirs.size())));
  auto a = mine.begin(), b = theirs.begin();
  while (a != mine.end() || b != theirs.end()) {
    if (b == theirs.end() || (a != mine.end() && a->rest < b->rest)) {
      merged.push_back(*a++);
    } else if (a == mine.end() || b->rest < a->rest) {
      merged.push_back(*b++);
    } else if (a->rest == kNothing) {  // kBottom and kUnknown never meet
      merged.push_back(*a++), ++b;
    } else {
      merged.push_back({a->rest, united(a->below, b->below)});
      ++a, ++b;
    }
  }
  const StackId out = intern_stack(merged);
  if (!exhausted()) unions_[key] = out;
  return out;
}

}  // namespace skiff::grammar
