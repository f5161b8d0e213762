#include "apps/config_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/yaml.h"

namespace skiff::apps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Args serve(const std::vector<std::string>& words = {}) { return {kServe, words}; }

std::vector<std::string> words_of(const std::string& text,
                                  const std::vector<std::string>& command_line = {}) {
  return config_words(text, "f.yaml", serve(command_line));
}

std::string refusal(const std::string& text) {
  try {
    words_of(text);
    return "accepted";
  } catch (const UsageError& e) {
    return e.what();
  }
}

TEST(ConfigFile, KeysAreFlags) {
  EXPECT_THAT(words_of("# a comment\nmodel: /models/x\nmax_model_len: 4096\nport: \"81\"\n"),
              ElementsAre("--model=/models/x", "--max_model_len=4096", "--port=81"));
  EXPECT_THAT(words_of(""), IsEmpty());
  EXPECT_THAT(words_of("---\n{port: 81}\n...\n"), ElementsAre("--port=81"));
}

TEST(ConfigFile, SwitchesListsAndObjects) {
  EXPECT_THAT(
      words_of("webui: no\nenable-logprob: True\nno-enable-prefix-caching: true\n"),
      ElementsAre("--webui=false", "--enable-logprob=true", "--no-enable-prefix-caching=true"));
  EXPECT_THAT(words_of("access-log: off\n"), ElementsAre("--access-log=off"));  // no switch
  EXPECT_THAT(words_of("served-model-name: [a, 'b c']\n"),
              ElementsAre("--served-model-name=a", "--served-model-name=b c"));
  EXPECT_THAT(words_of("speculative-config:\n  method: ngram\n  num_speculative_tokens: 4\n"
                       "  rate: 0.5\n  exact: yes\n  of: ['1', ~]\n"),
              ElementsAre("--speculative-config={\"method\":\"ngram\",\"num_speculative_tokens\":4,"
                          "\"rate\":0.5,\"exact\":true,\"of\":[\"1\",null]}"));
}

TEST(ConfigFile, TheCommandLineWins) {
  const std::string text = "port: 81\nserved-model-name: [a, b]\nmodel: x\nwebui: false\n";
  EXPECT_THAT(words_of(text, {"--port", "5", "--served_model_name=c"}),
              ElementsAre("--model=x", "--webui=false"));
  EXPECT_THAT(words_of(text, {"/models/y", "--webui"}),
              ElementsAre("--port=81", "--served-model-name=a", "--served-model-name=b"));
}

TEST(ConfigFile, RefusalsNameFileLineAndKey) {
  EXPECT_THAT(refusal("port: 81\nmax-modl-len: 4\n"),
              AllOf(HasSubstr("f.yaml:2: "), HasSubstr("max-modl-len"),
                    HasSubstr("did you mean --max-model-len")));
  EXPECT_THAT(refusal("\nport: many\n"), AllOf(HasSubstr("f.yaml:2: "), HasSubstr("--port")));
  EXPECT_THAT(refusal("webui: perhaps\n"), HasSubstr("f.yaml:1: "));
  EXPECT_THAT(refusal("port:\n"), AllOf(HasSubstr("f.yaml:1: port"), HasSubstr("no value")));
  EXPECT_THAT(refusal("--port: 81\n"), HasSubstr("without dashes"));
  EXPECT_THAT(refusal("host=a: b\n"), HasSubstr("no flag"));
  EXPECT_THAT(refusal("no-webui: true\nwebui: false\n"), HasSubstr("above"));
  EXPECT_THAT(refusal("config: g.yaml\n"), HasSubstr("another"));
  EXPECT_THAT(refusal("port: [1, 2]\n"), HasSubstr("one value"));
  EXPECT_THAT(refusal("api-key: [[1]]\n"), HasSubstr("list of lists"));
  EXPECT_THAT(refusal("port: {a: 1}\n"), HasSubstr("no keys of its own"));
  EXPECT_THAT(refusal("port: 1\nport: 2\n"), AllOf(HasSubstr(":2: "), HasSubstr("twice")));
  EXPECT_THAT(refusal("max-model-len: 1\nwebui: on\nmax_model_len: 2\n"),
              AllOf(HasSubstr(":3: "), HasSubstr("above")));
  EXPECT_THAT(refusal("- port\n"), HasSubstr("expected keys"));
  EXPECT_THAT(refusal("port\n"), HasSubstr("expected keys"));
}

TEST(ConfigFile, WhatIsNoPlainYamlIsRefused) {
  EXPECT_THAT(refusal("a: &x 1\nb: *x\n"), HasSubstr("f.yaml:1: an anchor"));
  EXPECT_THAT(refusal("a: *x\n"), HasSubstr("f.yaml:1: an alias"));
  EXPECT_THAT(refusal("port: !!int 1\n"), HasSubstr("a tag"));
  EXPECT_THAT(refusal("port: 1\n---\nport: 2\n"), HasSubstr("f.yaml:2: a second document"));
  EXPECT_THAT(refusal("? [a]\n: 1\n"), HasSubstr("a key that is no text"));
  EXPECT_THAT(refusal("host: \"a\\0b\"\n"), HasSubstr("a NUL"));
  EXPECT_THAT(refusal("port: 81\n  host: x\n"), HasSubstr("f.yaml:2: "));
  EXPECT_THAT(refusal("port: [1\n"), HasSubstr("f.yaml:"));
  EXPECT_THAT(refusal("host: \xff\xfe\n"), HasSubstr("f.yaml:"));
  EXPECT_THAT(refusal("a: " + std::string(20, '[') + std::string(20, ']')), HasSubstr("levels"));
  std::string many;
  for (size_t i = 0; i <= kMaxYamlKeys; ++i) many += fmt::format("k{}: 1\n", i);
  EXPECT_THAT(refusal(many), HasSubstr("keys"));
  EXPECT_THAT(refusal(std::string(kMaxYamlBytes, '#') + "\n"), HasSubstr("bytes"));
}

TEST(ConfigFile, FilesThatCannotBeReadAreNamed) {
  EXPECT_THAT(config_file_words(serve()), IsEmpty());
  for (const char* path : {"/nonexistent/f.yaml", "/"}) {
    try {
      config_file_words(serve({"--config", path}));
      ADD_FAILURE() << path;
    } catch (const UsageError& e) {
      EXPECT_THAT(e.what(), HasSubstr(path));
    }
  }
}

}  // namespace
}  // namespace skiff::apps
