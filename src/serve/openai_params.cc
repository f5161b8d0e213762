#include "serve/openai_params.h"

#include <cmath>
#include <functional>
#include <limits>
#include <optional>

#include "serve/openai_prompt.h"

namespace skiff {
namespace {

using Problem = std::optional<std::string>;  // what is wrong with a value
using Reader = std::function<Problem(const OrderedJson&, OpenAiCall&)>;

enum Where { kBoth, kChatOnly, kCompletionsOnly };

struct Field {
  const char* name;
  Where where;
  Reader read;
};

constexpr double kFloatMax = 3e38;
constexpr int64_t kIntMax = std::numeric_limits<int>::max();

template <class Set>
Reader number(double low, double high, Set set) {
  return [=](const OrderedJson& value, OpenAiCall& call) -> Problem {
    if (!value.is_number()) return "must be a number";
    const double x = value.get<double>();
    if (!(x >= low && x <= high))
      return fmt::format("must be in [{}, {}], but is {}", low, high, x);
    set(call, x);
    return std::nullopt;
  };
}

// Integers as JSON has them; 3.0 is one, 3.5 and "3" are not.
std::optional<int64_t> as_integer(const OrderedJson& value) {
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
    return std::nullopt;
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double x = value.get<double>();
  if (std::trunc(x) != x || std::abs(x) > 9e15) return std::nullopt;
  return static_cast<int64_t>(x);
}

template <class Set>
Reader integer(int64_t low, int64_t high, Set set) {
  return [=](const OrderedJson& value, OpenAiCall& call) -> Problem {
    const auto x = as_integer(value);
    if (!x) return "must be an integer";
    if (*x < low || *x > high) return fmt::format("must be in [{}, {}], but is {}", low, high, *x);
    set(call, *x);
    return std::nullopt;
  };
}

template <class Set>
Reader boolean(Set set) {
  return [=](const OrderedJson& value, OpenAiCall& call) -> Problem {
    if (!value.is_boolean()) return "must be true or false";
    set(call, value.get<bool>());
    return std::nullopt;
  };
}

template <class Set>
Reader string(Set set) {
  return [=](const OrderedJson& value, OpenAiCall& call) -> Problem {
    if (!value.is_string()) return "must be a string";
    set(call, value.get<std::string>());
    return std::nullopt;
  };
}

Problem read_strings(const OrderedJson& value, std::vector<std::string>& out) {
  if (value.is_string()) {
    out = {value.get<std::string>()};
    return std::nullopt;
  }
  if (!value.is_array()) return "must be a string or a list of strings";
  out.clear();
  for (const OrderedJson& item : value) {
    if (!item.is_string()) return "must be a string or a list of strings";
    out.push_back(item.get<std::string>());
  }
  return std::nullopt;
}

Problem read_bad_tokens(const OrderedJson& value, OpenAiCall& call) {
  if (!value.is_array()) return "must be a list of token ids, or of lists of them";
  for (const OrderedJson& item : value) {
    std::vector<Token> word;
    if (item.is_array()) {
      if (!read_token_ids(item, word)) return "must be a list of token ids, or of lists of them";
    } else if (!read_token_ids(OrderedJson::array({item}), word)) {
      return "must be a list of token ids, or of lists of them";
    }
    call.request.params.bad_words.push_back(std::move(word));
  }
  return std::nullopt;
}

Problem read_logit_bias(const OrderedJson& value, OpenAiCall& call) {
  if (!value.is_object()) return "must be an object from token id to bias";
  for (const auto& [key, bias] : value.items()) {
    char* end = nullptr;
    errno = 0;
    const long long id = std::strtoll(key.c_str(), &end, 10);
    const bool digits = !key.empty() && key[0] >= '0' && key[0] <= '9';
    if (!digits || *end != '\0' || errno != 0 || id > kIntMax)
      return "must be an object whose keys are token ids";
    if (!bias.is_number()) return "must be an object whose values are numbers";
    const double x = bias.get<double>();
    if (!(x >= -100 && x <= 100)) return fmt::format("has a bias outside [-100, 100]: {}", x);
    call.request.params.logit_bias.emplace_back(static_cast<Token>(id), static_cast<float>(x));
  }
  return std::nullopt;
}

Problem read_processor_args(const OrderedJson& value, OpenAiCall& call) {
  if (!value.is_object()) return "must be an object";
  for (const auto& [key, args] : value.items()) {
    if (key != "logit_bias") return "has \"" + key + "\", which is not supported";
    if (auto problem = read_logit_bias(args, call)) return "logit_bias " + *problem;
  }
  return std::nullopt;
}

Problem read_stream_options(const OrderedJson& value, OpenAiCall& call) {
  if (!value.is_object()) return "must be an object";
  call.has_stream_options = true;
  call.include_usage = true;  // FastDeploy's default once there are options
  for (const auto& [key, target] : {std::pair{"include_usage", &call.include_usage},
                                    std::pair{"continuous_usage_stats", &call.continuous_usage},
                                    std::pair{"include_obfuscation", &call.obfuscate}}) {
    const auto found = value.find(key);
    if (found == value.end() || found->is_null()) continue;
    if (!found->is_boolean()) return fmt::format("{} must be true or false", key);
    *target = found->get<bool>();
  }
  return std::nullopt;
}

Problem read_response_format(const OrderedJson& value, OpenAiCall&) {
  const auto type = value.is_object() ? value.find("type") : value.end();
  if (!value.is_object() || type == value.end() || !type->is_string())
    return "must be an object with a \"type\"";
  if (*type == "text") return std::nullopt;
  return "of type " + type->dump() + " is not supported; only \"text\" is";
}

Problem read_tool_choice(const OrderedJson& value, OpenAiCall& call) {
  if (value == "auto") return std::nullopt;
  if (value == "none") {
    call.use_tools = false;
    return std::nullopt;
  }
  return "must be \"auto\" or \"none\": a tool call cannot be forced";
}

Problem read_template_kwargs(const OrderedJson& value, OpenAiCall& call) {
  if (!value.is_object()) return "must be an object";
  for (const char* reserved : {"messages", "tools", "add_generation_prompt", "tokenize",
                               "chat_template", "bos_token", "eos_token"})
    if (value.contains(reserved)) return fmt::format("must not set \"{}\"", reserved);
  call.conversation.kwargs = value;
  return std::nullopt;
}

// `-1` asks for the whole vocabulary.
int logprob_count(int64_t x) { return x < 0 ? kAllLogprobs : static_cast<int>(x); }

Problem refuse(const OrderedJson&, OpenAiCall&) { return "is not supported by this server"; }

Problem read_false(const OrderedJson& value, OpenAiCall&) {
  if (value == false) return std::nullopt;
  return "is not supported by this server";
}

#define SET(target)                                                \
  [](OpenAiCall& call, auto value) {                               \
    (target) = static_cast<std::decay_t<decltype(target)>>(value); \
  }

const std::vector<Field>& fields() {
  static const std::vector<Field> table{
      {"model", kBoth, string(SET(call.model))},
      {"temperature", kBoth, number(0, 1e6, SET(call.request.params.temperature))},
      {"top_p", kBoth, number(0, 1, SET(call.request.params.top_p))},
      {"top_k", kBoth, integer(-1, kIntMax, SET(call.request.params.top_k))},
      {"min_p", kBoth, number(0, 1, SET(call.request.params.min_p))},
      {"repetition_penalty", kBoth, number(1e-6, 1e6, SET(call.request.params.repetition))},
      {"presence_penalty", kBoth, number(-2, 2, SET(call.request.params.presence))},
      {"frequency_penalty", kBoth, number(-2, 2, SET(call.request.params.frequency))},
      {"seed", kBoth,
       integer(std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(),
               [](OpenAiCall& call, int64_t seed) {
                 call.request.params.seed = static_cast<uint64_t>(seed);
                 call.request.seed_given = true;
               })},
      {"n", kBoth, integer(1, Service::kMaxN, SET(call.request.n))},
      {"best_of", kBoth, integer(1, Service::kMaxN, SET(call.best_of))},
      {"max_tokens", kChatOnly,
       integer(1, kIntMax,
               [](OpenAiCall& call, int64_t most) {
                 if (!call.has_max_completion_tokens)
                   call.request.stop.max_tokens = static_cast<int>(most);
               })},
      {"max_tokens", kCompletionsOnly,
       integer(0, kIntMax,
               [](OpenAiCall& call, int64_t most) {
                 call.discard_output = most == 0;
                 call.request.stop.max_tokens = most == 0 ? 1 : static_cast<int>(most);
               })},
      {"max_completion_tokens", kChatOnly,
       integer(1, kIntMax,
               [](OpenAiCall& call, int64_t most) {
                 call.has_max_completion_tokens = true;
                 call.request.stop.max_tokens = static_cast<int>(most);
               })},
      {"min_tokens", kBoth, integer(0, kIntMax, SET(call.request.params.min_tokens))},
      {"stop", kBoth,
       [](const OrderedJson& v, OpenAiCall& c) { return read_strings(v, c.request.stop_strings); }},
      {"stop_token_ids", kBoth,
       [](const OrderedJson& v, OpenAiCall& c) -> Problem {
         if (read_token_ids(v, c.request.stop.tokens)) return std::nullopt;
         return "must be a list of token ids";
       }},
      {"include_stop_str_in_output", kBoth, boolean(SET(call.request.include_stop))},
      {"ignore_eos", kBoth, boolean(SET(call.request.ignore_eos))},
      {"skip_special_tokens", kBoth, boolean(SET(call.request.skip_special))},
      {"add_special_tokens", kCompletionsOnly, boolean(SET(call.request.add_special))},
      {"bad_words", kBoth,
       [](const OrderedJson& v, OpenAiCall& c) { return read_strings(v, c.request.bad_words); }},
      {"bad_words_token_ids", kBoth, read_bad_tokens},
      {"logit_bias", kBoth, read_logit_bias},
      {"logits_processors_args", kBoth, read_processor_args},
      {"priority", kBoth, integer(-kIntMax, kIntMax, SET(call.request.priority))},
      {"logprobs", kChatOnly, boolean(SET(call.logprobs))},
      {"top_logprobs", kChatOnly,
       integer(-1, kAllLogprobs,
               [](OpenAiCall& call, int64_t count) { call.top_logprobs = logprob_count(count); })},
      {"logprobs", kCompletionsOnly,
       integer(-1, kAllLogprobs,
               [](OpenAiCall& call, int64_t count) {
                 call.request.params.logprobs = logprob_count(count);
               })},
      {"prompt_logprobs", kBoth,
       integer(-1, kAllLogprobs,
               [](OpenAiCall& call, int64_t count) {
                 call.request.params.prompt_logprobs = logprob_count(count);
               })},
      {"stream", kBoth, boolean(SET(call.stream))},
      {"stream_options", kBoth, read_stream_options},
      {"echo", kCompletionsOnly, boolean(SET(call.echo))},
      {"max_streaming_response_tokens", kBoth, integer(1, kIntMax, SET(call.max_streaming_tokens))},
      {"return_token_ids", kBoth, boolean(SET(call.return_token_ids))},
      {"request_id", kBoth, string(SET(call.request_id))},
      {"user", kBoth, string([](OpenAiCall&, const std::string&) {})},
      {"metadata", kBoth,
       [](const OrderedJson& v, OpenAiCall&) -> Problem {
         if (v.is_object()) return std::nullopt;
         return "must be an object";
       }},
      {"prompt_token_ids", kBoth,
       [](const OrderedJson& v, OpenAiCall& c) -> Problem {
         if (read_token_ids(v, c.prompt_token_ids)) return std::nullopt;
         return "must be a list of token ids";
       }},
      {"tools", kChatOnly,
       [](const OrderedJson& v, OpenAiCall& c) { return read_tools(v, c.conversation); }},
      {"tool_choice", kChatOnly, read_tool_choice},
      {"chat_template", kChatOnly, string(SET(call.request.chat_template))},
      {"chat_template_kwargs", kChatOnly, read_template_kwargs},
      {"add_generation_prompt", kChatOnly, boolean(SET(call.conversation.add_generation_prompt))},
      {"disable_chat_template", kChatOnly, boolean(SET(call.raw_chat))},
      {"response_format", kBoth, read_response_format},
      {"guided_json", kBoth, refuse},
      {"guided_regex", kBoth, refuse},
      {"guided_choice", kBoth, refuse},
      {"guided_grammar", kBoth, refuse},
      {"structural_tag", kBoth, refuse},
      {"suffix", kCompletionsOnly, refuse},
      {"functions", kChatOnly, refuse},
      {"include_draft_logprobs", kBoth, read_false},
      {"use_beam_search", kBoth, read_false},
  };
  return table;
}
#undef SET

Error invalid(std::string field, std::string what) {
  return Error{Code::kInvalid, std::move(what), std::move(field)};
}

std::optional<Error> check_combinations(OpenAiCall& call, Endpoint endpoint) {
  if (call.has_stream_options && !call.stream)
    return invalid("stream_options", "Stream options can only be defined when `stream=True`.");
  if (call.best_of > 0 && call.best_of < call.request.n)
    return invalid("best_of", fmt::format("best_of must be at least n ({}), but is {}",
                                          call.request.n, call.best_of));
  if (call.best_of > call.request.n && call.stream)
    return invalid("best_of",
                   "best_of greater than n cannot be streamed: which reply is best is "
                   "known only at the end");
  SamplingParams& params = call.request.params;
  if (endpoint == Endpoint::kChat) {
    if (call.top_logprobs != kNoLogprobs && !call.logprobs)
      return invalid("top_logprobs", "when using `top_logprobs`, `logprobs` must be set to true.");
    if (call.logprobs) params.logprobs = std::max(call.top_logprobs, 0);
  }
  if (call.discard_output && !call.echo)
    return invalid("max_tokens", "max_tokens must be at least 1, unless echo is true");
  call.prompt_logprobs = params.prompt_logprobs != kNoLogprobs;
  if (call.echo && params.logprobs != kNoLogprobs && params.prompt_logprobs == kNoLogprobs)
    params.prompt_logprobs = params.logprobs;
  if (call.request_id.size() > 256)
    return invalid("request_id", "request_id is longer than 256 bytes");
  return std::nullopt;
}

}  // namespace

Result<OpenAiCall> parse_openai_call(const OrderedJson& body, Endpoint endpoint,
                                     const SamplingDefaults& defaults) {
  if (!body.is_object()) return invalid("", "the body must be a JSON object");
  OpenAiCall call;
  SamplingParams& params = call.request.params;
  params.temperature = defaults.temperature;
  params.top_p = defaults.top_p;
  params.top_k = defaults.top_k;
  params.min_p = defaults.min_p;
  params.repetition = defaults.repetition;
  const Where other = endpoint == Endpoint::kChat ? kCompletionsOnly : kChatOnly;
  for (const Field& field : fields()) {
    if (field.where == other) continue;
    const auto found = body.find(field.name);
    if (found == body.end() || found->is_null()) continue;
    if (auto problem = field.read(*found, call))
      return invalid(field.name, fmt::format("{} {}", field.name, *problem));
  }
  if (auto error = check_combinations(call, endpoint)) return *error;
  if (auto error =
          endpoint == Endpoint::kChat ? read_messages(body, call) : read_prompt(body, call))
    return *error;
  return call;
}

}  // namespace skiff
