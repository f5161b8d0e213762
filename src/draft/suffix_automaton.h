// draft/suffix_automaton.h -- the longest end of a text that stood in it before.
#pragma once
#include <cstdint>
#include <vector>

#include "message/request.h"

namespace skiff::draft {

// The suffix automaton of a growing text (Blumer et al. 1985): its states are the classes of
// substrings that end at the same positions, at most two for each token, with at most three edges.
// A token is added in constant time on average, and takes up to some 100 bytes.
class SuffixAutomaton {
 public:
  // `seed` is that of the hash table of edges: keep it secret where others choose the text.
  explicit SuffixAutomaton(uint64_t seed);
  void add(Token token);
  int size() const { return size_; }  // tokens that were added

  // The longest suffix of the text that also ends elsewhere in it.
  struct Match {
    int length = 0;
    int end = 0;  // the tokens up to its end there: less than size()
  };
  Match longest() const;

 private:
  struct State {
    int32_t length = 0;  // the tokens of its longest substring
    int32_t link = -1;   // the state of that one's longest suffix with more ends
    int32_t end = 0;     // where it ended before, one of the last times
    int32_t edges = -1;  // the first of its edges
  };
  struct Edge {
    int32_t state, token, to, next;  // `next`: another edge of the state, or -1
  };
  int32_t new_state(const State& state);
  int32_t& place(int32_t state, Token token);
  Edge* edge(int32_t state, Token token);
  void add_edge(int32_t state, Token token, int32_t to);
  int32_t split(int32_t from, int32_t whole, Token token);
  void grow();

  uint64_t seed_;
  int size_ = 0;
  int32_t last_ = 0;  // the state of the whole text
  std::vector<State> states_;
  std::vector<Edge> edges_;
  std::vector<int32_t> table_;  // open addressing: an index of edges_, or -1
};

}  // namespace skiff::draft
