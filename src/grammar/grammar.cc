#include "grammar/grammar.h"

#include <algorithm>
#include <memory>
#include <mutex>

#include "grammar/front_ends.h"
#include "grammar/masks.h"
#include "grammar/refusal.h"
#include "grammar/rules.h"

namespace skiff::grammar {
namespace {

// A compiled constraint and everything that is learned while it is followed, which is forgotten
// where it has grown too large; the same texts then lead to the same answers. Work that ran out of
// fuel leaves nothing wrong behind.
struct Learned {
  explicit Learned(const Constraint& constraint, const Vocabulary& vocabulary, const Limits& limits)
      : vocabulary(vocabulary), compile_fuel(limits.compile_fuel), fuel(compile_fuel), exprs(fuel) {
    RuleSet rules(exprs, vocabulary);
    rules.rules[0] = constraint_text(constraint, rules);
    if (fuel.empty()) refuse("the constraint is too complex (its fuel is spent)");
    starts = prepared_rules(exprs, std::move(rules.rules), rules.names);
    plain = std::move(rules.plain);
    compiled = exprs.mark();
    start();
    if (fuel.empty() || machine->start() == kDead)
      refuse("the constraint {}", fuel.empty() ? "is too complex (its fuel is spent)"
                                               : "cannot be satisfied: no text fits it");
  }
  // Goes back to what compiling made.
  void forget() {
    masks.reset();
    machine.reset();
    exprs.forget(compiled);
    fuel.refill(compile_fuel);
    start();
  }
  void start() {
    machine = std::make_unique<Machine>(exprs, starts);
    machine->start();
    masks = std::make_unique<Masks>(*machine, vocabulary, plain);
    bytes_at_start = bytes_used();
  }
  size_t bytes_used() const {
    return exprs.bytes_used() + machine->bytes_used() + masks->bytes_used();
  }
  size_t bytes_learned() const { return bytes_used() - std::min(bytes_used(), bytes_at_start); }

  const Vocabulary& vocabulary;
  const int64_t compile_fuel;
  Fuel fuel;
  ExprSet exprs;
  std::vector<ExprId> starts, plain;
  ExprSet::Mark compiled;
  std::unique_ptr<Machine> machine;
  std::unique_ptr<Masks> masks;
  size_t bytes_at_start = 0;
};

}  // namespace

struct Grammar::State {
  Constraint constraint;
  Limits limits;
  std::mutex mutex;
  // What follows is guarded by the mutex.
  std::unique_ptr<Learned> learned;
  uint64_t generation = 1;
  size_t room = 0;  // the bytes beyond which what was learned is forgotten

  // To be called before a piece of work: gives it its fuel, and room.
  Machine& begin() {
    if (learned->bytes_learned() > room) {
      learned->forget();
      room = limits.max_memory;
      ++generation;
    }
    learned->fuel.refill(limits.step_fuel);
    return *learned->machine;
  }
  // Is called when a text was followed again. A text that needs nearly all the memory would
  // otherwise be followed from its start for each of its tokens.
  void keep_room() {
    constexpr size_t kMost = 8;  // the room is at most so many times max_memory
    room = std::max(room, std::min(2 * learned->bytes_learned(), kMost * limits.max_memory));
  }
};

Grammar::Grammar(Constraint constraint, std::shared_ptr<const Vocabulary> vocabulary,
                 const Limits& limits)
    : vocabulary_(std::move(vocabulary)), state_(std::make_unique<State>()) {
  state_->constraint = std::move(constraint);
  state_->limits = limits;
  state_->room = limits.max_memory;
  state_->learned = std::make_unique<Learned>(state_->constraint, *vocabulary_, limits);
}

Grammar::~Grammar() = default;

const Constraint& Grammar::constraint() const { return state_->constraint; }

size_t Grammar::bytes_used() const {
  const std::lock_guard lock(state_->mutex);
  return state_->learned->bytes_used() + state_->constraint.text.size();
}

Result<std::shared_ptr<const Grammar>> compile(const Constraint& constraint,
                                               std::shared_ptr<const Vocabulary> vocabulary,
                                               const Limits& limits) {
  const size_t size =
      constraint.text.size() + constraint.calls.size() + constraint.whitespace_pattern.size();
  if (size > limits.max_text)
    return Error{Code::kInvalid,
                 fmt::format("the constraint has {} bytes, more than {}", size, limits.max_text)};
  try {
    const std::shared_ptr<const Grammar> out(
        new Grammar(constraint, std::move(vocabulary), limits));
    std::vector<uint32_t> mask(out->vocabulary().mask_words());
    if (!Matcher(out).fill(mask) && !Matcher(out).is_complete())
      refuse("the constraint is too complex (the fuel of its first mask is spent)");
    return out;
  } catch (const Refusal& refusal) {
    return Error{refusal.code, refusal.what(), refusal.where};
  }
}

Matcher::Matcher(std::shared_ptr<const Grammar> grammar, int answers)
    : grammar_(std::move(grammar)), answers_(answers) {
  SKIFF_CHECK(answers > 0, "{} answers", answers);
}

// Brings configs_ to the present generation. The lock is held.
void Matcher::renew() const {
  Grammar::State& state = *grammar_->state_;
  Machine& machine = state.begin();
  if (generation_ == state.generation) return;
  generation_ = state.generation;
  configs_ = {machine.start()};
  for (const int32_t token : tokens_) {
    ConfigId config = configs_.back();
    state.learned->fuel.refill(state.limits.step_fuel);
    for (const char c : grammar_->vocabulary().piece(token))
      config = machine.step(config, static_cast<uint8_t>(c));
    configs_.push_back(config);
  }
  if (!tokens_.empty()) state.keep_room();
  state.learned->fuel.refill(state.limits.step_fuel);
}

bool Matcher::accept(int32_t token) {
  if (ended_) return false;
  const Vocabulary& vocabulary = grammar_->vocabulary();
  const std::lock_guard lock(grammar_->state_->mutex);
  renew();
  Machine& machine = *grammar_->state_->learned->machine;
  ConfigId config = configs_.back();
  const auto ends = vocabulary.ends();
  if (std::find(ends.begin(), ends.end(), token) != ends.end()) {
    if (!machine.config(config).complete) return false;
    ended_ = true;
  } else {
    const std::string_view piece = vocabulary.piece(token);
    if (piece.empty()) return false;
    for (const char c : piece) config = machine.step(config, static_cast<uint8_t>(c));
    if (config == kDead || machine.exhausted()) return false;
  }
  tokens_.push_back(token);
  configs_.push_back(config);
  return true;
}

size_t Matcher::accepts(std::span<const int32_t> tokens) const {
  Matcher other = *this;
  size_t count = 0;
  while (count < tokens.size() && other.accept(tokens[count])) ++count;
  return count;
}

void Matcher::rollback(size_t count) {
  SKIFF_CHECK(count <= tokens_.size(), "{} tokens of {} to take back", count, tokens_.size());
  if (count == 0) return;
  tokens_.resize(tokens_.size() - count);
  if (!configs_.empty()) configs_.resize(tokens_.size() + 1);
  ended_ = false;
}

bool Matcher::fill(std::span<uint32_t> mask) const {
  const Vocabulary& vocabulary = grammar_->vocabulary();
  SKIFF_CHECK(mask.size() == vocabulary.mask_words(), "a mask of {} words for {} tokens",
              mask.size(), vocabulary.width());
  if (ended_) {
    std::fill(mask.begin(), mask.end(), 0);
    return false;
  }
  const std::lock_guard lock(grammar_->state_->mutex);
  renew();
  Learned& learned = *grammar_->state_->learned;
  const ConfigId config = configs_.back();
  const Limits& limits = grammar_->state_->limits;
  learned.fuel.refill(limits.step_fuel / std::min(answers_, limits.most_shares));
  learned.masks->fill(config, mask);
  if (learned.fuel.empty()) {
    std::fill(mask.begin(), mask.end(), 0);
    return false;
  }
  if (learned.machine->config(config).complete)
    for (const int32_t end : vocabulary.ends())
      mask[static_cast<size_t>(end) / 32] |= 1u << (static_cast<uint32_t>(end) % 32);
  uint32_t any = 0;  // without a branch, which is faster than to stop at the first
  for (const uint32_t word : mask) any |= word;
  return any != 0;
}

bool Matcher::is_complete() const {
  const std::lock_guard lock(grammar_->state_->mutex);
  renew();
  return grammar_->state_->learned->machine->config(configs_.back()).complete;
}

bool Matcher::is_terminated() const {
  if (ended_) return true;
  const std::lock_guard lock(grammar_->state_->mutex);
  renew();
  const Config& config = grammar_->state_->learned->machine->config(configs_.back());
  return config.complete && config.count == 0;
}

std::string Matcher::forced_text(size_t max_bytes) const {
  std::string out;
  if (ended_) return out;
  const std::lock_guard lock(grammar_->state_->mutex);
  renew();
  Machine& machine = *grammar_->state_->learned->machine;
  for (ConfigId config = configs_.back(); out.size() < max_bytes;) {
    const int byte = machine.first(config).only();
    if (byte < 0 || machine.config(config).complete) break;
    config = machine.step(config, static_cast<uint8_t>(byte));
    if (config == kDead || machine.exhausted()) break;
    out += static_cast<char>(byte);
  }
  return out;
}

}  // namespace skiff::grammar
