// serve/service/service_config.h -- the configuration of a service over an engine.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "message/request.h"
#include "serve/service/admission_ledger.h"
#include "serve/service/pooled_model.h"
#include "text/answer/answer_format.h"

namespace skiff::service {

struct ServiceConfig {
  std::string model_name;  // label of the metrics
  int max_model_len = 0;   // tokens, prompt and output together
  int vocab_size = 0;      // size of the model's logits; 0: the tokenizer's
  std::vector<Token> eos;  // any of these ends a reply
  int max_logprobs = 20;   // most log-probabilities per position; -1: any number
  int max_num_seqs = 0;    // sum over all replicas, for the metrics
  // Replicas whose requests have metrics of their own, because clients choose the replica; those
  // that are for none count for the first one. 0: all requests are counted together.
  int replicas_apart = 0;
  // The most drafts of a sequence in one step; 0: no tokens are drafted, and the reference of a
  // request has no effect.
  int drafts = 0;
  bool draft_logprobs = false;  // requests may ask for log-probabilities of drafts
  double stuck_seconds = 30;    // time without progress while work waits that counts as unhealthy
  // The seeds of requests that give none are counted up from here; 0: from a random number.
  uint64_t seed = 0;
  AdmissionLimits admission;
  answer::AnswerFormats answer;       // how the model writes reasoning and tool calls
  std::optional<PooledModel> pooled;  // set: every request is pooled
  bool prefill_only = false;          // a request names who goes on, and a reply has one token
  bool decode_only = false;           // a request may name who computes its prompt
  bool constraints = true;            // false: requests with a constraint are refused
  bool constraint_space = true;       // false: JSON has no whitespace between its tokens
  bool constrain_reasoning = false;   // true: a constraint holds from the first token of a reply
  // Most log-probabilities that the replies to one call may hold together; 0: any number.
  int64_t max_reply_logprobs = int64_t{4} << 20;
  std::map<std::string, std::string> cache_info;  // labels of the metric cache_config_info
};

}  // namespace skiff::service
