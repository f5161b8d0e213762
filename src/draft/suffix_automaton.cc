#include "draft/suffix_automaton.h"

namespace skiff::draft {
namespace {

constexpr size_t kFirstTable = 64;
constexpr int kRefreshed = 4;  // states whose last ends are kept up to date with each token

}  // namespace

SuffixAutomaton::SuffixAutomaton(uint64_t seed) : seed_(seed), table_(kFirstTable, -1) {
  states_.emplace_back();
}

int32_t SuffixAutomaton::new_state(const State& state) {
  states_.push_back(state);
  return static_cast<int32_t>(states_.size()) - 1;
}

// Returns the place of the edge in the table, or the free one where it belongs.
int32_t& SuffixAutomaton::place(int32_t state, Token token) {
  uint64_t h =
      (static_cast<uint64_t>(static_cast<uint32_t>(state)) << 32 | static_cast<uint32_t>(token)) ^
      seed_;
  h = (h ^ (h >> 32)) * 0xd6e8feb86659fd93ull;
  h = (h ^ (h >> 32)) * 0xd6e8feb86659fd93ull;
  const size_t mask = table_.size() - 1;
  for (size_t at = (h ^ (h >> 32)) & mask;; at = (at + 1) & mask) {
    if (table_[at] < 0) return table_[at];
    const Edge& found = edges_[static_cast<size_t>(table_[at])];
    if (found.state == state && found.token == token) return table_[at];
  }
}

SuffixAutomaton::Edge* SuffixAutomaton::edge(int32_t state, Token token) {
  const int32_t found = place(state, token);
  return found < 0 ? nullptr : &edges_[static_cast<size_t>(found)];
}

void SuffixAutomaton::add_edge(int32_t state, Token token, int32_t to) {
  if (2 * (edges_.size() + 1) > table_.size()) grow();
  const auto index = static_cast<int32_t>(edges_.size());
  State& from = states_[static_cast<size_t>(state)];
  edges_.push_back({state, token, to, from.edges});
  from.edges = index;
  // The new edge is not in the table yet, so that its place is a free one.
  place(state, token) = index;
}

void SuffixAutomaton::grow() {
  table_.assign(2 * table_.size(), -1);
  for (size_t i = 0; i < edges_.size(); ++i)
    place(edges_[i].state, edges_[i].token) = static_cast<int32_t>(i);
}

// Splits the state `whole`, to which the edge of `from` leads: a new state gets its substrings of
// at most one token more than those of `from`, and the edges of `from` and of its suffixes lead
// there. Returns the new state.
int32_t SuffixAutomaton::split(int32_t from, int32_t whole, Token token) {
  State part = states_[static_cast<size_t>(whole)];
  const int32_t copied = part.edges;
  part.length = states_[static_cast<size_t>(from)].length + 1;
  part.edges = -1;
  const int32_t made = new_state(part);
  for (int32_t i = copied; i >= 0; i = edges_[static_cast<size_t>(i)].next) {
    const Edge copy = edges_[static_cast<size_t>(i)];
    add_edge(made, copy.token, copy.to);
  }
  states_[static_cast<size_t>(whole)].link = made;
  for (int32_t s = from; s >= 0; s = states_[static_cast<size_t>(s)].link) {
    Edge* to = edge(s, token);
    if (to == nullptr || to->to != whole) break;
    to->to = made;
  }
  return made;
}

void SuffixAutomaton::add(Token token) {
  // Ends that were the text's own are earlier ones from now on.
  int32_t old = states_[static_cast<size_t>(last_)].link;
  for (int i = 0; i < kRefreshed && old > 0; ++i) {
    states_[static_cast<size_t>(old)].end = size_;
    old = states_[static_cast<size_t>(old)].link;
  }
  ++size_;
  const int32_t made = new_state({.length = size_, .end = size_});
  int32_t s = last_;
  while (s >= 0 && edge(s, token) == nullptr) {
    add_edge(s, token, made);
    s = states_[static_cast<size_t>(s)].link;
  }
  int32_t link = 0;
  if (s >= 0) {
    link = edge(s, token)->to;
    const int32_t longer = states_[static_cast<size_t>(s)].length + 1;
    if (states_[static_cast<size_t>(link)].length != longer) link = split(s, link, token);
  }
  states_[static_cast<size_t>(made)].link = link;
  last_ = made;
}

SuffixAutomaton::Match SuffixAutomaton::longest() const {
  if (last_ == 0) return {};
  const State& found = states_[static_cast<size_t>(states_[static_cast<size_t>(last_)].link)];
  if (found.length == 0) return {};
  return {.length = found.length, .end = found.end};
}

}  // namespace skiff::draft
