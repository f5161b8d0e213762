#include "text/answer/answer_format.h"

#include <fmt/format.h>

#include <algorithm>

namespace skiff::answer {
namespace {

constexpr std::string_view kToolCall = "<tool_call>", kToolCallEnd = "</tool_call>";

// A section that holds calls from its first byte on.
CallFormat in_section(std::string_view name, Notation notation, std::string_view section,
                      std::string_view section_end) {
  return {.name = name, .notation = notation, .section = section, .section_end = section_end};
}

CallFormat deepseek(std::string_view name, std::string_view lead, std::string_view name_end,
                    std::string_view fence) {
  return {.name = name,
          .notation = Notation::kNamed,
          .section = "<｜tool▁calls▁begin｜>",
          .section_end = "<｜tool▁calls▁end｜>",
          .open = "<｜tool▁call▁begin｜>",
          .close = "<｜tool▁call▁end｜>",
          .lead = lead,
          .name_end = name_end,
          .fence = fence};
}

// <function=f> with arguments in tags.
CallFormat functions(std::string_view name, std::string_view section,
                     std::string_view section_end) {
  return {.name = name,
          .notation = Notation::kTagged,
          .section = section,
          .section_end = section_end,
          .open = "<function=",
          .close = "</function>",
          .name_end = ">",
          .key = "<parameter=",
          .key_end = ">",
          .value_end = "</parameter>",
          .may_lack_value_end = true};
}

// <invoke name="f"> with arguments in tags.
CallFormat invokes(std::string_view name, std::string_view section, std::string_view section_end) {
  return {.name = name,
          .notation = Notation::kTagged,
          .section = section,
          .section_end = section_end,
          .open = "<invoke name=\"",
          .close = "</invoke>",
          .name_end = "\">",
          .key = "<parameter name=\"",
          .key_end = "\">",
          .value_end = "</parameter>"};
}

// Calls in tags with DeepSeek's marks, where a parameter also says whether it is a string.
CallFormat dsml(std::string_view name, std::string_view section, std::string_view section_end) {
  return {.name = name,
          .notation = Notation::kTagged,
          .section = section,
          .section_end = section_end,
          .open = "<｜DSML｜invoke name=\"",
          .close = "</｜DSML｜invoke>",
          .name_end = "\">",
          .key = "<｜DSML｜parameter name=\"",
          .key_end = "\"",
          .value = ">",
          .value_end = "</｜DSML｜parameter>"};
}

// The mark alone may be something that the model thinks about.
CallFormat qwen_functions() {
  CallFormat out = functions("qwen3_coder", kToolCall, kToolCallEnd);
  out.ends_reasoning = "<tool_call>\n<function=";
  out.ends_reasoning_too = "<tool_call><function=";
  return out;
}

const std::vector<CallFormat>& call_table() {
  static const std::vector<CallFormat> table = {
      {.name = "hermes", .open = kToolCall, .close = kToolCallEnd},
      {.name = "longcat", .open = "<longcat_tool_call>", .close = "</longcat_tool_call>"},
      {.name = "granite-20b-fc", .open = "<function_call>"},
      // Version 3.1 has a mark of its own, version 3 a message of another role.
      {.name = "gigachat3",
       .open = "<|function_call|>",
       .open_too = "function call<|role_sep|>\n",
       .message_end = "<|message_sep|>\n\n"},
      {.name = "ernie-45-vl-thinking",
       .open = kToolCall,
       .close = kToolCallEnd,
       .only_at_start = true},
      {.name = "llama3_json",
       .section = "<|python_tag|>",
       .open = "{",
       .open_is_call = true,
       .only_at_start = true},
      {.name = "xlam", .open = "[", .open_is_call = true, .only_at_start = true},
      {.name = "granite", .section = "<|tool_call|>", .section_too = kToolCall, .bare_list = true},
      in_section("phi4_mini", Notation::kJson, "<|tool_call|>", "<|/tool_call|>"),
      in_section("phi4_mini_json", Notation::kJson, "functools", ""),
      in_section("jamba", Notation::kJson, "<tool_calls>", "</tool_calls>"),
      in_section("internlm", Notation::kJson, "<|action_start|><|plugin|>", "<|action_end|>"),
      in_section("interns1", Notation::kJson, "<|action_start|> <|plugin|>", "<|action_end|>"),
      in_section("cohere_command3", Notation::kJson, "<|START_ACTION|>", "<|END_ACTION|>"),
      {.name = "pythonic",
       .notation = Notation::kPython,
       .section = "<|python_start|>",
       .section_end = "<|python_end|>",
       .open = "[",
       .open_is_call = true,
       .only_at_start = true},
      in_section("lfm2", Notation::kPython, "<|tool_call_start|>", "<|tool_call_end|>"),
      in_section("olmo3", Notation::kPython, "<function_calls>", "</function_calls>"),
      {.name = "mistral",
       .notation = Notation::kNamed,
       .open = "[TOOL_CALLS]",
       .id = "[CALL_ID]",
       .name_end = "[ARGS]",
       .short_ids = true},
      deepseek("deepseek_v3", "<｜tool▁sep｜>", "\n", "```json"),
      deepseek("deepseek_v31", "", "<｜tool▁sep｜>", ""),
      {.name = "kimi_k2",
       .notation = Notation::kNamed,
       .section = "<|tool_calls_section_begin|>",
       .section_end = "<|tool_calls_section_end|>",
       .open = "<|tool_call_begin|>",
       .close = "<|tool_call_end|>",
       .name_end = "<|tool_call_argument_begin|>",
       .name_is_id = true,
       .ends_reasoning = "<|tool_calls_section_begin|>"},
      qwen_functions(),
      functions("seed_oss", "<seed:tool_call>", "</seed:tool_call>"),
      invokes("minimax_m2", "<minimax:tool_call>", "</minimax:tool_call>"),
      invokes("dots", "<dots_function_call>", "</dots_function_call>"),
      dsml("deepseek_v32", "<｜DSML｜function_calls>", "</｜DSML｜function_calls>"),
      dsml("deepseek_v4", "<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"),
      {.name = "glm45",
       .notation = Notation::kTagged,
       .open = kToolCall,
       .close = kToolCallEnd,
       .name_end = "\n",
       .key = "<arg_key>",
       .key_end = "</arg_key>",
       .value = "<arg_value>",
       .value_end = "</arg_value>"},
  };
  return table;
}

const std::vector<ReasoningFormat>& reasoning_table() {
  static const std::vector<ReasoningFormat> table = {
      {.name = "think", .begin = "<think>", .end = "</think>"},
      {.name = "ernie-x1",
       .begin = "<think>",
       .end = "</think>",
       .content = "<response>",
       .content_end = "</response>"},
      {.name = "hunyuan_a13b",
       .begin = "<think>",
       .end = "</think>",
       .content = "<answer>",
       .content_end = "</answer>"},
      {.name = "mistral", .begin = "[THINK]", .end = "[/THINK]"},
      {.name = "kimi", .begin = "◁think▷", .end = "◁/think▷"},
      {.name = "seed_oss", .begin = "<seed:think>", .end = "</seed:think>"},
      {.name = "minimax_m3", .begin = "<mm:think>", .end = "</mm:think>"},
      {.name = "cohere_command3",
       .begin = "<|START_THINKING|>",
       .end = "<|END_THINKING|>",
       .content = "<|START_RESPONSE|>",
       .content_end = "<|END_RESPONSE|>"},
      {.name = "granite", .begin = "Here is my thought process:", .end = "Here is my response:"},
  };
  return table;
}

// The names that a row's parser has elsewhere, parted by spaces.
struct Alias {
  std::string_view row, names;
  std::vector<std::string_view> all() const {
    std::vector<std::string_view> out;
    for (std::string_view rest = names; !rest.empty();) {
      out.push_back(rest.substr(0, rest.find(' ')));
      rest.remove_prefix(std::min(rest.size(), out.back().size() + 1));
    }
    return out;
  }
};

constexpr Alias kCallAliases[] = {
    {"hermes", "qwen qwen25 qwen3 ernie-x1 ernie_x1 ernie45 granite4 trinity"},
    {"ernie-45-vl-thinking", "ernie-45-vl"},
    {"llama3_json", "llama3 llama4_json"},
    {"pythonic", "llama4_pythonic llama4"},
    {"jamba", "hunyuan_a13b minimax"},
    {"cohere_command3", "cohere_command4"},
    {"qwen3_coder", "qwen3_xml qwen3-coder mimo step3p5"},
    {"deepseek_v3", "deepseek deepseek-r1 deepseek_r1 deepseekv3 deepseek-v3-0324"},
    {"deepseek_v31", "deepseekv31 deepseek-v3.1"},
    {"deepseek_v32", "deepseekv32"},
    {"deepseek_v4", "deepseekv4"},
    {"glm45", "glm glm47"},
    {"minimax_m2", "minimax-m2"},
};

constexpr Alias kReasoningAliases[] = {
    {"think",
     "deepseek_r1 deepseek-r1 deepseek deepseek_v3 deepseek-v3 deepseek-v3.1 deepseek_v4 "
     "deepseek-v4 interns1 "
     "qwen3 qwen3-thinking ernie-45-vl ernie-45-vl-thinking glm45 glm47 holo2 "
     "hy_v3 kimi_k2 mimo minimax_m2 minimax minimax_m2_append_think "
     "minimax-append-think nemotron_3 nemotron_v3 olmo3 step3 step3p5 poolside_v1 solar_open2"},
    {"ernie-x1", "ernie_x1 ernie45"},
    {"minimax_m3", "minimax-m3"},
    {"cohere_command3", "cohere_command4"},
};

template <class Row, size_t kAliases>
Result<const Row*> find_row(std::string_view name, const std::vector<Row>& table,
                            const Alias (&aliases)[kAliases]) {
  if (name.empty() || name == "none") return static_cast<const Row*>(nullptr);
  const auto alias = std::ranges::find_if(
      aliases, [&](const Alias& one) { return std::ranges::count(one.all(), name) > 0; });
  const std::string_view wanted = alias == std::end(aliases) ? name : alias->row;
  const auto row = std::ranges::find(table, wanted, &Row::name);
  if (row != table.end()) return &*row;
  std::string known = "auto, none";
  for (const Row& one : table) known.append(", ").append(one.name);
  for (const Alias& one : aliases)
    for (const std::string_view other : one.all()) known.append(", ").append(other);
  return Error{Code::kNotFound, fmt::format("\"{}\" is none of {}", name, known)};
}

bool shows(std::string_view chat_template, std::string_view mark) {
  return !mark.empty() && chat_template.find(mark) != std::string_view::npos;
}

std::vector<std::string_view> without_empty(std::initializer_list<std::string_view> marks) {
  std::vector<std::string_view> out(marks);
  std::erase_if(out, [](std::string_view mark) { return mark.empty(); });
  return out;
}

}  // namespace

const std::vector<CallFormat>& call_formats() { return call_table(); }
const std::vector<ReasoningFormat>& reasoning_formats() { return reasoning_table(); }

Result<const CallFormat*> find_call_format(std::string_view name) {
  return find_row(name, call_table(), kCallAliases);
}

Result<const ReasoningFormat*> find_reasoning_format(std::string_view name) {
  return find_row(name, reasoning_table(), kReasoningAliases);
}

// Notations that share a mark are told apart by a second one; the last row is the most general.
const CallFormat* detect_call_format(std::string_view chat_template) {
  struct Sign {
    std::string_view row, first, second;
  };
  constexpr Sign kSigns[] = {
      {"seed_oss", "<seed:tool_call>", ""},
      {"minimax_m2", "<minimax:tool_call>", ""},
      {"qwen3_coder", kToolCall, "<function="},
      {"glm45", kToolCall, "<arg_key>"},
      {"deepseek_v32", "｜DSML｜", "function_calls"},
      {"deepseek_v4", "｜DSML｜", "tool_calls>"},
      {"deepseek_v3", "<｜tool▁call▁begin｜>", "```json"},
      {"deepseek_v31", "<｜tool▁call▁begin｜>", ""},
      {"kimi_k2", "<|tool_call_argument_begin|>", ""},
      {"mistral", "[TOOL_CALLS]", ""},
      {"lfm2", "<|tool_call_start|>", ""},
      {"lfm2", "<|tool_list_start|>", ""},
      {"pythonic", "<|python_start|>", ""},
      {"llama3_json", "<|python_tag|>", ""},
      {"llama3_json", "\"parameters\": dictionary of argument name", ""},
      {"phi4_mini", "<|/tool_call|>", ""},
      {"granite", "<|tool_call|>", ""},
      {"interns1", "<|action_start|> <|plugin|>", ""},
      {"internlm", "<|action_start|>", ""},
      {"cohere_command3", "<|START_ACTION|>", ""},
      {"olmo3", "<function_calls>", ""},
      {"gigachat3", "<|role_sep|>", "function call"},
      {"gigachat3", "<|role_sep|>", "<|function_call|>"},
      {"jamba", "<tool_calls>", ""},
      {"phi4_mini_json", "functools[", ""},
      {"hermes", kToolCall, ""},
  };
  for (const Sign& sign : kSigns)
    if (shows(chat_template, sign.first) &&
        (sign.second.empty() || shows(chat_template, sign.second)))
      return *find_call_format(sign.row);
  return nullptr;
}

const ReasoningFormat* detect_reasoning_format(std::string_view chat_template) {
  if (shows(chat_template, "</think>") && shows(chat_template, "<response>"))
    return *find_reasoning_format("ernie-x1");
  for (const ReasoningFormat& format : reasoning_table())
    if (format.name != "granite" &&
        (shows(chat_template, format.end) || shows(chat_template, format.begin)))
      return &format;
  return nullptr;
}

std::vector<std::string_view> marks_of(const CallFormat& f) {
  return without_empty({f.section, f.section_end, f.section_too, f.open, f.open_too, f.close,
                        f.message_end, f.lead, f.id, f.name_end, f.key, f.key_end, f.value,
                        f.value_end});
}

std::vector<std::string_view> marks_of(const ReasoningFormat& f) {
  return without_empty({f.begin, f.end, f.content, f.content_end});
}

}  // namespace skiff::answer
