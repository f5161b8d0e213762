#include "serve/service/constraint_compiler.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "serve/service/engine_testing.h"

namespace skiff::service {
namespace {

grammar::Constraint choice(const char* of) {
  return {.kind = grammar::ConstraintKind::kChoice, .text = of};
}

// A compilation that ran out of memory leaves nothing: neither an entry that cannot be read, nor a
// caller that counts as waiting.
TEST(ConstraintCompilerTest, WhatCouldNotBeCompiledIsCompiledAgain) {
  const ByteTokenizer tokenizer;
  const std::vector<Token> ends = {ByteTokenizer::kEos};
  bool full = true;
  ConstraintCompiler compiler(
      grammar::Vocabulary::of(tokenizer, tokenizer.vocab_size(), ends),
      {.max_waiting = 2, .compile = [&](const auto& constraint, auto vocabulary) {
         if (full) throw std::bad_alloc();
         return grammar::compile(constraint, std::move(vocabulary));
       }});
  for (int i = 0; i < 5; ++i)
    EXPECT_THROW((void)compiler.compile(choice(R"(["yes","no"])")), std::bad_alloc) << i;
  full = false;
  EXPECT_TRUE(compiler.compile(choice(R"(["yes","no"])")));
  EXPECT_TRUE(compiler.compile(choice(R"(["a","b"])")));
}

// The thread that compiles leaves the processors to the others; its caller stays as it was.
TEST(ConstraintCompilerTest, CompilingIsBehindAllElse) {
  const auto niceness = [] { return getpriority(PRIO_PROCESS, 0); };
  const int before = niceness();
  int meanwhile = before;
  const ByteTokenizer tokenizer;
  const std::vector<Token> ends = {ByteTokenizer::kEos};
  ConstraintCompiler compiler(grammar::Vocabulary::of(tokenizer, tokenizer.vocab_size(), ends),
                              {.compile = [&](const auto& constraint, auto vocabulary) {
                                meanwhile = niceness();
                                return grammar::compile(constraint, std::move(vocabulary));
                              }});
  EXPECT_TRUE(compiler.compile(choice(R"(["yes","no"])")));
  EXPECT_EQ(meanwhile, std::min(before + 10, 19));
  EXPECT_EQ(niceness(), before);
}

// Another process, which draws the same tokens, has to give their masks the same fuel.
TEST(ConstraintCompilerTest, ASourceSaysHowManyAnswersShareAStep) {
  const ByteTokenizer tokenizer;
  const std::vector<Token> ends = {ByteTokenizer::kEos};
  int compiled = 0;
  ConstraintCompiler compiler(grammar::Vocabulary::of(tokenizer, tokenizer.vocab_size(), ends),
                              {.compile = [&](const auto& constraint, auto vocabulary) {
                                ++compiled;
                                return grammar::compile(constraint, std::move(vocabulary));
                              }});
  const auto constraint = compiler.compile(choice(R"(["yes","no"])"));
  ASSERT_TRUE(constraint);
  const std::string source = (*constraint)->for_choice(4)->source();
  EXPECT_NE(source, (*constraint)->source());
  const auto there = compiler.compile_source(source);
  ASSERT_TRUE(there);
  EXPECT_EQ((*there)->source(), source);
  EXPECT_EQ(compiled, 1) << "it is one grammar for any number of answers";
}

}  // namespace
}  // namespace skiff::service
