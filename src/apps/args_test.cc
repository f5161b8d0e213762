#include "apps/args.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "apps/help.h"

namespace skiff::apps {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr Commands kEvery[] = {kServe,   kPredict,   kChat,     kBench, kTokenize,
                               kInspect, kConstrain, kDownload, kRoute};

Args parse(Commands command, std::vector<std::string> words) { return Args(command, words); }

// Returns the message that the user reads.
std::string refusal(Commands command, std::vector<std::string> words) {
  try {
    parse(command, std::move(words));
  } catch (const UsageError& e) {
    return e.what();
  }
  return "(accepted)";
}

template <class Visit>
void each_flag(Visit visit) {
  for (const FlagGroup& group : flag_groups())
    for (const Flag& flag : group.flags) visit(flag);
}

TEST(FlagTable, NamesAreUniquePerCommand) {
  for (const Commands command : kEvery) {
    std::set<std::string_view> seen;
    each_flag([&](const Flag& flag) {
      if (!(flag.commands & command)) return;
      EXPECT_TRUE(seen.insert(flag.name).second) << flag.name << " " << command_name(command);
      if (flag.alias.empty()) return;
      EXPECT_TRUE(seen.insert(flag.alias).second) << flag.alias << " " << command_name(command);
    });
  }
}

TEST(FlagTable, NamesAreInDashedLowerCaseAndHelpIsThere) {
  each_flag([](const Flag& flag) {
    EXPECT_EQ(flag.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-"),
              std::string_view::npos)
        << flag.name;
    EXPECT_FALSE(flag.name.starts_with("no-")) << flag.name << ": --no- negates a switch";
    EXPECT_NE(flag.commands, 0u) << flag.name;
    EXPECT_TRUE(flag.help.ends_with(".")) << flag.name;
  });
}

// A fallback that is not empty must be what the parser would accept.
TEST(FlagTable, FallbacksParseAndLieInRange) {
  each_flag([](const Flag& flag) {
    for (const Commands command : kEvery) {
      if (!(flag.commands & command) || flag.fallback.empty()) continue;
      EXPECT_EQ(refusal(command, {fmt::format("--{}={}", flag.name, flag.fallback)}), "(accepted)");
    }
    EXPECT_TRUE(flag.kind != Kind::kChoice || !flag.choices.empty()) << flag.name;
    // The model decides the default of --chat.
    EXPECT_TRUE(flag.kind != Kind::kSwitch || !flag.fallback.empty() || flag.name == "chat")
        << flag.name;
    EXPECT_LE(flag.min, flag.max) << flag.name;
  });
}

TEST(FlagTable, EveryFlagIsInItsCommandsHelp) {
  for (const Commands command : kEvery) {
    const std::string help = command_help(command);
    each_flag([&](const Flag& flag) {
      if (!(flag.commands & command) || flag.standing != Standing::kApplied) return;
      EXPECT_THAT(help, HasSubstr(fmt::format("--{}", flag.name))) << command_name(command);
    });
  }
}

// Names that users of FastDeploy type; a sample of each part of its tables.
TEST(FlagTable, KnowsFastDeploysNames) {
  for (const char* name : {"host",
                           "port",
                           "workers",
                           "metrics-port",
                           "controller-port",
                           "max-waiting-time",
                           "max-concurrency",
                           "model",
                           "served-model-name",
                           "revision",
                           "model-config-name",
                           "tokenizer",
                           "max-model-len",
                           "block-size",
                           "task",
                           "runner",
                           "convert",
                           "override-pooler-config",
                           "model-impl",
                           "load-choices",
                           "lm-head-fp32",
                           "dynamic-load-weight",
                           "load-strategy",
                           "rsync-config",
                           "quantization",
                           "seed",
                           "use-warmup",
                           "limit-mm-per-prompt",
                           "mm-processor-kwargs",
                           "max-encoder-cache",
                           "max-processor-cache",
                           "disable-chunked-mm-input",
                           "enable-mm",
                           "reasoning-parser",
                           "tool-call-parser",
                           "tool-parser-plugin",
                           "chat-template",
                           "enable-logprob",
                           "max-logprobs",
                           "logprobs-mode",
                           "logits-processors",
                           "enable-early-stop",
                           "early-stop-config",
                           "guided-decoding-backend",
                           "gpu-memory-utilization",
                           "num-gpu-blocks-override",
                           "max-num-seqs",
                           "max-num-batched-tokens",
                           "kv-cache-ratio",
                           "enable-prefix-caching",
                           "swap-space",
                           "enable-chunked-prefill",
                           "max-num-partial-prefills",
                           "long-prefill-token-threshold",
                           "enable-overlap-schedule",
                           "tensor-parallel-size",
                           "tp",
                           "data-parallel-size",
                           "enable-expert-parallel",
                           "ips",
                           "engine-worker-queue-port",
                           "cache-queue-port",
                           "splitwise-role",
                           "router",
                           "speculative-config",
                           "graph-optimization-config",
                           "config"}) {
    bool found = false;
    each_flag([&](const Flag& flag) {
      found |= (flag.name == name || flag.alias == name) && (flag.commands & kServe);
    });
    EXPECT_TRUE(found) << name;
  }
}

TEST(Args, AcceptsEveryForm) {
  for (const auto& words : std::vector<std::vector<std::string>>{{"--max-model-len", "4096"},
                                                                 {"--max-model-len=4096"},
                                                                 {"--max_model_len", "4096"},
                                                                 {"--max_model_len=4096"}})
    EXPECT_EQ(parse(kServe, words).integer("max-model-len"), 4096);
  EXPECT_EQ(parse(kPredict, {"--max_length", "7"}).integer("max-tokens"), 7);
  EXPECT_EQ(parse(kServe, {"-tp", "2"}).integer("tensor-parallel-size"), 2);
  EXPECT_THAT(parse(kServe, {"--enable_eplb"}).warnings(), ElementsAre(HasSubstr("--enable-eplb")));
}

TEST(Args, Switches) {
  EXPECT_FALSE(parse(kPredict, {}).on("ignore-eos"));
  EXPECT_TRUE(parse(kPredict, {"--ignore-eos"}).on("ignore-eos"));
  EXPECT_FALSE(parse(kPredict, {"--ignore-eos=false"}).on("ignore-eos"));
  EXPECT_FALSE(parse(kServe, {"--no-enable-prefix-caching"}).on("enable-prefix-caching"));
  EXPECT_FALSE(parse(kServe, {"--enable_prefix_caching=False"}).on("enable-prefix-caching"));
  EXPECT_THAT(refusal(kPredict, {"--ignore-eos=maybe"}), HasSubstr("maybe"));
  EXPECT_THAT(refusal(kServe, {"--no-port"}), HasSubstr("unknown flag"));
}

TEST(Args, PositionalAndValuesThatBeginWithADash) {
  const Args args = parse(kPredict, {"folder", "--prompt=--chat", "--top-k", "-1", "--", "--x"});
  EXPECT_THAT(args.positional(), ElementsAre("folder", "--x"));
  EXPECT_THAT(args.texts("prompt"), ElementsAre("--chat"));
  EXPECT_EQ(args.integer("top-k"), -1);
  EXPECT_FALSE(args.on("chat"));
}

TEST(Args, RepeatableFlagsCollectOthersTakeTheLast) {
  const Args args = parse(kPredict, {"--prompt", "a", "--prompt=b", "--seed", "1", "--seed", "2"});
  EXPECT_THAT(args.texts("prompt"), ElementsAre("a", "b"));
  EXPECT_EQ(args.integer("seed"), 2);
}

TEST(Args, OneNameMayMeanDifferentThings) {
  EXPECT_TRUE(parse(kPredict, {"--chat"}).on("chat"));
  EXPECT_EQ(parse(kTokenize, {"--chat", "file.json"}).text("chat"), "file.json");
}

TEST(Args, RefusalsNameFlagValueAndRange) {
  EXPECT_EQ(refusal(kServe, {"--port", "70000"}),
            "--port wants a whole number in [0, 65535], not \"70000\"");
  EXPECT_THAT(refusal(kServe, {"--port", "80x"}), HasSubstr("\"80x\""));
  EXPECT_THAT(refusal(kServe, {"--port", ""}), HasSubstr("--port"));
  EXPECT_THAT(refusal(kPredict, {"--top-p", "nan"}), HasSubstr("--top-p wants a number in [0, 1]"));
  EXPECT_THAT(refusal(kPredict, {"--top-p", "inf"}), HasSubstr("\"inf\""));
  EXPECT_THAT(refusal(kPredict, {"--seed", "99999999999999999999"}), HasSubstr("--seed"));
  EXPECT_EQ(refusal(kServe, {"--dtype", "int4"}),
            "--dtype is one of auto|float32|bfloat16, not \"int4\"");
  EXPECT_EQ(refusal(kServe, {"--port"}), "--port needs a value");
  EXPECT_EQ(parse(kServe, {"--kv_cache_dtype", "int8"}).text("kv-cache-dtype"), "int8");
}

TEST(Args, UnknownFlagsGetASuggestion) {
  EXPECT_EQ(refusal(kServe, {"--max-modle-len", "1"}),
            "unknown flag --max-modle-len; did you mean --max-model-len? (see skiff serve --help)");
  EXPECT_EQ(refusal(kServe, {"--qqqqqqqqqqqq"}),
            "unknown flag --qqqqqqqqqqqq (see skiff serve --help)");
}

TEST(Args, KnownFlagsThatCannotApplyWarnOnce) {
  const Args args = parse(kServe, {"--eplb-config", "a", "--eplb-config", "b", "--model-impl=auto",
                                   "--temperature", "1", "--port", "1"});
  EXPECT_THAT(
      args.warnings(),
      ElementsAre(HasSubstr("--eplb-config is known"), HasSubstr("--model-impl has no meaning"),
                  HasSubstr("--temperature does not apply to skiff serve")));
  EXPECT_THAT(parse(kServe, {"--port", "1"}).warnings(), IsEmpty());
}

TEST(Args, AFlagIsNoValueOfAnother) {
  EXPECT_THAT(refusal(kServe, {"m", "--api-key", "--port=8001"}),
              HasSubstr("--api-key needs a value, but the flag --port follows"));
  EXPECT_THAT(refusal(kServe, {"m", "--served-model-name", "--port", "8001"}),
              HasSubstr("--served-model-name needs a value"));
  EXPECT_EQ(parse(kPredict, {"m", "--prompt", "--what is this"}).text("prompt"), "--what is this");
  EXPECT_EQ(parse(kServe, {"m", "--api-key=--port"}).texts("api-key").front(), "--port");
}

TEST(Args, SwitchesTakeATruthBehindThem) {
  const Args args = parse(kServe, {"--use-cudagraph", "false", "models/demo"});
  EXPECT_FALSE(args.on("use-cudagraph"));
  EXPECT_THAT(args.positional(), ElementsAre("models/demo"));
  EXPECT_TRUE(parse(kServe, {"--no-use-cudagraph", "False"}).on("use-cudagraph"));
}

TEST(Args, OneDashIsTheSameAsTwo) {
  EXPECT_EQ(parse(kServe, {"m", "-max_model_len=100"}).integer("max-model-len"), 100);
  EXPECT_EQ(parse(kServe, {"m", "-port=1", "-max_model_len", "7"}).integer("max-model-len"), 7);
  EXPECT_THAT(refusal(kServe, {"m", "-q"}), HasSubstr("unknown flag -q"));
  EXPECT_THAT(parse(kStop, {"-5"}).positional(), ElementsAre("-5"));
}

TEST(Args, NamesOfOtherEnginesAreTranslated) {
  EXPECT_THAT(refusal(kServe, {"--context-length", "9"}), HasSubstr("here it is --max-model-len"));
  EXPECT_THAT(refusal(kServe, {"-m", "x"}), HasSubstr("unknown flag -m; here it is --model"));
  EXPECT_THAT(refusal(kServe, {"--disable-radix-cache"}),
              HasSubstr("here it is --no-enable-prefix-caching"));
  // What the command does not have is no translation.
  EXPECT_THAT(refusal(kTokenize, {"--tp-size", "2"}), Not(HasSubstr("here it is")));
}

TEST(Args, HelpIsAFlagAndNoValue) {
  EXPECT_TRUE(wants_help(kPredict, std::vector<std::string>{"m", "--ignore-eos", "-h"}));
  EXPECT_FALSE(wants_help(kPredict, std::vector<std::string>{"m", "--prompt", "--help"}));
  EXPECT_FALSE(wants_help(kPredict, std::vector<std::string>{"m", "--", "--help"}));
}

}  // namespace
}  // namespace skiff::apps
