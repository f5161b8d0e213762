#include "serve/paddle/request.h"

#include <algorithm>
#include <limits>

#include "base/log.h"
#include "serve/openai/prompt.h"
#include "serve/openai/values.h"

namespace skiff::paddle {
namespace {

using openai::described;

constexpr int64_t kMaxCount = std::numeric_limits<int>::max();
constexpr size_t kMaxName = 256;  // bytes of req_id

// What has been read so far.
struct Draft {
  PaddleCall call;
  const OrderedJson* text = nullptr;
  const OrderedJson* messages = nullptr;
  const OrderedJson* input_ids = nullptr;
  std::string system;
  int max_dec_len = 0, seq_len = 0, max_tokens = 0;  // in the order of precedence; 0: absent
  std::vector<std::string> problems;

  void refuse(std::string problem) { problems.push_back(std::move(problem)); }
};

using Reader = void (*)(std::string_view name, const OrderedJson& value, Draft& draft);

struct Field {
  std::string_view name;
  bool only_here;  // OpenAI's API has no field of that name
  Reader read;
};

int read_length(std::string_view name, const OrderedJson& value, Draft& draft) {
  const auto length = openai::as_integer(value);
  if (!length || *length < 1 || *length > kMaxCount) {
    draft.refuse(fmt::format("The `{}` must be an integer and greater than 0", name));
    return 0;
  }
  return static_cast<int>(*length);
}

template <class T>
void read_number(std::string_view name, const OrderedJson& value, double low, double high,
                 Draft& draft, T& out) {
  double number = 0;
  if (openai::read_number(value, low, high, number))
    return draft.refuse(fmt::format("The `{}` must be a number in [{}, {}], but is {}", name, low,
                                    high, described(value)));
  out = static_cast<T>(number);
}

// 0 and 1 count, too: pydantic reads them so.
void read_boolean(std::string_view name, const OrderedJson& value, Draft& draft, bool& out) {
  if (value.is_boolean()) {
    out = value.get<bool>();
  } else if (value == 0 || value == 1) {
    out = value == 1;
  } else {
    draft.refuse(fmt::format("The `{}` must be a boolean", name));
  }
}

void read_text(std::string_view name, const OrderedJson& value, Draft& draft, std::string& out) {
  if (openai::read_string(value, out))
    draft.refuse(fmt::format("The `{}` in input parameters must be a string", name));
}

void read_req_id(std::string_view name, const OrderedJson& value, Draft& draft) {
  std::string& id = draft.call.req_id;
  if (openai::read_string(value, id) || id.empty() || id.size() > kMaxName) {
    draft.refuse(fmt::format("The `{}` must be a string of 1 to {} bytes", name, kMaxName));
    id.clear();
  }
}

void read_prompt(std::string_view name, const OrderedJson& value, Draft& draft) {
  if (!value.is_string())
    return draft.refuse(fmt::format("The `{}` in input parameters must be a string", name));
  if (value.get_ref<const std::string&>().empty())
    return draft.refuse(fmt::format("The `{}` in input parameters cannot be empty", name));
  draft.text = &value;
}

void read_messages(std::string_view, const OrderedJson& value, Draft& draft) {
  if (!value.is_array() || value.empty())
    return draft.refuse("The `messages` in input parameters must be a list, and not empty");
  for (const OrderedJson& message : value)
    if (!message.is_object() || !message.contains("content"))
      return draft.refuse("The item in messages must include `content`");
  draft.messages = &value;
}

void read_input_ids(std::string_view name, const OrderedJson& value, Draft& draft) {
  if (!value.is_array())
    return draft.refuse(fmt::format("The `{}` in input parameters must be a list", name));
  if (!value.empty()) draft.input_ids = &value;  // an empty list counts as absent
}

void read_top_p(std::string_view name, const OrderedJson& value, Draft& draft) {
  double top_p = 0;
  if (openai::read_number(value, 0, 1, top_p))
    return draft.refuse(fmt::format("The `{}` must be in [0, 1]", name));
  draft.call.request.params.top_p = static_cast<float>(top_p);
}

void read_temperature(std::string_view name, const OrderedJson& value, Draft& draft) {
  double temperature = 0;
  if (openai::read_number(value, 0, 1e6, temperature))
    return draft.refuse(fmt::format("The `{}` must be >= 0", name));
  draft.call.request.params.temperature = static_cast<float>(temperature);
}

void read_seed(std::string_view name, const OrderedJson& value, Draft& draft) {
  const auto seed = openai::as_integer(value);
  if (!seed) return draft.refuse(fmt::format("The `{}` must be an integer", name));
  draft.call.request.params.seed = static_cast<uint64_t>(*seed);
  draft.call.request.seed_given = true;
}

// One id, alone or in a list; the list [null], which PaddleNLP's client sends, counts as absent.
void read_eos(std::string_view name, const OrderedJson& value, Draft& draft) {
  if (value == OrderedJson::array({nullptr})) return;
  std::vector<Token> ids;
  const OrderedJson list = value.is_array() ? value : OrderedJson::array({value});
  if (openai::read_token_ids(list, ids))
    return draft.refuse(fmt::format("The `{}` must be an list", name));
  if (ids.size() > 1)
    return draft.refuse(fmt::format("The length of `{}` must be 1 if you set it", name));
  draft.call.request.stop.tokens = std::move(ids);
}

void read_stops(std::string_view name, const OrderedJson& value, Draft& draft) {
  if (const auto problem = openai::read_strings(value, draft.call.request.stop_strings))
    draft.refuse(fmt::format("The `{}` {}", name, problem->what));
}

void read_timeout(std::string_view name, const OrderedJson& value, Draft& draft) {
  read_number(name, value, 0.001, 604800, draft, draft.call.token_seconds);
}

void read_truncation(std::string_view name, const OrderedJson& value, Draft& draft) {
  bool truncate = false;
  read_boolean(name, value, draft, truncate);
  if (truncate) draft.call.request.truncate_prompt = -1;
}

void read_response_type(std::string_view name, const OrderedJson& value, Draft& draft) {
  if (value == "fastdeploy" || value == "FastDeploy") return;
  if (value == "openai" || value == "OpenAI")
    return draft.refuse(
        fmt::format("The `{}` openai is not supported here; send OpenAI's own fields to "
                    "/v1/chat/completions instead",
                    name));
  draft.refuse(fmt::format("The `{}` must be either `fastdeploy` or `openai`.", name));
}

#define NUMBER(low, high, target)                                                 \
  [](std::string_view name, const OrderedJson& value, Draft& draft) {             \
    read_number(name, value, low, high, draft, draft.call.request.params.target); \
  }
#define LENGTH(target)                                                \
  [](std::string_view name, const OrderedJson& value, Draft& draft) { \
    draft.target = read_length(name, value, draft);                   \
  }
#define BOOLEAN(target)                                               \
  [](std::string_view name, const OrderedJson& value, Draft& draft) { \
    read_boolean(name, value, draft, draft.call.target);              \
  }
#define TEXT(target)                                                  \
  [](std::string_view name, const OrderedJson& value, Draft& draft) { \
    read_text(name, value, draft, draft.target);                      \
  }

constexpr bool kOnlyHere = true, kOpenAiToo = false;

constexpr Field kFields[] = {
    {"req_id", kOnlyHere, read_req_id},
    {"text", kOnlyHere, read_prompt},
    {"prompt", kOpenAiToo, read_prompt},
    {"input_ids", kOnlyHere, read_input_ids},
    {"messages", kOpenAiToo, read_messages},
    {"system", kOnlyHere, TEXT(system)},
    {"model", kOpenAiToo, TEXT(call.model)},
    {"max_dec_len", kOnlyHere, LENGTH(max_dec_len)},
    {"seq_len", kOnlyHere, LENGTH(seq_len)},
    {"max_tokens", kOpenAiToo, LENGTH(max_tokens)},
    {"min_dec_len", kOnlyHere, LENGTH(call.request.params.min_tokens)},
    {"topp", kOnlyHere, read_top_p},
    {"top_p", kOpenAiToo, read_top_p},
    {"temperature", kOpenAiToo, read_temperature},
    {"penalty_score", kOnlyHere, NUMBER(1e-6, 1e6, repetition)},
    {"repetition_penalty", kOpenAiToo, NUMBER(1e-6, 1e6, repetition)},
    {"frequency_score", kOnlyHere, NUMBER(-2, 2, frequency)},
    {"frequency_penalty", kOpenAiToo, NUMBER(-2, 2, frequency)},
    {"presence_score", kOnlyHere, NUMBER(-2, 2, presence)},
    {"presence_penalty", kOpenAiToo, NUMBER(-2, 2, presence)},
    {"infer_seed", kOnlyHere, read_seed},
    {"seed", kOpenAiToo, read_seed},
    {"eos_token_ids", kOnlyHere, read_eos},
    {"stop_sequences", kOnlyHere, read_stops},
    {"stop", kOpenAiToo, read_stops},
    {"enable_text_truncate", kOnlyHere, read_truncation},
    {"response_type", kOnlyHere, read_response_type},
    {"return_all_tokens", kOnlyHere, BOOLEAN(return_all_tokens)},
    {"return_usage", kOnlyHere, BOOLEAN(return_usage)},
    {"benchmark", kOnlyHere, BOOLEAN(benchmark)},
    {"stream", kOpenAiToo, BOOLEAN(stream)},
    {"timeout", kOpenAiToo, read_timeout},
    {"response_timeout", kOnlyHere, read_timeout},
};

#undef NUMBER
#undef LENGTH
#undef BOOLEAN
#undef TEXT

const Field* find_field(std::string_view name) {
  const auto* found = std::ranges::find(kFields, name, &Field::name);
  return found == std::end(kFields) ? nullptr : found;
}

bool has(const OrderedJson& body, const char* name) {
  const auto found = body.find(name);
  return found != body.end() && !found->is_null();
}

// Two names of one thing.
void refuse_pairs(const OrderedJson& body, Draft& draft) {
  static constexpr std::pair<const char*, const char*> kPairs[] = {
      {"topp", "top_p"},
      {"infer_seed", "seed"},
      {"text", "prompt"},
      {"penalty_score", "repetition_penalty"},
      {"frequency_score", "frequency_penalty"},
      {"presence_score", "presence_penalty"},
      {"stop_sequences", "stop"}};
  for (const auto& [one, other] : kPairs)
    if (has(body, one) && has(body, other))
      draft.refuse(fmt::format("Only one of ('{}', '{}') should be set", one, other));
}

void note_unknown(PaddleCall& call, const std::string& name) {
  constexpr size_t kMaxNames = 16, kMaxBytes = 64;
  if (call.unknown_fields.size() < kMaxNames)
    call.unknown_fields.push_back(name.substr(0, kMaxBytes));
}

void resolve_lengths(const PaddleConfig& config, Draft& draft) {
  int& most = draft.call.request.stop.max_tokens;
  const int asked = draft.max_dec_len ? draft.max_dec_len
                    : draft.seq_len   ? draft.seq_len
                                      : draft.max_tokens;
  if (config.max_dec_len > 0 && asked > config.max_dec_len)
    draft.refuse(fmt::format("The parameter max_dec_len({}) exceeds the limit MAX_DEC_LEN({}).",
                             asked, config.max_dec_len));
  most = asked > 0 ? asked : config.max_dec_len;
  const int least = draft.call.request.params.min_tokens;
  if (most > 0 && least > most)
    draft.refuse(
        fmt::format("The `min_dec_len` ({}) must not exceed the `max_dec_len` ({})", least, most));
}

OrderedJson message(const char* role, std::string content) {
  return {{"role", role}, {"content", std::move(content)}};
}

void set_conversation(OrderedJson messages, Draft& draft) {
  const auto is_system = [](const OrderedJson& one) { return one.at("role") == "system"; };
  if (!draft.system.empty() && std::ranges::none_of(messages, is_system))
    messages.insert(messages.begin(), message("system", draft.system));
  text::Conversation conversation;
  conversation.messages = std::move(messages);
  draft.call.request.input = std::move(conversation);
}

void resolve_input(const PaddleConfig& config, Draft& draft) {
  service::Request& request = draft.call.request;
  if (draft.input_ids) {
    std::vector<Token> ids;
    if (const auto problem = openai::read_token_ids(*draft.input_ids, ids))
      return draft.refuse("The `input_ids` in input parameters " + problem->what);
    request.input = std::move(ids);
  } else if (draft.text && !config.chat_template) {
    request.input = draft.text->get<std::string>();
    if (!draft.system.empty())
      draft.refuse("The `system` needs a chat template, which this model does not have");
  } else if (draft.text) {
    set_conversation(OrderedJson::array({message("user", draft.text->get<std::string>())}), draft);
  } else if (draft.messages) {
    if (!config.chat_template) return draft.refuse("This model does not support chat_template.");
    auto checked = openai::read_message_list(*draft.messages);
    if (!checked) return draft.refuse(checked.error().what);
    set_conversation(std::move(*checked), draft);
  } else if (draft.problems.empty()) {
    draft.refuse("The input parameters should contain either `text`, `input_ids` or `messages`");
  }
}

std::string joined(const std::vector<std::string>& problems) {
  std::string all;
  for (const std::string& problem : problems) (all += all.empty() ? "" : "; ") += problem;
  return all;
}

}  // namespace

bool is_paddle_request(const OrderedJson& body) {
  if (!body.is_object()) return false;
  for (const auto& [name, value] : body.items()) {
    const Field* field = find_field(name);
    if (field && field->only_here && !value.is_null()) return true;
  }
  return false;
}

Result<PaddleCall> parse_paddle_call(const OrderedJson& body, const std::string& req_id,
                                     const PaddleConfig& config) {
  if (!body.is_object())
    return Error{Code::kInvalid, "The request must be a JSON object, but is " + described(body)};
  Draft draft;
  draft.call.req_id = req_id;
  draft.call.request.params.temperature = 0.95F;
  draft.call.request.params.top_p = 0.7F;
  draft.call.request.params.min_tokens = 1;
  for (const auto& [name, value] : body.items()) {
    const Field* field = find_field(name);
    if (!field)
      note_unknown(draft.call, name);
    else if (!value.is_null())
      field->read(name, value, draft);
  }
  refuse_pairs(body, draft);
  resolve_lengths(config, draft);
  resolve_input(config, draft);
  if (!draft.problems.empty()) return Error{Code::kInvalid, joined(draft.problems)};
  return std::move(draft.call);
}

}  // namespace skiff::paddle
