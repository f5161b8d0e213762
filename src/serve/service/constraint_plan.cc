#include "serve/service/constraint_plan.h"

#include <algorithm>
#include <charconv>

#include "text/answer/call_writing.h"

namespace skiff::service {
namespace {

const OrderedJson* tools_of(const Request& request, const PromptInput& input) {
  const auto* chat = std::get_if<text::Conversation>(&input);
  if (!chat || !request.split_calls || !chat->tools.is_array()) return nullptr;
  return &chat->tools;
}

Error no_format(std::string_view parser) {
  const std::string why =
      parser.empty() ? "the format of this model's tool calls is not known; name it with the flag "
                       "--tool-call-parser of the server, or use \"auto\""
                     : fmt::format(
                           "calls in the format of the parser {} cannot be forced; use "
                           "\"auto\"",
                           parser);
  return {Code::kUnsupported, "tool_choice cannot force a tool call on this server: " + why,
          "tool_choice"};
}

// The structural tag of the calls; nothing if they are free.
Result<std::optional<OrderedJson>> calls_of(const Request& request, const AnswerSplit* split) {
  const std::optional<OrderedJson> free;
  const OrderedJson* tools = tools_of(request, request.input);
  if (!tools) return free;
  const bool strict = std::ranges::any_of(*tools, answer::is_strict);
  if (!request.must_call && !strict && !request.constraint) return free;
  const answer::CallFormat* format = split ? split->formats().calls : nullptr;
  const answer::CallWriting* writing =
      format ? answer::find_call_writing(*format, [&](auto text) { return split->has_token(text); })
             : nullptr;
  if (!writing) {
    if (request.must_call) return no_format(format ? format->name : "");
    return free;  // what looks like a call is content, or is read as far as it can be
  }
  auto tag = answer::call_tag(*format, *writing, *tools,
                              {.required = request.must_call,
                               .alone = request.constraint.has_value(),
                               .one_call = request.one_call,
                               .all_schemas = request.must_call});
  if (!tag) return tag.error();
  return std::optional(std::move(*tag));
}

// Names the tool whose schema a JSON pointer leads into, and says where in that schema it ends.
struct ToolPlace {
  std::string function, pointer;
};

std::optional<ToolPlace> tool_at(const OrderedJson& tag, std::string_view pointer) {
  const OrderedJson* at = &tag;
  while (!pointer.empty()) {
    pointer.remove_prefix(1);
    const std::string_view key = pointer.substr(0, pointer.find('/'));
    pointer.remove_prefix(key.size());
    if (key == "json_schema" && at->contains("function"))
      return ToolPlace{at->at("function").get<std::string>(), std::string(pointer)};
    size_t index = 0;
    const auto end = key.data() + key.size();
    if (at->is_array() && std::from_chars(key.data(), end, index).ptr == end && index < at->size())
      at = &(*at)[index];
    else if (at->is_object() && at->contains(key))
      at = &at->at(std::string(key));
    else
      break;
  }
  return std::nullopt;
}

// Says where in the request the trouble is: in a tool's schema, or in the field itself.
Error placed(const ConstraintPlan& plan, Error error) {
  constexpr std::string_view kCalls = "/calls";
  const bool beside = error.field.starts_with(kCalls);
  if (plan.calls_are_it || beside) {
    const std::string& text = plan.calls_are_it ? plan.constraint.text : plan.constraint.calls;
    const auto tag = parse_ordered_json(text, {.max_bytes = text.size(), .max_depth = 128});
    const std::string pointer = beside ? error.field.substr(kCalls.size()) : error.field;
    const auto tool = tag ? tool_at(*tag, pointer) : std::nullopt;
    const std::string where = tool && !tool->pointer.empty() ? " at " + tool->pointer : "";
    const std::string what =
        tool ? fmt::format("the parameters of \"{}\"{}: ", tool->function, where)
             : std::string("the tools' calls: ");
    return {error.code, "tools: " + what + error.what, "tools"};
  }
  const std::string where = error.field.empty() ? "" : " at " + error.field;
  return {error.code, fmt::format("{}{}: {}", plan.field, where, error.what), plan.field};
}

grammar::ReasoningMarks marks_of(const answer::ReasoningFormat& format, bool inside) {
  return {.begin = std::string(format.begin),
          .end = std::string(format.end),
          .content = std::string(format.content),
          .content_end = std::string(format.content_end),
          .inside = inside};
}

}  // namespace

bool asks_for_form(const Request& request, const PromptInput& input) {
  const OrderedJson* tools = tools_of(request, input);
  return request.constraint || request.must_call ||
         (tools && std::ranges::any_of(*tools, answer::is_strict));
}

Result<std::optional<ConstraintPlan>> plan_constraint(const Request& request,
                                                      const AnswerSplit* split) {
  auto calls = calls_of(request, split);
  if (!calls) return calls.error();
  std::optional<ConstraintPlan> plan;
  if (!*calls && !request.constraint) return plan;
  plan.emplace();
  if (request.constraint && !request.must_call) {
    plan->constraint = *request.constraint;
    plan->field = request.constraint_field;
    if (*calls) plan->constraint.calls = (*calls)->dump();
    return plan;
  }
  // Where the reply must call, a form of its content has nothing to hold on to.
  plan->constraint.kind = grammar::ConstraintKind::kStructuralTag;
  plan->constraint.text = (*calls)->dump();
  if (request.constraint) plan->constraint.no_whitespace = request.constraint->no_whitespace;
  plan->field = request.must_call ? "tool_choice" : "tools";
  plan->calls_are_it = true;
  return plan;
}

// A form that is complete ends the reply, so min_tokens does not hold it open.
std::optional<Error> add_constraint(const Request& request, const AnswerSplit* split,
                                    ConstraintCompiler* compiler, bool in_reasoning,
                                    Prepared& prepared) {
  auto plan = plan_constraint(request, split);
  if (!plan) return plan.error();
  if (!*plan) return std::nullopt;
  ConstraintPlan& wanted = **plan;
  if (!compiler)
    return Error{Code::kInvalid,
                 wanted.field +
                     ": structured output is off on this server (it was started with "
                     "--guided-decoding-backend off)",
                 wanted.field};
  const Reasoning reasoning =
      split && !in_reasoning ? split->reasoning(request, prepared.prompt) : Reasoning::kNone;
  const auto compile = [&](bool reasons) {
    grammar::Constraint constraint = wanted.constraint;
    if (reasons)
      constraint.reasoning = marks_of(*split->formats().reasoning, reasoning == Reasoning::kInside);
    return compiler->compile(std::move(constraint));
  };
  auto compiled = compile(reasoning != Reasoning::kNone);
  if (!compiled) return placed(wanted, compiled.error());
  prepared.measured = *compiled;
  prepared.constraint_kind = label_of(wanted.constraint.kind);
  prepared.params.constraint = std::move(*compiled);
  prepared.params.min_tokens = 0;
  if (reasoning == Reasoning::kNone || request.reasoning_budget < 0) return std::nullopt;
  auto answer = compile(false);
  if (!answer) return placed(wanted, answer.error());
  prepared.answer_constraint = std::move(*answer);
  return std::nullopt;
}

}  // namespace skiff::service
