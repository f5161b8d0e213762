// draft/settings.h -- how tokens are drafted, as plain values.
#pragma once
#include <optional>
#include <string>

#include "message/draft_check.h"

namespace skiff::draft {

// The most drafts of one sequence in one step.
inline constexpr int kMaxTokens = 16;

struct Settings {
  std::string method;  // a name in methods() of draft/methods.h
  int tokens = 5;      // the most drafts of one sequence in one step, in [1, kMaxTokens]
  // ngram: how many of the last tokens are looked up, the most first; 1 <= min <= max <=
  // kMaxNgram.
  int min_ngram = 2, max_ngram = 5;
  // suffix: the longest match that is told from longer ones, and the drafts for each of its tokens.
  int max_depth = 64;
  double max_factor = 1;
  // draft_model: the folder of the model whose tokens are drafts. mtp: that of the module, or empty
  // if it is beside the model (model/mtp.h). eagle, eagle3: that of the head (model/eagle.h).
  std::string model = {};
  // Methods with weights: how those are quantized while they are loaded, as --quantization names
  // it; empty: they are not.
  std::string quantization = {};
  // draft_model: among how many ranks it is cut, where several compute the served model: 1, or as
  // many as that has; 0 means as many. With 1 every rank computes all of it.
  int ranks = 0;
  DraftCheck check = {};
  // For benchmarks: a draft is kept with this probability, in [0, 1], whatever the model says.
  std::optional<double> forced_rate = {};
  // mtp: so many drafts come from the module, in [1, tokens], and what followed the same tokens in
  // the text is appended to them, as ngram finds it; 0: all come from the module.
  int model_steps = 0;
  // Methods with weights: requests may ask for log-probabilities of drafts.
  bool logprobs = false;
  int model_tokens() const { return model_steps > 0 ? model_steps : tokens; }
  bool then_ngram() const { return model_tokens() < tokens; }
  bool operator==(const Settings&) const = default;
};

inline constexpr int kMaxNgram = 32;

}  // namespace skiff::draft
