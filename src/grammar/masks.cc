#include "grammar/masks.h"

#include <algorithm>

namespace skiff::grammar {
namespace {

constexpr size_t kMaxWholeBytes = size_t{16} << 20;  // kept masks of whole configurations
constexpr size_t kSparse = 512;                      // tokens of a mask kept as a list

void set_bit(std::span<uint32_t> mask, int32_t token) {
  mask[static_cast<size_t>(token) / 32] |= 1u << (static_cast<uint32_t>(token) % 32);
}

}  // namespace

void Masks::Found::take(std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) set_bit(mask, token);
  count += tokens.size();
  if (list && list->size() < most) list->insert(list->end(), tokens.begin(), tokens.end());
}

Machine& Masks::fresh_walker() {
  machine_.exprs().forget_live();
  takes_plain_.clear();
  return walker_.emplace(machine_.exprs(), machine_.starts());
}

// Walks the descendants of `node`, which `config` has reached.
void Masks::walk(const TokenTrie& trie, uint32_t node, ConfigId config, Found& found,
                 std::vector<uint32_t>* escapes) {
  const TokenTrie::Node* nodes = trie.nodes.data();
  if (path_.size() <= static_cast<size_t>(trie.depth)) path_.resize(size_t(trie.depth) + 1);
  path_[nodes[node].depth] = config;
  const uint32_t end = node + nodes[node].size;
  for (uint32_t i = node + 1; i < end;) {
    const TokenTrie::Node& at = nodes[i];
    const ConfigId next = walker_->step(path_[at.depth - 1u], at.byte);
    if (next == kDead) {
      if (fuel().empty()) return;
      i += at.size;
      continue;
    }
    reach_ = std::max(reach_, at.depth);
    if (at.num_tokens > 0) found.take({trie.tokens.data() + at.first_token, at.num_tokens});
    if (at.size == 1) {
      ++i;
      continue;
    }
    const Config& reached = walker_->config(next);
    if (escapes && reached.escaped) escapes->push_back(i);
    if (reached.count == 0) {
      i += at.size;
      continue;
    }
    if (at.plain && takes_plain(next)) {
      found.take(trie.below(i));
      i += at.size;
      continue;
    }
    path_[at.depth] = next;
    ++i;
  }
}

// Returns whether any plain characters may come next for ever, and nothing else is read meanwhile.
bool Masks::takes_plain(ConfigId config) {
  if (takes_plain_.size() <= config) takes_plain_.resize(config + 1, 0);
  uint8_t& known = takes_plain_[config];
  if (known == 0) {
    const auto elements = walker_->elements(config);
    Repeated body;
    const bool takes =
        elements.size() == 1 && plain_body(elements.front().state, &body) && body.max == kEndless;
    known = takes ? 2 : 1;
  }
  return known == 2;
}

// Returns whether the state is the rest of a JSON string's characters: then a plain token is
// allowed if and only if it has at most `body->max` characters.
bool Masks::plain_body(ExprId state, Repeated* body) const {
  const ExprSet& exprs = machine_.exprs();
  const Expr* x = &exprs[state];
  if (x->kind == ExprKind::kConcat) {
    const ByteSet after = exprs[x->b].first;
    ByteSet special = ByteSet::range(0, 0x1F);
    special.add('"'), special.add('\\');
    if ((after | special) != special || exprs[x->b].has_calls) return false;
    body->tail = x->b;
    x = &exprs[x->a];
  }
  if (x->kind != ExprKind::kRepeat || exprs[x->a].nullable) return false;
  body->character = x->a, body->min = x->min, body->max = x->max;
  return std::find(plain_.begin(), plain_.end(), x->a) != plain_.end();
}

// Makes the mask of a string of bounded length from that of an unbounded one. Where the bound is
// beyond the longest token that is not plain, it matters to plain tokens alone.
bool Masks::from_endless(const Repeated& body, Local& made) {
  if (body.min > 0 || body.max == kEndless) return false;
  ExprSet& exprs = machine_.exprs();
  const ExprId state = exprs.concat(exprs.repeat(body.character, 0, kEndless), body.tail);
  const Local* endless = local(state);
  if (!endless || endless->words.empty() || endless->reach > body.max) return false;
  made.endless = endless;
  made.max = body.max;
  made.reach = endless->reach;
  return true;
}

const Masks::Local* Masks::local(ExprId state) {
  if (const auto known = local_.find(state); known != local_.end())
    return fuel().burn(known->second.cost) ? &known->second : nullptr;
  const int64_t before = fuel().left();
  Local made = made_local(state);
  if (fuel().empty()) return nullptr;
  made.cost = before - fuel().left();
  bytes_ += sizeof(Local) + 4 * (made.words.size() + made.tokens.size() + made.escapes.size());
  return &(local_[state] = std::move(made));
}

Masks::Local Masks::made_local(ExprId state) {
  Local made;
  Repeated body;
  const bool plain_state = plain_body(state, &body);
  if (plain_state && from_endless(body, made)) return made;
  scratch_.assign(vocabulary_.mask_words(), 0);
  made.trie = plain_state ? &vocabulary_.without_plain() : &vocabulary_.trie();
  if (plain_state) std::ranges::copy(vocabulary_.plain_mask(body.max), scratch_.begin());
  reach_ = 0;
  Found found{.mask = scratch_, .list = plain_state ? nullptr : &made.tokens, .most = kSparse + 1};
  walk(*made.trie, 0, fresh_walker().alone(state), found, &made.escapes);
  made.reach = reach_;
  if (plain_state || found.count > kSparse) {
    made.words = scratch_;
    made.tokens = {};
  }
  made.escapes.shrink_to_fit();
  return made;
}

void Masks::add(const Local& local, StackId stack, std::span<uint32_t> out) {
  const Local& own = local.endless ? *local.endless : local;
  if (local.endless) {
    const auto all = vocabulary_.plain_mask(kEndless), some = vocabulary_.plain_mask(local.max);
    for (size_t i = 0; i < out.size(); ++i) out[i] |= (own.words[i] & ~all[i]) | some[i];
  } else if (local.words.empty()) {
    for (const int32_t token : local.tokens) set_bit(out, token);
  } else {
    for (size_t i = 0; i < out.size(); ++i) out[i] |= local.words[i];
  }
  if (own.escapes.empty() || stack == kBottom) return;
  if (local.endless) return leave_endless(own, stack, out);
  Found found{.mask = out};
  leave(own, stack, found);
}

// Walks on with the tokens that leave the frame above `stack`.
void Masks::leave(const Local& inside, StackId stack, Found& found) {
  Machine& walker = fresh_walker();
  const ConfigId outside = walker.returned(walker.copied(machine_, stack));
  if (outside == kDead || walker.config(outside).count == 0) return;
  for (const uint32_t node : inside.escapes) walk(*inside.trie, node, outside, found, nullptr);
}

// Each character of a string of bounded length leads to another state, and the same tokens leave
// all of them.
void Masks::leave_endless(const Local& endless, StackId stack, std::span<uint32_t> out) {
  const std::pair key(&endless, stack);
  if (const auto known = leaving_.find(key); known != leaving_.end()) {
    fuel().burn(known->second.cost);
    for (const int32_t token : known->second.tokens) set_bit(out, token);
    return;
  }
  const int64_t before = fuel().left();
  Leaving made;
  Found found{.mask = out, .list = &made.tokens, .most = vocabulary_.trie().tokens.size()};
  leave(endless, stack, found);
  if (fuel().empty()) return;
  made.cost = before - fuel().left();
  bytes_ += sizeof(Local) + sizeof(int32_t) * made.tokens.capacity();
  leaving_.emplace(key, std::move(made));
}

void Masks::fill(ConfigId config, std::span<uint32_t> out) {
  if (const auto known = whole_.find(config); known != whole_.end()) {
    fuel().burn(known->second.cost);
    std::ranges::copy(known->second.words, out.begin());
    return;
  }
  const int64_t before = fuel().left();
  std::fill(out.begin(), out.end(), 0);
  bool plain = true;  // nothing that is not kept already
  const auto elements = machine_.elements(config);
  for (const Element& element : elements) {
    const Local* mine = local(element.state);
    if (!mine) return;
    plain = plain && (mine->endless || mine->escapes.empty() || element.stack == kBottom);
    add(*mine, element.stack, out);
    if (fuel().empty()) return;
  }
  if (!plain || elements.size() != 1) keep_whole(config, out, before - fuel().left());
}

void Masks::keep_whole(ConfigId config, std::span<const uint32_t> words, int64_t cost) {
  const size_t bytes = 4 * words.size();
  if ((whole_.size() + 1) * bytes > kMaxWholeBytes) {
    bytes_ -= whole_.size() * bytes;
    whole_.clear();
  }
  whole_[config] = {.words = {words.begin(), words.end()}, .cost = cost};
  bytes_ += bytes;
}

}  // namespace skiff::grammar
