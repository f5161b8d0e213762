// text/answer/answer_testing.h -- answers in every format, and what they must be read as, for
// tests.
#pragma once
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "base/json.h"
#include "text/answer/answer_parser.h"

namespace skiff::answer {

struct ExpectedCall {
  std::string name;
  OrderedJson arguments;  // a string: the arguments are cut off and compared as text
  bool operator==(const ExpectedCall&) const = default;
};

// An answer as its reader sees it in the end.
struct ReadAnswer {
  std::string reasoning, content;
  std::vector<ExpectedCall> calls;
  std::vector<std::string> ids;
  int broken = 0;
  bool operator==(const ReadAnswer&) const = default;
};

// Writes a list of calls in one format, as its model would.
using CallWriter = std::function<std::string(const std::vector<ExpectedCall>&)>;

struct FormatWriter {
  const char* format;
  CallWriter write;
  std::string malformed;  // begins like a call and is none
  std::string variant;    // tells the ways apart in which one format is written
};

inline void PrintTo(const FormatWriter& writer, std::ostream* out) {
  *out << writer.format << writer.variant;
}

inline std::string joined(const std::vector<ExpectedCall>& calls, const std::string& between,
                          const std::function<std::string(const ExpectedCall&)>& one) {
  std::string out;
  for (const ExpectedCall& call : calls) out += (out.empty() ? "" : between) + one(call);
  return out;
}

inline std::string json_call(const ExpectedCall& call, const char* key = "arguments") {
  return R"({"name": )" + OrderedJson(call.name).dump() + ", \"" + key +
         "\": " + call.arguments.dump() + "}";
}

// A value between tags: strings as they are, the rest as JSON.
inline std::string plain_value(const OrderedJson& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

inline std::string tagged_call(const ExpectedCall& call, const std::string& head,
                               const std::string& head_end, const std::string& key,
                               const std::string& key_end, const std::string& value_end,
                               const std::string& end) {
  std::string out = head + call.name + head_end;
  for (const auto& [name, value] : call.arguments.items())
    out.append(key).append(name).append(key_end).append(plain_value(value)).append(value_end);
  return out + end;
}

inline std::string python_value(const OrderedJson& value) {
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_null()) return "None";
  if (!value.is_structured()) return value.dump();
  std::string out;
  for (const auto& [key, one] : value.items()) {
    out += out.empty() ? "" : ", ";
    if (value.is_object()) out += OrderedJson(key).dump() + ": ";
    out += python_value(one);
  }
  return value.is_array() ? "[" + out + "]" : "{" + out + "}";
}

inline std::string python_call(const ExpectedCall& call) {
  std::string out;
  for (const auto& [key, value] : call.arguments.items())
    out += (out.empty() ? "" : ", ") + key + "=" + python_value(value);
  return call.name + "(" + out + ")";
}

inline CallWriter json_list(const std::string& begin, const std::string& end,
                            const char* key = "arguments") {
  return [=](const auto& calls) {
    return begin + "[" +
           joined(calls, ", ", [&](const ExpectedCall& call) { return json_call(call, key); }) +
           "]" + end;
  };
}

inline CallWriter hermes_calls() {
  return [](const auto& calls) {
    return joined(calls, "\n", [](const ExpectedCall& call) {
      return "<tool_call>\n" + json_call(call) + "\n</tool_call>";
    });
  };
}

inline CallWriter marked_calls(const std::string& begin, const std::string& end) {
  return [=](const auto& calls) {
    return joined(calls, "\n",
                  [&](const ExpectedCall& call) { return begin + json_call(call) + end; });
  };
}

inline CallWriter function_calls(const std::string& section, const std::string& section_end) {
  return [=](const auto& calls) {
    return joined(calls, "\n", [&](const ExpectedCall& call) {
      return section + "\n" +
             tagged_call(call, "<function=", ">\n", "<parameter=", ">\n", "\n</parameter>\n",
                         "</function>\n") +
             section_end;
    });
  };
}

inline CallWriter deepseek_calls(bool fenced) {
  return [=](const auto& calls) {
    return "<｜tool▁calls▁begin｜>" +
           joined(calls, "\n",
                  [&](const ExpectedCall& call) {
                    const std::string body = call.arguments.dump();
                    return (fenced
                                ? "<｜tool▁call▁begin｜>function<｜tool▁sep｜>" + call.name +
                                      "\n```json\n" + body + "\n```"
                                : "<｜tool▁call▁begin｜>" + call.name + "<｜tool▁sep｜>" + body) +
                           "<｜tool▁call▁end｜>";
                  }) +
           "<｜tool▁calls▁end｜>";
  };
}

inline std::string kimi_calls(const std::vector<ExpectedCall>& calls) {
  std::string out = "<|tool_calls_section_begin|>";
  for (size_t i = 0; i < calls.size(); ++i)
    out += "<|tool_call_begin|>functions." + calls[i].name + ":" + std::to_string(i) +
           "<|tool_call_argument_begin|>" + calls[i].arguments.dump() + "<|tool_call_end|>";
  return out + "<|tool_calls_section_end|>";
}

inline CallWriter dsml_calls(const std::string& section) {
  return [=](const auto& calls) {
    return "<｜DSML｜" + section + ">\n" +
           joined(calls, "\n",
                  [](const ExpectedCall& call) {
                    std::string out = "<｜DSML｜invoke name=\"" + call.name + "\">\n";
                    for (const auto& [key, value] : call.arguments.items())
                      out += "<｜DSML｜parameter name=\"" + key + "\" string=\"" +
                             (value.is_string() ? "true" : "false") + "\">" + plain_value(value) +
                             "</｜DSML｜parameter>\n";
                    return out + "</｜DSML｜invoke>";
                  }) +
           "\n</｜DSML｜" + section + ">";
  };
}

inline CallWriter invoke_calls(const std::string& section) {
  return [=](const auto& calls) {
    return "<" + section + ">\n" +
           joined(calls, "\n",
                  [](const ExpectedCall& call) {
                    return tagged_call(call, "<invoke name=\"", "\">\n", "<parameter name=\"",
                                       "\">", "</parameter>\n", "</invoke>");
                  }) +
           "\n</" + section + ">";
  };
}

inline std::vector<FormatWriter> format_writers() {
  const auto python_list = [](const std::string& begin, const std::string& end) {
    return [=](const std::vector<ExpectedCall>& calls) {
      return begin + "[" + joined(calls, ", ", python_call) + "]" + end;
    };
  };
  return {
      {"hermes", hermes_calls(), "<tool_call>\n{'name': f}\n</tool_call>"},
      {"ernie-45-vl-thinking", hermes_calls(), "<tool_call>\nf()\n</tool_call>"},
      {"llama3_json",
       [](const auto& calls) {
         return joined(calls, "; ",
                       [](const ExpectedCall& call) { return json_call(call, "parameters"); });
       },
       R"({"answer": {"a": 1}})"},
      {"xlam", json_list("", ""), "[1, 2]"},
      {"granite", json_list("<|tool_call|>", ""), "<|tool_call|>[{\"f\": 1}]"},
      {"phi4_mini", json_list("<|tool_call|>", "<|/tool_call|>"), "<|tool_call|>f"},
      {"phi4_mini_json", json_list("functools", ""), "functools[1]"},
      {"longcat", marked_calls("<longcat_tool_call>", "</longcat_tool_call>"),
       "<longcat_tool_call>f()</longcat_tool_call>"},
      {"granite-20b-fc", marked_calls("<function_call> ", ""), "<function_call> f"},
      {"gigachat3", marked_calls("<|function_call|>", ""), "<|function_call|>f{}"},
      {"gigachat3",
       marked_calls("<|message_sep|>\n\nfunction call<|role_sep|>\n", "<|message_sep|>\n\n"),
       "<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": f}", "_messages"},
      {"interns1", json_list("<|action_start|> <|plugin|>\n", "<|action_end|>", "parameters"),
       "<|action_start|> <|plugin|>{}<|action_end|>"},
      {"jamba", json_list("<tool_calls>", "</tool_calls>"), "<tool_calls>[\"f\"]"},
      {"internlm", json_list("<|action_start|><|plugin|>\n", "<|action_end|>", "parameters"),
       "<|action_start|><|plugin|>{}<|action_end|>"},
      {"cohere_command3", json_list("<|START_ACTION|>\n", "\n<|END_ACTION|>", "parameters"),
       "<|START_ACTION|>{\"tool_name\": 3}"},
      {"pythonic", python_list("", ""), "[f(a=open('x'))]"},
      {"lfm2", python_list("<|tool_call_start|>", "<|tool_call_end|>"),
       "<|tool_call_start|>[f(1)]<|tool_call_end|>"},
      {"olmo3",
       [](const auto& calls) {
         return "<function_calls>\n" + joined(calls, "\n", python_call) + "\n</function_calls>";
       },
       "<function_calls>\nf(a=b)\n</function_calls>"},
      {"mistral",
       [](const auto& calls) {
         return joined(calls, "", [](const ExpectedCall& call) {
           return "[TOOL_CALLS]" + call.name + call.arguments.dump();
         });
       },
       "[TOOL_CALLS]f{a}"},
      {"deepseek_v3", deepseek_calls(true), "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\nxyz"},
      {"deepseek_v31", deepseek_calls(false), "<｜tool▁call▁begin｜>f<｜tool▁sep｜>[1]"},
      {"kimi_k2", kimi_calls, "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{1}"},
      {"qwen3_coder", function_calls("<tool_call>", "</tool_call>"),
       "<tool_call>\n<function=f>\nvalue</function>"},
      {"seed_oss", function_calls("<seed:tool_call>", "</seed:tool_call>"),
       "<seed:tool_call><function=></function>"},
      {"minimax_m2", invoke_calls("minimax:tool_call"),
       "<minimax:tool_call><invoke name=\"f\">x</invoke>"},
      {"dots", invoke_calls("dots_function_call"),
       "<dots_function_call><invoke name=\"f\">x</invoke>"},
      {"deepseek_v32", dsml_calls("function_calls"), "<｜DSML｜invoke name=\"f\">x"},
      {"deepseek_v4", dsml_calls("tool_calls"), "<｜DSML｜invoke name=\"f\">x"},
      {"glm45",
       [](const auto& calls) {
         return joined(calls, "\n", [](const ExpectedCall& call) {
           return tagged_call(call, "<tool_call>", "\n", "<arg_key>", "</arg_key>\n<arg_value>",
                              "</arg_value>\n", "</tool_call>");
         });
       },
       "<tool_call>f\nx</tool_call>"},
  };
}

inline OrderedJson test_tools() {
  return OrderedJson::parse(R"([{"type": "function", "function": {"name": "f", "parameters": {
    "type": "object", "properties": {
      "text": {"type": "string"}, "other": {"type": "string"}, "count": {"type": "integer"},
      "ratio": {"type": "number"}, "on": {"type": "boolean"}, "list": {"type": "array"},
      "map": {"type": "object"}, "maybe": {"type": ["string", "null"]},
      "optional": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "digit": {"enum": ["1", "2"]},
      "named": {"$ref": "#/$defs/Name"}, "either": {"type": ["string", "integer"]}},
    "$defs": {"Name": {"type": "string"}}}}}])");
}

inline std::shared_ptr<AnswerOptions> options_for(const std::string& format,
                                                  const std::string& reasoning = "think") {
  auto options = std::make_shared<AnswerOptions>();
  options->formats = {.reasoning = *find_reasoning_format(reasoning),
                      .calls = *find_call_format(format)};
  options->types = ToolTypes(test_tools());
  return options;
}

// The events of an answer that is pushed in pieces of `cut(place)` bytes.
inline AnswerEvents events_of(const std::shared_ptr<const AnswerOptions>& options,
                              std::string_view text, bool whole,
                              const std::function<size_t()>& cut) {
  AnswerParser parser(options, /*seed=*/7);
  AnswerEvents all;
  const auto take = [&all](AnswerEvents events) {
    for (AnswerEvent& event : events) append_event(all, std::move(event));
  };
  while (!text.empty()) {
    const size_t size = std::min(text.size(), std::max<size_t>(cut(), 1));
    AnswerEvents events;
    parser.push(text.substr(0, size), events);
    take(std::move(events));
    text.remove_prefix(size);
  }
  AnswerEvents events;
  parser.finish(whole, events);
  take(std::move(events));
  return all;
}

// Gathers events as a client does: broken calls are taken back.
inline ReadAnswer read_events(const AnswerEvents& events) {
  ReadAnswer out;
  std::vector<std::string> arguments;
  for (const AnswerEvent& event : events) {
    if (event.part == Part::kReasoning) out.reasoning += event.text;
    if (event.part == Part::kContent) out.content += event.text;
    if (event.part == Part::kArguments) arguments.back() += event.text;
    if (event.part == Part::kCallBegin) {
      out.calls.push_back({event.text, nullptr});
      out.ids.push_back(event.id);
      arguments.emplace_back();
    }
    if (event.part != Part::kBroken) continue;
    ++out.broken;
    out.calls.pop_back(), out.ids.pop_back(), arguments.pop_back();
  }
  for (size_t i = 0; i < out.calls.size(); ++i) {
    const auto value = parse_ordered_json(arguments[i]);
    out.calls[i].arguments = value ? *value : OrderedJson(arguments[i]);
  }
  return out;
}

}  // namespace skiff::answer
