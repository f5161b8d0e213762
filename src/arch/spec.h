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
using RopeScaling = std::variant<std::monostate, LinearScaling, Llama3Scaling, FactorScaling>;

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

enum class Act { kSilu, kGelu };
struct Router {
  int experts = 0, top_k = 0;
  bool renorm = true;  // chosen weights are divided by their sum
  bool bias = false;   // a correction bias takes part in choosing, not in weighing
  int always = 0;      // experts after the routed ones that every token uses, with weight 1

  int total() const { return experts + always; }
  int per_token() const { return top_k + always; }
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
};

using Mixer = std::variant<Gqa>;
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
  HeadKind head = HeadKind::kVocab;
  int classes = 0;  // with kClasses

  // Returns how many numbers the head gives for a row.
  int head_rows() const {
    return head == HeadKind::kVocab ? vocab : head == HeadKind::kClasses ? classes : 0;
  }
};

// The angle by which each pair of dimensions turns from one position to the next, in radians: dim /
// 2 values, computed in float as the published implementations do.
std::vector<float> rope_frequencies(const Rope& rope);

}  // namespace skiff
