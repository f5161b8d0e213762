#include "text/answer/answer_format.h"

#include <fmt/format.h>

#include <algorithm>

namespace skiff::answer {
namespace {

constexpr std::string_view kToolCall = "<tool_call>", kToolCallEnd = "</tool_call>";

const std::vector<CallFormat>& call_table() {
  static const std::vector<CallFormat> table = {
      {.name = "hermes", .open = kToolCall, .close = kToolCallEnd},
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
      {.name = "granite", .section = "<|tool_call|>"},
      {.name = "phi4_mini_json", .section = "<|tool_call|>", .section_end = "<|/tool_call|>"},
      {.name = "jamba", .section = "<tool_calls>", .section_end = "</tool_calls>"},
      {.name = "internlm",
       .section = "<|action_start|><|plugin|>",
       .section_end = "<|action_end|>"},
      {.name = "cohere_command3", .section = "<|START_ACTION|>", .section_end = "<|END_ACTION|>"},
      {.name = "pythonic",
       .notation = Notation::kPython,
       .section = "<|python_start|>",
       .section_end = "<|python_end|>",
       .open = "[",
       .open_is_call = true,
       .only_at_start = true},
      {.name = "lfm2",
       .notation = Notation::kPython,
       .section = "<|tool_call_start|>",
       .section_end = "<|tool_call_end|>"},
      {.name = "olmo3",
       .notation = Notation::kPython,
       .section = "<function_calls>",
       .section_end = "</function_calls>"},
      {.name = "mistral",
       .notation = Notation::kNamed,
       .open = "[TOOL_CALLS]",
       .id = "[CALL_ID]",
       .name_end = "[ARGS]",
       .short_ids = true},
      {.name = "deepseek_v3",
       .notation = Notation::kNamed,
       .section = "<｜tool▁calls▁begin｜>",
       .section_end = "<｜tool▁calls▁end｜>",
       .open = "<｜tool▁call▁begin｜>",
       .close = "<｜tool▁call▁end｜>",
       .lead = "<｜tool▁sep｜>",
       .name_end = "\n",
       .fence = "```json"},
      {.name = "deepseek_v31",
       .notation = Notation::kNamed,
       .section = "<｜tool▁calls▁begin｜>",
       .section_end = "<｜tool▁calls▁end｜>",
       .open = "<｜tool▁call▁begin｜>",
       .close = "<｜tool▁call▁end｜>",
       .name_end = "<｜tool▁sep｜>"},
      {.name = "kimi_k2",
       .notation = Notation::kNamed,
       .section = "<|tool_calls_section_begin|>",
       .section_end = "<|tool_calls_section_end|>",
       .open = "<|tool_call_begin|>",
       .close = "<|tool_call_end|>",
       .name_end = "<|tool_call_argument_begin|>",
       .name_is_id = true},
      {.name = "qwen3_coder",
       .notation = Notation::kTagged,
       .section = kToolCall,
       .section_end = kToolCallEnd,
       .open = "<function=",
       .close = "</function>",
       .name_end = ">",
       .key = "<parameter=",
       .key_end = ">",
       .value_end = "</parameter>"},
      {.name = "seed_oss",
       .notation = Notation::kTagged,
       .section = "<seed:tool_call>",
       .section_end = "</seed:tool_call>",
       .open = "<function=",
       .close = "</function>",
       .name_end = ">",
       .key = "<parameter=",
       .key_end = ">",
       .value_end = "</parameter>"},
      {.name = "minimax_m2",
       .notation = Notation::kTagged,
       .section = "<minimax:tool_call>",
       .section_end = "</minimax:tool_call>",
       .open = "<invoke name=\"",
       .close = "</invoke>",
       .name_end = "\">",
       .key = "<parameter name=\"",
       .key_end = "\">",
       .value_end = "</parameter>"},
      {.name = "deepseek_v32",
       .notation = Notation::kTagged,
       .section = "<｜DSML｜function_calls>",
       .section_end = "</｜DSML｜function_calls>",
       .open = "<｜DSML｜invoke name=\"",
       .close = "</｜DSML｜invoke>",
       .name_end = "\">",
       .key = "<｜DSML｜parameter name=\"",
       .key_end = "\"",
       .value = ">",
       .value_end = "</｜DSML｜parameter>"},
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
      {.name = "mistral", .begin = "[THINK]", .end = "[/THINK]"},
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

// The name that a parser has elsewhere, and its row.
struct Alias {
  std::string_view name, row;
};

constexpr Alias kCallAliases[] = {
    {"qwen", "hermes"},
    {"qwen25", "hermes"},
    {"qwen3", "hermes"},
    {"ernie-x1", "hermes"},
    {"ernie_x1", "hermes"},
    {"ernie45", "hermes"},
    {"ernie-45-vl", "ernie-45-vl-thinking"},
    {"longcat", "hermes"},
    {"llama3", "llama3_json"},
    {"llama4_json", "llama3_json"},
    {"llama4_pythonic", "pythonic"},
    {"llama4", "pythonic"},
    {"hunyuan_a13b", "jamba"},
    {"interns1", "internlm"},
    {"granite-20b-fc", "granite"},
    {"granite4", "hermes"},
    {"cohere_command4", "cohere_command3"},
    {"qwen3_xml", "qwen3_coder"},
    {"qwen3-coder", "qwen3_coder"},
    {"mimo", "qwen3_coder"},
    {"deepseek", "deepseek_v3"},
    {"deepseek-r1", "deepseek_v3"},
    {"deepseek_r1", "deepseek_v3"},
    {"deepseekv3", "deepseek_v3"},
    {"deepseek-v3-0324", "deepseek_v3"},
    {"deepseekv31", "deepseek_v31"},
    {"deepseek-v3.1", "deepseek_v31"},
    {"deepseekv32", "deepseek_v32"},
    {"glm", "glm45"},
    {"glm47", "glm45"},
    {"minimax-m2", "minimax_m2"},
};

constexpr Alias kReasoningAliases[] = {
    {"deepseek_r1", "think"},
    {"deepseek-r1", "think"},
    {"deepseek", "think"},
    {"deepseek_v3", "think"},
    {"deepseek-v3", "think"},
    {"deepseek-v3.1", "think"},
    {"deepseek_v4", "think"},
    {"qwen3", "think"},
    {"qwen3-thinking", "think"},
    {"ernie45", "think"},
    {"ernie-45-vl", "think"},
    {"ernie-45-vl-thinking", "think"},
    {"ernie_x1", "ernie-x1"},
    {"glm45", "think"},
    {"glm47", "think"},
    {"holo2", "think"},
    {"hunyuan_a13b", "think"},
    {"hy_v3", "think"},
    {"kimi_k2", "think"},
    {"kimi", "think"},
    {"mimo", "think"},
    {"minimax_m2", "think"},
    {"minimax", "think"},
    {"minimax_m2_append_think", "think"},
    {"nemotron_v3", "think"},
    {"olmo3", "think"},
    {"step3", "think"},
    {"step3p5", "think"},
    {"poolside_v1", "think"},
    {"solar_open2", "think"},
    {"cohere_command4", "cohere_command3"},
};

template <class Row, size_t kAliases>
Result<const Row*> find_row(std::string_view name, const std::vector<Row>& table,
                            const Alias (&aliases)[kAliases]) {
  if (name.empty() || name == "none") return static_cast<const Row*>(nullptr);
  const auto alias = std::ranges::find(aliases, name, &Alias::name);
  const std::string_view wanted = alias == std::end(aliases) ? name : alias->row;
  const auto row = std::ranges::find(table, wanted, &Row::name);
  if (row != table.end()) return &*row;
  std::string known = "auto, none";
  for (const Row& one : table) known.append(", ").append(one.name);
  for (const Alias& one : aliases) known.append(", ").append(one.name);
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
      {"deepseek_v3", "<｜tool▁call▁begin｜>", "```json"},
      {"deepseek_v31", "<｜tool▁call▁begin｜>", ""},
      {"kimi_k2", "<|tool_call_argument_begin|>", ""},
      {"mistral", "[TOOL_CALLS]", ""},
      {"lfm2", "<|tool_call_start|>", ""},
      {"pythonic", "<|python_start|>", ""},
      {"llama3_json", "<|python_tag|>", ""},
      {"phi4_mini_json", "<|/tool_call|>", ""},
      {"granite", "<|tool_call|>", ""},
      {"internlm", "<|action_start|>", ""},
      {"cohere_command3", "<|START_ACTION|>", ""},
      {"olmo3", "<function_calls>", ""},
      {"jamba", "<tool_calls>", ""},
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
  return without_empty({f.section, f.section_end, f.open, f.close, f.lead, f.id, f.name_end, f.key,
                        f.key_end, f.value, f.value_end});
}

std::vector<std::string_view> marks_of(const ReasoningFormat& f) {
  return without_empty({f.begin, f.end, f.content, f.content_end});
}

}  // namespace skiff::answer
