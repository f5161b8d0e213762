// grammar/masks.h -- which tokens may come next: walks of the vocabulary's trie through a Machine,
// with caches.
//
// Most of a mask depends on one expression alone, not on the stack below it: the tokens that end
// inside the expression's frame. They are found once for each expression; tokens that leave the
// frame are walked again from where they leave it, with the stack that is there (as the adaptive
// token masks of Dong et al., "XGrammar", 2024, but found when first needed).
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/machine.h"
#include "grammar/vocabulary.h"

namespace skiff::grammar {

// Not thread-safe.
class Masks {
 public:
  // `plain` are the expressions of one character of a JSON string: each takes any plain character.
  Masks(Machine& machine, const Vocabulary& vocabulary, std::vector<ExprId> plain)
      : machine_(machine), vocabulary_(vocabulary), plain_(std::move(plain)) {}

  // Sets `out`, of vocabulary.mask_words() words, to the tokens that may come next, without those
  // that end a text. Meaningless once machine.exhausted().
  void fill(ConfigId config, std::span<uint32_t> out);
  size_t bytes_used() const { return bytes_; }

 private:
  struct Local {
    std::vector<int32_t> tokens;  // the allowed tokens, where the mask is sparse
    std::vector<uint32_t> words;  // a bit for each token, where the mask is dense
    const TokenTrie* trie = nullptr;
    uint16_t reach = 0;             // the depth of the deepest node that was reached
    std::vector<uint32_t> escapes;  // nodes of `trie` where the frame may end inside a token
    // A string of bounded length: all is as in this state, where it may go on for ever, but for
    // plain tokens of more than `max` characters.
    const Local* endless = nullptr;
    uint32_t max = 0;
  };
  // The characters of a JSON string that are still to come, and what follows them.
  struct Repeated {
    ExprId character = kNothing, tail = kEmpty;
    uint32_t min = 0, max = 0;
  };
  // Takes the tokens that a walk finds: into `mask`, and the first `most` also into `list`, unless
  // it is null.
  struct Found {
    std::span<uint32_t> mask;
    std::vector<int32_t>* list = nullptr;
    size_t most = 0, count = 0;
    void take(std::span<const int32_t> tokens);
  };
  const Local& local(ExprId state);
  void walk(const TokenTrie& trie, uint32_t node, ConfigId config, Found& found,
            std::vector<uint32_t>* escapes);
  bool takes_plain(ConfigId config);
  bool plain_body(ExprId state, Repeated* body) const;
  bool from_endless(const Repeated& body, Local& made);
  void add(const Local& local, StackId stack, std::span<uint32_t> out);
  void leave(const Local& endless, ConfigId outside, std::span<uint32_t> out);

  Machine& machine_;
  const Vocabulary& vocabulary_;
  std::vector<ExprId> plain_;
  std::unordered_map<ExprId, Local> local_;
  std::unordered_map<ConfigId, std::vector<uint32_t>> whole_;
  // The tokens that leave a string of bounded length, whatever the bound.
  std::map<std::pair<const Local*, ConfigId>, std::vector<int32_t>> leaving_;
  std::vector<uint8_t> takes_plain_;  // one for each configuration: 0 (unknown), or 1 + the answer
  std::vector<uint32_t> scratch_;     // a mask
  std::vector<ConfigId> path_;
  uint16_t reach_ = 0;  // the deepest node of the last walk
  size_t bytes_ = 0;
};

}  // namespace skiff::grammar
