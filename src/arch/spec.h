// arch/spec.h -- what a decoder is, as data. It includes no other header of this project.
#pragma once
#include <string>
#include <variant>
#include <vector>

namespace skiff {

// Llama 3.1 scales rope by frequency: wavelengths above original_ctx / low_factor are stretched by
// `factor`, those below original_ctx / high_factor are kept, and those between are interpolated.
struct Llama3Scaling {
  float factor = 8, low_factor = 1, high_factor = 4;
  int original_ctx = 8192;
  bool operator==(const Llama3Scaling&) const = default;
};
struct LinearScaling {
  float factor = 1;  // positions are divided by it
  bool operator==(const LinearScaling&) const = default;
};
// Each pair of dimensions is slowed by a factor of its own, as GGUF's "rope_freqs" say; dim / 2 of
// them.
struct FactorScaling {
  std::vector<float> factors;
  bool operator==(const FactorScaling&) const = default;
};
// YaRN (Peng et al. 2023, "YaRN: Efficient Context Window Extension"). Pairs that turn more than
// beta_fast times within original_ctx positions keep their speed, those that turn less than
// beta_slow times are slowed by `factor`, and those between are interpolated.
struct YarnScaling {
  float factor = 1;
  float beta_fast = 32, beta_slow = 1;
  int original_ctx = 4096;
  float attention_factor = 1;  // every cosine and sine is multiplied by it: see rope_gain()
  bool operator==(const YarnScaling&) const = default;
};
using RopeScaling =
    std::variant<std::monostate, LinearScaling, Llama3Scaling, FactorScaling, YarnScaling>;

struct Rope {
  float theta = 1e4f;
  int dim = 0;               // rotated dimensions of each head; even
  bool interleaved = false;  // pairs (2i, 2i+1) as in GPT-J; else (i, i + dim/2)
  RopeScaling scaling;
  bool operator==(const Rope&) const = default;
};

// Token mixers. A flag belongs to the only kind that it has a meaning for.
struct Gqa {
  int heads = 0, kv_heads = 0, head_dim = 0;
  Rope rope;
  bool qkv_bias = false, out_bias = false;
  bool qk_norm = false;  // RMS norm of every q and k head before rope
  int window = 0;        // a row sees the last `window` positions, itself included; 0: all
};

// Multi-head latent attention (DeepSeek-V2, 2024). Keys and values of all heads are projections of
// one latent vector for each token, of which the cache holds the normalized form, kv_rank elements,
// and after it one key of rope_dim elements that is rotated and that all heads share. A query head
// has nope_dim elements, then rope_dim that are rotated.
struct Mla {
  int heads = 0;
  int q_rank = 0;  // queries are projections of a vector of this width; 0: of the input itself
  int kv_rank = 0;
  int nope_dim = 0, rope_dim = 0, v_dim = 0;
  Rope rope;        // rope.dim == rope_dim
  float scale = 1;  // scores are multiplied by it

  int q_dim() const { return nope_dim + rope_dim; }
  int cached_dim() const { return kv_rank + rope_dim; }
};

enum class Act { kSilu, kGelu };

// Experts in `count` equal groups, in order, of which a token may use the `keep` best alone
// (DeepSeek-V2). The default restricts nothing.
struct ExpertGroups {
  // What a group is judged by: its highest score, or the sum of its two highest.
  enum Judge { kBest, kTwoBest };
  int count = 1, keep = 1;
  Judge judge = kBest;
};

struct Router {
  enum Score { kSoftmax, kSigmoid };  // what a logit becomes, over all experts or by itself

  int experts = 0, top_k = 0;
  Score score = kSoftmax;
  ExpertGroups groups;
  bool renorm = true;  // chosen weights are divided by their sum
  float factor = 1;    // chosen weights are multiplied by it, after they were divided
  bool bias = false;   // a correction bias takes part in choosing, not in weighing
  int always = 0;      // experts after the routed ones that every token uses, with weight 1
  // Weights of experts [before, experts - behind) are here. Other ranks have the rest and add what
  // they compute (arch/shard.h). The router's logits cover all experts on every rank.
  int before = 0, behind = 0;

  int here() const { return experts - before - behind; }
  int total() const { return here() + always; }  // matrices of the stacks of weights
  int per_token() const { return top_k + always; }
  // The most experts of a token that are computed here.
  int most_per_token() const { return (top_k < here() ? top_k : here()) + always; }
  // Returns the place of a routed expert in the stacks of weights; -1: it is not here.
  int place_of(int expert) const {
    const int place = expert - before;
    return place >= 0 && place < here() ? place : -1;
  }
};

// Feed-forward kinds.
struct Dense {
  int width = 0;
  Act act = Act::kSilu;
  bool bias = false;
};
struct Moe {
  Router router;
  int width = 0;         // width of each expert, also of those that are always on
  int shared_width = 0;  // width of one more expert that every token uses, with weight 1; 0: none
  Act act = Act::kSilu;
  // What each of several ranks gets of the routed experts: a slice of every one's width, or some of
  // them whole.
  enum Deal { kSlices, kWhole } deal = kSlices;
  // Replicas that share the routed experts, each with some of them (Router::before and behind): the
  // rows of all are routed and computed here. 1: there are no rows but this one's.
  int sharers = 1;
};

using Mixer = std::variant<Gqa, Mla>;
using FeedForward = std::variant<Dense, Moe>;

struct Layer {
  Mixer mixer;
  FeedForward ffn;
};

// What a decoder computes from rows behind its last norm: logits of the vocabulary, scores of
// classes, or nothing.
enum class HeadKind { kVocab, kClasses, kNone };

struct ModelSpec {
  std::string arch;
  int hidden = 0, vocab = 0, max_context = 0;
  float eps = 1e-6f;
  bool tied_head = false;
  std::vector<Layer> layers;
  int extra_layers =
      0;                // layers behind these in the checkpoint, which predict further tokens (MTP)
  int first_layer = 0;  // the number that the checkpoint has for the first of `layers`
  // The spec is that of such a module. The input of a row is the embedding of its token joined with
  // a hidden row of the model that the module drafts for, whose embedding it shares.
  bool joins = false;
  HeadKind head = HeadKind::kVocab;
  int classes = 0;  // with kClasses
  // With kClasses: the scores are of another row, relu(W x + b) of this width; 0: of the row
  // itself.
  int score_width = 0;
  // How a module joins the two, and which row of its own takes the hidden row's place for further
  // drafts.
  enum Join {
    // MTP (DeepSeek-AI 2024, "DeepSeek-V3", 2.2): a projection of both, each behind a norm. The row
    // behind the last norm.
    kNormed,
    // EAGLE (Li et al. 2024): a projection of both as they are; the first layer has no norm before
    // its mixer, and there is no last norm. The row behind the last layer.
    kPlain,
    // EAGLE 3 (Li et al. 2025): both side by side, each behind a norm, are what the first mixer
    // takes, and the hidden row alone begins the residual. The row behind the last layer, before
    // the last norm. The hidden rows of the served model are projections of `join_rows` of its
    // rows, and the head is the module's own, of `draft_vocab` tokens.
    kBeside,
  } join = kNormed;
  bool join_bias = false;  // whether the projection of kinds that join has a bias
  int join_rows = 1, draft_vocab = 0;
  // The layers before which a served model shows its residual to a module with kBeside. An entry
  // that equals the number of layers means the residual behind the last layer.
  std::vector<int> taps;

  // Returns how many numbers the head gives for a row.
  int head_rows() const {
    if (head == HeadKind::kClasses) return classes;
    return head == HeadKind::kNone ? 0 : draft_vocab > 0 ? draft_vocab : vocab;
  }
};

// The angle by which each pair of dimensions turns from one position to the next, in radians: dim /
// 2 values, computed in float as the published implementations do.
std::vector<float> rope_frequencies(const Rope& rope);
// What the cosines and sines of all angles are multiplied by.
float rope_gain(const Rope& rope);

}  // namespace skiff
