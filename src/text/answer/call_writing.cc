#include "text/answer/call_writing.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/schema_types.h"

namespace skiff::answer {
namespace {

constexpr std::string_view kJson = "json", kName = "{\"name\": \"";
constexpr std::string_view kArguments = "\", \"arguments\": ", kParameters = "\", \"parameters\": ";

// <tool_call>{"name": ..., "arguments": ...}</tool_call>, one after the other.
CallWriting in_tags(std::string_view format) {
  return {.format = format,
          .head = "<tool_call>\n{\"name\": \"",
          .arguments = kArguments,
          .tail = "}\n</tool_call>",
          .between = "\n",
          .style = kJson};
}

// A list of JSON objects.
CallWriting in_list(std::string_view format, std::string_view begin, std::string_view end,
                    std::string_view head = kName, std::string_view arguments = kArguments) {
  return {.format = format,
          .begin = begin,
          .head = head,
          .arguments = arguments,
          .tail = "}",
          .between = ", ",
          .end = end,
          .style = kJson};
}

CallWriting in_python(std::string_view format, std::string_view begin, std::string_view end,
                      std::string_view between = ", ") {
  return {.format = format,
          .begin = begin,
          .arguments = "(",
          .tail = ")",
          .between = between,
          .end = end,
          .style = "python"};
}

// <function=f> with its arguments in tags of their own, each call in a section.
CallWriting in_functions(std::string_view format, std::string_view head, std::string_view tail) {
  return {.format = format,
          .head = head,
          .arguments = ">\n",
          .tail = tail,
          .between = "\n",
          .style = "qwen_xml"};
}

// <invoke name="f"> with its arguments in tags, all calls in a section.
CallWriting in_invokes(std::string_view format, std::string_view begin, std::string_view end) {
  return {.format = format,
          .begin = begin,
          .head = "<invoke name=\"",
          .arguments = "\">\n",
          .tail = "</invoke>",
          .between = "\n",
          .end = end,
          .style = "minimax_xml"};
}

CallWriting in_dsml(std::string_view format, std::string_view begin, std::string_view end) {
  return {.format = format,
          .begin = begin,
          .head = "<｜DSML｜invoke name=\"",
          .arguments = "\">\n",
          .tail = "</｜DSML｜invoke>",
          .between = "\n",
          .end = end,
          .style = "deepseek_xml"};
}

}  // namespace

const std::vector<CallWriting>& call_writings() {
  static const std::vector<CallWriting> table = {
      in_tags("hermes"),
      in_tags("ernie-45-vl-thinking"),
      {.format = "llama3_json",
       .head = kName,
       .arguments = kParameters,
       .tail = "}",
       .between = "; ",
       .style = kJson},
      in_list("xlam", "[", "]"),
      in_list("granite", "<|tool_call|>[", "]"),
      in_list("phi4_mini", "<|tool_call|>[", "]<|/tool_call|>"),
      in_list("phi4_mini_json", "functools[", "]"),
      {.format = "longcat",
       .head = "<longcat_tool_call>\n{\"name\": \"",
       .arguments = kArguments,
       .tail = "}\n</longcat_tool_call>",
       .between = "\n",
       .style = kJson},
      {.format = "granite-20b-fc",
       .head = "<function_call> {\"name\": \"",
       .arguments = kArguments,
       .tail = "}",
       .between = " ",
       .style = kJson},
      {.format = "gigachat3",
       .needs = "<|function_call|>",
       .head = "<|function_call|>{\"name\": \"",
       .arguments = kArguments,
       .tail = "}",
       .style = kJson},
      {.format = "gigachat3",
       .head = "<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"",
       .arguments = kArguments,
       .tail = "}",
       .style = kJson},
      {.format = "interns1",
       .head = "<|action_start|> <|plugin|>\n{\"name\": \"",
       .arguments = kParameters,
       .tail = "}<|action_end|>",
       .between = "\n",
       .style = kJson},
      in_list("jamba", "<tool_calls>[", "]</tool_calls>"),
      in_list("cohere_command3", "<|START_ACTION|>[", "]<|END_ACTION|>", "{\"tool_name\": \"",
              kParameters),
      {.format = "internlm",
       .head = "<|action_start|><|plugin|>\n{\"name\": \"",
       .arguments = kParameters,
       .tail = "}<|action_end|>",
       .between = "\n",
       .style = kJson},
      in_python("pythonic", "[", "]"),
      in_python("lfm2", "<|tool_call_start|>[", "]<|tool_call_end|>"),
      in_python("olmo3", "<function_calls>\n", "\n</function_calls>", "\n"),
      // Tokenizers from version 11 on write the name in front of the arguments.
      {.format = "mistral",
       .needs = "[ARGS]",
       .head = "[TOOL_CALLS]",
       .arguments = "[ARGS]",
       .style = kJson},
      in_list("mistral", "[TOOL_CALLS] [", "]"),
      {.format = "deepseek_v3",
       .begin = "<｜tool▁calls▁begin｜>",
       .head = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
       .arguments = "\n```json\n",
       .tail = "\n```<｜tool▁call▁end｜>",
       .between = "\n",
       .end = "<｜tool▁calls▁end｜>",
       .style = kJson},
      {.format = "deepseek_v31",
       .begin = "<｜tool▁calls▁begin｜>",
       .head = "<｜tool▁call▁begin｜>",
       .arguments = "<｜tool▁sep｜>",
       .tail = "<｜tool▁call▁end｜>",
       .end = "<｜tool▁calls▁end｜>",
       .style = kJson},
      {.format = "kimi_k2",
       .begin = "<|tool_calls_section_begin|>",
       .head = "<|tool_call_begin|>functions.",
       .arguments = "<|tool_call_argument_begin|>",
       .tail = "<|tool_call_end|>",
       .end = "<|tool_calls_section_end|>",
       .style = kJson,
       .numbered = true},
      in_functions("qwen3_coder", "<tool_call>\n<function=", "</function>\n</tool_call>"),
      in_functions("seed_oss", "<seed:tool_call>\n<function=", "</function>\n</seed:tool_call>"),
      in_invokes("minimax_m2", "<minimax:tool_call>\n", "\n</minimax:tool_call>"),
      in_invokes("dots", "<dots_function_call>\n", "\n</dots_function_call>"),
      in_dsml("deepseek_v32", "<｜DSML｜function_calls>\n", "\n</｜DSML｜function_calls>"),
      in_dsml("deepseek_v4", "<｜DSML｜tool_calls>\n", "\n</｜DSML｜tool_calls>"),
      {.format = "glm45",
       .head = "<tool_call>",
       .arguments = "\n",
       .tail = "</tool_call>",
       .between = "\n",
       .style = "glm_xml"},
  };
  return table;
}

const CallWriting* find_call_writing(const CallFormat& format,
                                     const std::function<bool(std::string_view)>& has_token) {
  for (const CallWriting& row : call_writings())
    if (row.format == format.name && (row.needs.empty() || has_token(row.needs))) return &row;
  return nullptr;
}

bool is_strict(const OrderedJson& tool) {
  const auto strict = tool.at("function").find("strict");
  return strict != tool.at("function").end() && *strict == true;
}

namespace {

// Names are written as they are, so they may hold nothing that a reader takes for something else.
bool can_be_written(const std::string& name, const CallWriting& writing) {
  const bool ascii = writing.style == "python";
  return !name.empty() && std::ranges::all_of(name, [&](char c) {
    const bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '_' || c == '-' || c == '.';
    return word || (!ascii && static_cast<unsigned char>(c) >= 0x80);
  });
}

OrderedJson text_format(std::string_view text) {
  return {{"type", "const_string"}, {"value", text}};
}

OrderedJson sequence_of(std::vector<OrderedJson> parts) {
  OrderedJson elements = OrderedJson::array();
  for (OrderedJson& part : parts) elements.push_back(std::move(part));
  OrderedJson out = {{"type", "sequence"}};
  out["elements"] = std::move(elements);
  return out;
}

class TagWriter {
 public:
  TagWriter(const CallFormat& format, const CallWriting& writing, const CallRules& rules)
      : format_(format), writing_(writing), rules_(rules) {}

  Result<OrderedJson> write(const OrderedJson& tools) {
    OrderedJson tags = OrderedJson::array();
    for (const OrderedJson& tool : tools) {
      const std::string name = tool.at("function").at("name").get<std::string>();
      if (!can_be_written(name, writing_))
        return Error{Code::kInvalid,
                     fmt::format("the function name \"{}\" cannot be written under a constraint; "
                                 "use letters, digits, _, - and .",
                                 name.substr(0, 80)),
                     "tools"};
      if (auto error = check_object(tool, name)) return *error;
      tags.push_back(tag(tool, name));
    }
    const bool only = rules_.required || rules_.alone;
    OrderedJson format = only ? calls(std::move(tags)) : calls_in_text(std::move(tags));
    if (!format_.message_end.empty()) format = with_message_end(std::move(format));
    return OrderedJson{{"type", "structural_tag"}, {"format", std::move(format)}};
  }

 private:
  bool follows_schema(const OrderedJson& tool) const {
    return rules_.all_schemas || is_strict(tool);
  }

  std::optional<Error> check_object(const OrderedJson& tool, const std::string& name) const {
    const auto given = tool.at("function").find("parameters");
    if (!follows_schema(tool) || given == tool.at("function").end() || given->is_null() ||
        (SchemaTypes(*given).of(*given) & kJsonObject) != 0)
      return std::nullopt;
    return Error{Code::kInvalid,
                 fmt::format("the parameters of \"{}\" allow no object, and arguments are one; "
                             "use a schema of \"type\": \"object\"",
                             name),
                 "tools"};
  }

  OrderedJson tag(const OrderedJson& tool, const std::string& name) const {
    const OrderedJson& function = tool.at("function");
    const auto given = function.find("parameters");
    const bool follow = follows_schema(tool);
    OrderedJson schema = {{"type", "object"}};
    if (follow && given != function.end() && given->is_object()) {
      schema = *given;
      schema["type"] = "object";  // readers take nothing else
    } else if (follow)
      schema["additionalProperties"] = false;  // a function that names no parameters has none
    OrderedJson content = {{"type", "json_schema"},
                           {"json_schema", std::move(schema)},
                           {"style", writing_.style},
                           {"function", name}};
    std::string begin = fmt::format("{}{}", writing_.head, name);
    if (writing_.numbered)
      content = sequence_of({OrderedJson{{"type", "regex"}, {"pattern", ":[0-9]{1,3}"}},
                             text_format(writing_.arguments), std::move(content)});
    else
      begin += writing_.arguments;
    return {{"type", "tag"},
            {"begin", std::move(begin)},
            {"content", std::move(content)},
            {"end", writing_.tail}};
  }

  OrderedJson calls(OrderedJson tags) const {
    OrderedJson list = {{"type", "tags_with_separator"},
                        {"tags", std::move(tags)},
                        {"separator", writing_.between},
                        {"at_least_one", true},
                        {"stop_after_first", rules_.one_call}};
    return sequence_of({text_format(writing_.begin), std::move(list), text_format(writing_.end)});
  }

  // Returns the marks at which a reader begins to look for calls.
  OrderedJson triggers() const {
    OrderedJson out = OrderedJson::array();
    if (!format_.section.empty()) out.push_back(format_.section);
    if (!format_.open.empty() && !format_.open_is_call) out.push_back(format_.open);
    if (format_.open_too.empty()) return out;
    out.push_back(format_.open_too);
    out.push_back(std::string(format_.message_end).append(format_.open_too));
    return out;
  }

  // The mark at which a message ends may stand at the end of the answer.
  OrderedJson with_message_end(OrderedJson answer) const {
    OrderedJson end = {{"type", "optional"}};
    end["content"] = text_format(format_.message_end);
    return sequence_of({std::move(answer), std::move(end)});
  }

  OrderedJson calls_in_text(OrderedJson tags) const {
    const OrderedJson marks = triggers();
    if (format_.only_at_start) return calls_or_text(std::move(tags), marks);
    if (!writing_.begin.empty()) {
      OrderedJson all = calls(std::move(tags));
      OrderedJson section = {{"type", "tag"}, {"begin", marks[0]}};
      section["content"] =
          sequence_of({text_format(rest_of_begin(marks)), std::move(all["elements"][1])});
      section["end"] = writing_.end;
      tags = OrderedJson::array();
      tags.push_back(std::move(section));
    }
    return {{"type", "triggered_tags"},
            {"triggers", marks},
            {"tags", std::move(tags)},
            {"stop_after_first", rules_.one_call}};
  }

  std::string rest_of_begin(const OrderedJson& marks) const {
    return std::string(writing_.begin.substr(marks[0].get_ref<const std::string&>().size()));
  }

  // Calls stand at the start or nowhere: later, their marks are text like any other.
  OrderedJson calls_or_text(OrderedJson tags, const OrderedJson& marks) const {
    OrderedJson text = {{"type", "any_text"}, {"excludes", marks}}, out = {{"type", "or"}};
    if (format_.open_is_call)
      text = {{"type", "regex"},
              {"pattern", fmt::format(R"(([^\s\{}{}](.|\n|\r)*)?)", format_.open,
                                      format_.section.substr(0, 1))}};
    out["elements"] = OrderedJson::array();
    out["elements"].push_back(calls(std::move(tags)));
    out["elements"].push_back(std::move(text));
    return out;
  }

  const CallFormat& format_;
  const CallWriting& writing_;
  const CallRules& rules_;
};

}  // namespace

Result<OrderedJson> call_tag(const CallFormat& format, const CallWriting& writing,
                             const OrderedJson& tools, const CallRules& rules) {
  return TagWriter(format, writing, rules).write(tools);
}

}  // namespace skiff::answer
