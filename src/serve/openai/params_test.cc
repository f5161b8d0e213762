// Every field of a request body: its effect, and which values are refused.
#include "serve/openai/params.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serve/openai/fields.h"

namespace skiff::openai {
namespace {

Result<OpenAiCall> parse(Endpoint endpoint, const std::string& fields) {
  const bool chat = endpoint == Endpoint::kChat;
  const char* input = chat ? R"("messages":[{"role":"user","content":"x"}])" : R"("prompt":"x")";
  const auto body =
      parse_ordered_json(fmt::format("{{{}{}{}}}", input, fields.empty() ? "" : ",", fields), {});
  SKIFF_CHECK(body, "a test's body: {}", fields);
  return parse_openai_call(*body, endpoint, {});
}
OpenAiCall chat(const std::string& fields) { return *parse(Endpoint::kChat, fields); }
OpenAiCall complete(const std::string& fields) { return *parse(Endpoint::kCompletions, fields); }

std::string entry(const char* name, const std::string& value) {
  return fmt::format("\"{}\":{}", name, value);
}

std::string refused_field(Endpoint endpoint, const std::string& fields) {
  const auto call = parse(endpoint, fields);
  return call ? "none" : call.error().field;
}

// Every integer option gets the same odd values.
TEST(OpenAiParams, Item31IntegersHaveOneReader) {
  struct Case {
    const char* name;
    Endpoint endpoint;
    int64_t low, high;
  };
  constexpr int64_t kInt = 2147483647, kLong = std::numeric_limits<int64_t>::max();
  const Case cases[] = {
      {"n", Endpoint::kChat, 1, 128},
      {"best_of", Endpoint::kCompletions, 1, 128},
      {"top_k", Endpoint::kChat, -1, kInt},
      {"seed", Endpoint::kChat, -kLong - 1, kLong},
      {"max_tokens", Endpoint::kChat, 1, kInt},
      {"max_completion_tokens", Endpoint::kChat, 1, kInt},
      {"min_tokens", Endpoint::kChat, 0, kInt},
      {"priority", Endpoint::kChat, -kInt, kInt},
      {"logprobs", Endpoint::kCompletions, -1, kAllLogprobs},
      {"prompt_logprobs", Endpoint::kCompletions, -1, kAllLogprobs},
      {"max_streaming_response_tokens", Endpoint::kChat, 1, kInt},
      {"truncate_prompt_tokens", Endpoint::kChat, -1, kInt},
      {"stream_interval", Endpoint::kChat, 1, kInt},
  };
  for (const Case& c : cases) {
    const auto field = [&](const std::string& value) {
      return refused_field(c.endpoint, entry(c.name, value));
    };
    EXPECT_EQ(field("null"), "none") << c.name;
    for (int64_t good : {c.low, c.high})
      EXPECT_EQ(field(std::to_string(good)), "none") << c.name << good;
    if (c.high >= 5) {
      EXPECT_EQ(field("5.0"), "none") << c.name;
    }
    for (const char* bad :
         {"\"5\"", "true", "[]", "{}", "1.5", "9223372036854775808", "-9223372036854775809",
          "18446744073709551616", "1e308", "-1e308", "1e30"})
      EXPECT_EQ(field(bad), c.name) << bad;
    if (c.low > -kLong) {
      EXPECT_EQ(field(std::to_string(c.low - 1)), c.name);
    }
    if (c.high < kLong) {
      EXPECT_EQ(field(std::to_string(c.high + 1)), c.name);
    }
    if (c.high <= kInt) {
      EXPECT_EQ(field("2147483648"), c.name);
    }
  }
}

TEST(OpenAiParams, NumbersHaveRanges) {
  for (const char* name : {"temperature", "top_p", "min_p", "repetition_penalty",
                           "presence_penalty", "frequency_penalty"}) {
    EXPECT_EQ(refused_field(Endpoint::kChat, entry(name, "1")), "none");
    EXPECT_EQ(refused_field(Endpoint::kChat, entry(name, "0.5")), "none");
    for (const char* bad : {"\"1\"", "true", "[]", "-3", "1e300", "-1e300"})
      EXPECT_EQ(refused_field(Endpoint::kChat, entry(name, bad)), name) << bad;
  }
}

TEST(OpenAiParams, SwitchesAreNoNumbers) {
  for (const char* name :
       {"stream", "logprobs", "ignore_eos", "skip_special_tokens", "include_stop_str_in_output",
        "return_token_ids", "add_generation_prompt", "continue_final_message",
        "disable_chat_template", "add_special_tokens", "parse_special_tokens", "store",
        "parallel_tool_calls", "detokenize", "temp_scaled_logprobs"})
    for (const char* bad : {"1", "0", "\"true\"", "[]", "{}"})
      EXPECT_EQ(refused_field(Endpoint::kChat, entry(name, bad)), name) << bad;
}

TEST(OpenAiParams, TheNewerNameOfMaxTokensWins) {
  EXPECT_EQ(chat(R"("max_tokens":7)").request.stop.max_tokens, 7);
  EXPECT_EQ(chat(R"("max_tokens":7,"max_completion_tokens":3)").request.stop.max_tokens, 3);
  EXPECT_EQ(chat(R"("max_completion_tokens":3,"max_tokens":7)").request.stop.max_tokens, 3);
  EXPECT_EQ(complete(R"("max_tokens":16)").request.stop.max_tokens, 16);
  for (const char* both : {R"("echo":true,"max_tokens":0,"max_completion_tokens":3)",
                           R"("echo":true,"max_completion_tokens":3,"max_tokens":0)"}) {
    EXPECT_EQ(complete(both).request.stop.max_tokens, 3);
    EXPECT_FALSE(complete(both).discard_output) << both;
  }
  EXPECT_EQ(chat("").request.stop.max_tokens, 0);
  const auto refused = parse(Endpoint::kChat, R"("max_tokens":0)");
  EXPECT_EQ(refused.error().what, "max_tokens can be defined [1, max_model_len), but now it's 0.");
}

TEST(OpenAiParams, AllowedToolsAreAsManyAsTools) {
  const auto with_names = [](size_t count) {
    const std::vector<OrderedJson> names(count, {{"type", "function"}, {"name", "f"}});
    const OrderedJson choice = {{"type", "allowed_tools"}, {"mode", "auto"}, {"tools", names}};
    return R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":)" +
           choice.dump();
  };
  EXPECT_EQ(refused_field(Endpoint::kChat, with_names(1024)), "none");
  EXPECT_EQ(refused_field(Endpoint::kChat, with_names(1025)), "tool_choice");
}

TEST(OpenAiParams, AnyNumberOfTokensOfReasoningHasThreeSpellings) {
  for (const char* name : {"reasoning_max_tokens", "thinking_token_budget"}) {
    EXPECT_EQ(chat(entry(name, "7")).request.reasoning_budget, 7);
    EXPECT_EQ(chat(entry(name, "-1")).request.reasoning_budget, -1);
    EXPECT_EQ(refused_field(Endpoint::kChat, entry(name, "-2")), name);
  }
  EXPECT_EQ(chat(R"("thinking":{"type":"enabled","budget_tokens":-1})").request.reasoning_budget,
            -1);
  EXPECT_EQ(refused_field(Endpoint::kChat, R"("reasoning_max_tokens":0)"), "reasoning_max_tokens");
}

TEST(OpenAiParams, FieldsOfVllmAreHonouredOrRefused) {
  EXPECT_FALSE(chat(R"("truncation_side":"left")").request.truncate_end);
  EXPECT_TRUE(complete(R"("truncation_side":"right")").request.truncate_end);
  EXPECT_EQ(refused_field(Endpoint::kChat, R"("truncation_side":"middle")"), "truncation_side");
  EXPECT_EQ(complete(R"("stream_interval":9)").max_streaming_tokens, 9);
  EXPECT_TRUE(chat(R"("return_tokens_as_token_ids":true)").tokens_as_ids);
  for (const char* absent : {"logprob_token_ids", "repetition_detection"})
    for (const Endpoint endpoint : {Endpoint::kChat, Endpoint::kCompletions})
      EXPECT_EQ(refused_field(endpoint, entry(absent, "[1]")), absent);
}

// Names of llama.cpp and transformers that would change the reply: none is passed over in silence.
TEST(OpenAiParams, FieldsOfOtherEnginesConstrainOrAreRefused) {
  EXPECT_TRUE(complete(R"("grammar":"root ::= \"a\"")").request.constraint);
  for (const char* name : {"n_predict", "max_new_tokens", "min_new_tokens", "repeat_penalty"})
    EXPECT_EQ(refused_field(Endpoint::kChat, entry(name, "2")), name);
  for (const char* name : {"typical_p", "mirostat", "dry_multiplier", "xtc_probability"})
    EXPECT_EQ(refused_field(Endpoint::kCompletions, entry(name, "0.5")), name);
  EXPECT_EQ(refused_field(Endpoint::kCompletions, R"("mirostat":0,"typical_p":1.0)"), "none");
}

TEST(OpenAiParams, ChoicesAndStreams) {
  EXPECT_EQ(chat("").best_of, 1);
  EXPECT_EQ(chat(R"("n":3)").best_of, 3);
  EXPECT_EQ(complete(R"("n":2,"best_of":5)").best_of, 5);
  EXPECT_EQ(refused_field(Endpoint::kCompletions, R"("n":3,"best_of":2)"), "best_of");
  EXPECT_EQ(refused_field(Endpoint::kCompletions, R"("n":1,"best_of":2,"stream":true)"), "best_of");
  EXPECT_EQ(refused_field(Endpoint::kCompletions, R"("n":2,"best_of":2,"stream":true)"), "none");
  EXPECT_EQ(chat(R"("max_streaming_response_tokens":9)").max_streaming_tokens, 9);
  const OpenAiCall call = chat(R"("stream":true,"stream_options":{"include_obfuscation":false})");
  EXPECT_FALSE(call.include_usage);
  EXPECT_EQ(
      refused_field(Endpoint::kChat, R"("stream":true,"stream_options":{"include_obfuscation":1})"),
      "stream_options");
}

TEST(OpenAiParams, LogprobsOfAChat) {
  EXPECT_EQ(chat(R"("logprobs":true)").request.params.logprobs, 0);
  EXPECT_EQ(chat(R"("logprobs":true,"top_logprobs":3)").request.params.logprobs, 3);
  EXPECT_EQ(chat(R"("logprobs":true,"top_logprobs":-1)").request.params.logprobs, kAllLogprobs);
  EXPECT_EQ(chat(R"("top_logprobs":0)").request.params.logprobs, kNoLogprobs);
  EXPECT_EQ(refused_field(Endpoint::kChat, R"("top_logprobs":3)"), "top_logprobs");
  EXPECT_FALSE(chat(R"("logprobs":true)").request.params.draft_logprobs);
  EXPECT_TRUE(
      chat(R"("logprobs":true,"include_draft_logprobs":true)").request.params.draft_logprobs);
  EXPECT_EQ(refused_field(Endpoint::kChat, R"("include_draft_logprobs":1)"),
            "include_draft_logprobs");
}

TEST(OpenAiParams, BiasesHaveDigitsAsKeys) {
  const auto bias = [](const std::string& object) {
    return refused_field(Endpoint::kChat, entry("logit_bias", object));
  };
  EXPECT_EQ(chat(R"("logit_bias":{"7":-100,"0":2.5})").request.params.logit_bias,
            (std::vector<std::pair<Token, float>>{{7, -100.f}, {0, 2.5f}}));
  for (const char* bad :
       {R"({"":1})", R"({"-1":1})", R"({"+1":1})", R"({" 1":1})", R"({"1 ":1})", R"({"07":1})",
        R"({"1.0":1})", R"({"0x1":1})", R"({"1\u0000":1})", R"({"2147483648":1})",
        R"({"99999999999999999999":1})", R"({"1":"1"})", R"({"1":null})", R"({"1":101})",
        R"({"1":-100.5})", "[]", "[[1,2]]", "\"x\""})
    EXPECT_EQ(bias(bad), "logit_bias") << bad;
  EXPECT_EQ(chat(R"("logits_processors_args":{"logit_bias":{"3":1}})")
                .request.params.logit_bias.at(0)
                .first,
            3);
  EXPECT_EQ(refused_field(Endpoint::kChat, R"("logits_processors_args":{"thinking_budget":5})"),
            "logits_processors_args");
}

TEST(OpenAiParams, AVocabularyOfBiases) {
  std::string object = "{\"0\":0";
  for (int i = 1; i < 200000; ++i) object += fmt::format(",\"{}\":1", i);
  const std::string body = fmt::format(R"({{"prompt":"x","logit_bias":{}}}}})", object);
  const auto json = parse_ordered_json(body, {.wide = "logit_bias"});
  ASSERT_TRUE(json);
  const auto call = parse_openai_call(*json, Endpoint::kCompletions, {});
  ASSERT_TRUE(call);
  EXPECT_EQ(call->request.params.logit_bias.size(), 200000u);
  EXPECT_FALSE(parse_ordered_json(body, {}));
}

TEST(OpenAiParams, WhatIsNotThereYetIsRefusedByName) {
  for (const char* name :
       {"response_max_tokens", "mm_hashes", "prompt_embeds", "functions", "function_call", "audio",
        "temp_scaled_logprobs", "top_p_normalized_logprobs"}) {
    EXPECT_EQ(refused_field(Endpoint::kChat, entry(name, "null")), "none") << name;
    const auto refused = parse(Endpoint::kChat, entry(name, "true"));
    ASSERT_FALSE(refused) << name;
    EXPECT_EQ(refused.error().field, name);
    EXPECT_EQ(refused.error().code, Code::kUnsupported);
    EXPECT_THAT(refused.error().what, testing::HasSubstr("is not supported"));
  }
}

TEST(OpenAiParams, ConstraintsHaveManySpellings) {
  using grammar::ConstraintKind;
  struct Case {
    const char* field;
    const char* value;
    ConstraintKind kind;
    const char* text;
  };
  const std::vector<Case> cases = {
      {"response_format", R"({"type":"json_object"})", ConstraintKind::kJsonObject, ""},
      {"response_format", R"({"type":"json_object","schema":{}})", ConstraintKind::kJsonObject, ""},
      {"response_format", R"({"type":"json_object","schema":{"type":"object","required":["a"]}})",
       ConstraintKind::kJsonSchema, R"({"type":"object","required":["a"]})"},
      {"response_format",
       R"({"type":"json_schema","json_schema":{"name":"n","schema":{"b":1,"a":2}}})",
       ConstraintKind::kJsonSchema, R"({"b":1,"a":2})"},
      {"guided_json", R"({"type":"null"})", ConstraintKind::kJsonSchema, R"({"type":"null"})"},
      {"guided_json", R"("{\"type\": \"null\"}")", ConstraintKind::kJsonSchema,
       R"({"type": "null"})"},
      {"guided_regex", R"("a+")", ConstraintKind::kRegex, "a+"},
      {"guided_choice", R"(["a","b"])", ConstraintKind::kChoice, R"(["a","b"])"},
      {"guided_grammar", R"("root ::= \"x\"")", ConstraintKind::kGrammar, "root ::= \"x\""},
      {"ebnf", R"("root ::= \"x\"")", ConstraintKind::kGrammar, "root ::= \"x\""},
      {"structured_outputs", R"({"regex":"b"})", ConstraintKind::kRegex, "b"},
      {"structured_outputs", R"({"json":{"type":"null"},"whitespace_pattern":" ?"})",
       ConstraintKind::kJsonSchema, R"({"type":"null"})"},
      {"structural_tag", R"({"format":{}})", ConstraintKind::kStructuralTag, R"({"format":{}})"},
  };
  for (const Case& one : cases) {
    const auto call = parse(Endpoint::kChat, entry(one.field, one.value));
    ASSERT_TRUE(call) << one.field << ": " << call.error().what;
    ASSERT_TRUE(call->request.constraint) << one.field;
    EXPECT_EQ(call->request.constraint->kind, one.kind) << one.field;
    EXPECT_EQ(call->request.constraint->text, one.text) << one.field;
  }
}

TEST(OpenAiParams, TwoConstraintsAndMisspeltOnesAreRefused) {
  const auto refused = [](const std::string& fields) {
    const auto call = parse(Endpoint::kChat, fields);
    return call ? Error{} : call.error();
  };
  const Error two =
      refused(entry("guided_regex", "\"a\"") + "," + entry("guided_choice", "[\"b\"]"));
  EXPECT_EQ(two.field, "guided_choice");
  EXPECT_THAT(two.what, testing::HasSubstr("guided_regex"));
  EXPECT_EQ(refused(entry("structured_outputs", R"({"regex":"a","choice":["b"]})")).field,
            "structured_outputs");
  EXPECT_THAT(refused(entry("structured_outputs", R"({"choices":["b"]})")).what,
              testing::HasSubstr("\"choice\""));
  EXPECT_EQ(refused(entry("choices", "[\"b\"]")).field, "choices");
  EXPECT_EQ(refused(entry("extra_body", "{}")).field, "extra_body");
  for (const char* format :
       {R"({"type":"json_schema"})", R"({"type":"json_object","schema":5})",
        R"({"type":"json_object","schema":{"type":"null"},"strict":1})",
        R"({"type":"json_object","grammar":"a"})", R"({"type":"text","pattern":"a"})"})
    EXPECT_EQ(refused(entry("response_format", format)).field, "response_format") << format;
}

TEST(OpenAiParams, WhitespaceIsHonouredOrRefused) {
  const std::string pattern = entry("guided_whitespace_pattern", "\" ?\"");
  const std::string json = entry("guided_json", "{}");
  for (const std::string& fields :
       {fmt::format("{},{}", json, pattern), fmt::format("{},{}", pattern, json)})
    EXPECT_EQ(chat(fields).request.constraint->whitespace_pattern, " ?");
  EXPECT_EQ(chat(pattern).request.constraint, std::nullopt);
  for (const char* other :
       {R"("guided_regex":"a")", R"("guided_choice":["a"])", R"("guided_grammar":"root ::= \"x\"")",
        R"("structured_outputs":{"json":{},"disable_any_whitespace":true})",
        R"("structured_outputs":{"json":{},"whitespace_pattern":" *"})"})
    EXPECT_EQ(refused_field(Endpoint::kChat, pattern + "," + other), "guided_whitespace_pattern")
        << other;
  for (const char* both : {R"({"json":{},"whitespace_pattern":" ?","disable_any_whitespace":true})",
                           R"({"disable_any_whitespace":true,"whitespace_pattern":" ?","json":{}})",
                           R"({"regex":"a","whitespace_pattern":" ?"})"}) {
    const auto call = parse(Endpoint::kChat, entry("structured_outputs", both));
    ASSERT_FALSE(call) << both;
    EXPECT_EQ(call.error().field, "structured_outputs");
    EXPECT_THAT(call.error().what, testing::HasSubstr("whitespace_pattern")) << both;
  }
}

TEST(OpenAiParams, AWhitespacePatternHasABound) {
  const std::string long_one = '"' + std::string(1025, ' ') + '"';
  const std::string json = entry("guided_json", "{}") + ",";
  EXPECT_EQ(refused_field(Endpoint::kChat, json + entry("guided_whitespace_pattern", long_one)),
            "guided_whitespace_pattern");
  EXPECT_EQ(
      refused_field(Endpoint::kChat, entry("structured_outputs",
                                           R"({"json":{},"whitespace_pattern":)" + long_one + "}")),
      "structured_outputs");
}

// vLLM's class writes its members where they are off, too.
TEST(OpenAiParams, WhatIsSwitchedOffIsNotRefused) {
  const auto refused = [](const char* name, const char* value) {
    return refused_field(
        Endpoint::kChat,
        fmt::format(R"("structured_outputs":{{"json":{{}},"{}":{}}})", name, value));
  };
  for (const char* name : {"disable_fallback", "disable_additional_properties", "backend_was_auto",
                           "_backend_was_auto"}) {
    EXPECT_EQ(refused(name, "false"), "none") << name;
    EXPECT_EQ(refused(name, "true"), "structured_outputs") << name;
  }
  EXPECT_EQ(refused("_backend", "null"), "none");
  EXPECT_EQ(refused("unheard_of", "false"), "structured_outputs");
}

TEST(OpenAiParams, APredictionIsTextOrParts) {
  const auto reference = [](const std::string& content) {
    return chat(R"("prediction":{"type":"content","content":)" + content + "}").request.reference;
  };
  EXPECT_EQ(reference(R"("a b")"), "a b");
  EXPECT_EQ(reference(R"([{"type":"text","text":"a"},{"type":"text","text":"b"}])"), "ab");
  EXPECT_EQ(complete(R"("prediction":{"type":"content","content":"c"})").request.reference, "c");
  for (const char* wrong :
       {"1", R"("a")", "{}", R"({"type":"content"})", R"({"type":"text","content":"a"})",
        R"({"type":"content","content":3})", R"({"type":"content","content":["a"]})",
        R"({"type":"content","content":[{"type":"text"}]})",
        R"({"type":"content","content":[{"type":"image_url","text":"a"}]})"})
    EXPECT_EQ(refused_field(Endpoint::kChat, entry("prediction", wrong)), "prediction") << wrong;
}

// Unknown fields are kept by name, so that they can be reported.
TEST(OpenAiParams, Item18UnknownFieldsAreNamed) {
  EXPECT_THAT(chat(R"("frobnicate":1,"user":"u","echoo":null)").unknown_fields,
              testing::ElementsAre("frobnicate", "echoo"));
  EXPECT_THAT(chat(R"("suffix":"s")").unknown_fields, testing::ElementsAre("suffix"));
  std::string many = "\"a\":1";
  for (int i = 0; i < 500; ++i) many += fmt::format(",\"{}{}\":1", std::string(300, 'f'), i);
  const auto names = chat(many).unknown_fields;
  EXPECT_EQ(names.size(), 16u);
  EXPECT_LE(names.back().size(), 64u);
}

TEST(OpenAiParams, EveryFieldOfTheTablesIsReachable) {
  for (const auto& make : {sampling_fields, output_fields, input_fields, other_fields})
    for (const Field& field : make()) {
      const auto endpoint =
          field.scope == Scope::kCompletions ? Endpoint::kCompletions : Endpoint::kChat;
      EXPECT_NE(find_field(endpoint, field.name), nullptr) << field.name;
    }
  EXPECT_EQ(find_field(Endpoint::kChat, "suffix"), nullptr);
  EXPECT_EQ(find_field(Endpoint::kCompletions, "tools"), nullptr);
}

}  // namespace
}  // namespace skiff::openai
