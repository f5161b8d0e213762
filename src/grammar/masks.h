// grammar/masks.h -- which tokens may come next: walks of the vocabulary's trie through a Machine,
// with caches.
//
// Most of a mask depends on one expression alone, not on the stack below it: the tokens that end
// inside the expression's frame. They are found once for each expression; tokens that leave the
// frame are walked again from where they leave it, with the stack that is there (as the adaptive
// token masks of Dong et al., "XGrammar", 2024, but found when first needed).
//
// A mask burns the same fuel whether its parts are known or not: each walk takes place in a machine
// that knows nothing yet, and what it cost is kept beside what it found. So whether the fuel
// suffices depends on the configuration alone, not on what else was walked before.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
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
  Masks(const Machine& machine, const Vocabulary& vocabulary, std::span<const ExprId> plain)
      : machine_(machine), vocabulary_(vocabulary), plain_(plain.begin(), plain.end()) {}

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
    // Set in a string of bounded length: the mask is that of `endless`, the same state of a string
    // without a bound, less the plain tokens of more than `max` characters.
    const Local* endless = nullptr;
    uint32_t max = 0;
    int64_t cost = 0;
  };
  struct Whole {
    std::vector<uint32_t> words;
    int64_t cost = 0;
  };
  struct Leaving {
    std::vector<int32_t> tokens;
    int64_t cost = 0;
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
  Fuel& fuel() const { return machine_.exprs().fuel(); }
  Machine& fresh_walker();
  // Null where the fuel does not suffice.
  const Local* local(ExprId state);
  Local made_local(ExprId state);
  void walk(const TokenTrie& trie, uint32_t node, ConfigId config, Found& found,
            std::vector<uint32_t>* escapes);
  bool takes_plain(ConfigId config);
  bool plain_body(ExprId state, Repeated* body) const;
  bool from_endless(const Repeated& body, Local& made);
  void add(const Local& local, StackId stack, std::span<uint32_t> out);
  void leave(const Local& inside, StackId stack, Found& found);
  void leave_endless(const Local& endless, StackId stack, std::span<uint32_t> out);
  void keep_whole(ConfigId config, std::span<const uint32_t> words, int64_t cost);

  const Machine& machine_;
  std::optional<Machine> walker_;  // the machine of the present walk
  const Vocabulary& vocabulary_;
  std::vector<ExprId> plain_;
  std::unordered_map<ExprId, Local> local_;
  std::unordered_map<ConfigId, Whole> whole_;
  // The tokens that leave a string of bounded length, whatever the bound.
  std::map<std::pair<const Local*, StackId>, Leaving> leaving_;
  // One for each configuration of walker_: 0 (unknown), or 1 + the answer.
  std::vector<uint8_t> takes_plain_;
  std::vector<uint32_t> scratch_;  // a mask
  std::vector<ConfigId> path_;
  uint16_t reach_ = 0;  // the deepest node of the last walk
  size_t bytes_ = 0;
};

}  // namespace skiff::grammar
