// Random schedules of requests with real constraints on a small model: each reply follows its
// constraint, and has the tokens that its request gets alone and without drafts, whatever is
// preempted, drafted, cancelled, or in flight.
#include <algorithm>

#include "engine/schedules_testing.h"
#include "serve/service/constraint_compiler.h"

namespace skiff::service {
namespace {

constexpr int kVocab = 97, kEnd = 96;  // as kSmallLlama has it

std::shared_ptr<const grammar::Vocabulary> vocabulary() {
  std::vector<std::string> pieces = {"{",    "}",   "\"",  ":",   ",",   "[",    "]",
                                     "{\"",  "\":", "\",", "a\"", "<t>", "</t>", "true",
                                     "null", " ",   "\n",  "-",   "\"}", "}}"};
  for (char c = '0'; c <= '9'; ++c) pieces.emplace_back(1, c);
  for (char c = 'a'; c <= 'z'; ++c) pieces.emplace_back(1, c);
  for (const char* word : {"on", "at", "12", "7,", "é", "\xC3", "\xA9"}) pieces.emplace_back(word);
  pieces.push_back(grammar::mark_of("<end>"));
  pieces.resize(kEnd + 1);
  return std::make_shared<grammar::Vocabulary>(std::move(pieces), kVocab,
                                               std::vector<int32_t>{kEnd});
}

std::vector<grammar::Constraint> constraints() {
  using enum grammar::ConstraintKind;
  return {
      {.kind = kJsonSchema,
       .text =
           R"({"type":"object","properties":{"a":{"type":"string","maxLength":9},"b":{"type":"array",
                   "items":{"type":"integer"},"maxItems":4}},"required":["a"],"additionalProperties":false})"},
      {.kind = kRegex, .text = "[a-z]{4}([0-9]{2}|é)*"},
      {.kind = kGrammar, .text = "root ::= [a-f] root [0-9] | \"-\""},
      {.kind = kStructuralTag,
       .text =
           R"({"format":{"type":"tag","begin":"at","content":{"type":"any_text"},"end":"<end>"}})"},
      {.kind = kChoice,
       .text = R"(["one","tone","onto"])",
       .reasoning = {.begin = "<t>", .end = "</t>", .inside = true}},
  };
}

// Most have a constraint; the first two share one, as two choices of a request do.
std::vector<NewSequence> constrained_requests(ConstraintCompiler& compiler, std::mt19937_64& rng) {
  auto requests = engine::random_requests(rng, kVocab, {.output = 60});
  const auto all = constraints();
  std::shared_ptr<const TokenConstraint> last;
  for (size_t i = 0; i < requests.size(); ++i) {
    SamplingParams& params = requests[i].params;
    requests[i].stop.tokens = {kEnd};
    params.min_tokens = 0;
    if (i + 1 == requests.size()) continue;
    if (i != 1) last = *compiler.compile(all[rng() % all.size()]);
    params.constraint = last;
  }
  return requests;
}

engine::Setup setup_of(std::mt19937_64& rng) {
  engine::Setup setup;
  setup.block_size = 4;
  setup.num_blocks = 28;  // a request alone needs up to 26
  setup.limits.max_seqs = 4;
  setup.limits.max_rows = 24;
  setup.limits.max_logit_rows = 16;
  setup.depth = 1 + rng() % 2;
  setup.guesses = {.most = 5, .right = 1 + static_cast<int>(rng() % 4)};
  setup.own_thread = rng() % 2;
  setup.share = rng() % 2;
  return setup;
}

void expect_follows(const NewSequence& request, const engine::Heard& heard,
                    const std::shared_ptr<const grammar::Vocabulary>& words) {
  if (!request.params.constraint) return;
  EXPECT_FALSE(request.params.constraint->failed());
  const auto constraint = grammar::read_constraint_source(request.params.constraint->source());
  ASSERT_TRUE(constraint);
  grammar::Matcher matcher(*grammar::compile(*constraint, words));
  for (const Token token : heard.tokens) ASSERT_TRUE(matcher.accept(token)) << constraint->text;
  EXPECT_TRUE(heard.finish != Finish::kStop || matcher.has_ended());
}

TEST(ConstrainedSchedules, TokensAreThoseOfTheRequestAlone) {
  const engine::DummyFolder folder("constrained_schedules");
  engine::Model model(folder.path(), model::LoadFormat::kDummy, DType::kF32, make_cpu_ops(2));
  const auto words = vocabulary();
  ConstraintCompiler compiler(words, {});
  engine::Totals totals;
  size_t ended = 0, cancelled = 0;
  constexpr int kCases = 24;
  for (int seed = 0; seed < kCases; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 rng(static_cast<uint64_t>(seed));
    const store::TempDir storage;
    const auto requests = constrained_requests(compiler, rng);
    const engine::Texts alone = engine::texts_alone(model, requests, rng, storage);
    const bool drafts = seed % 2 == 0;
    engine::Listener listener;
    engine::run(model, setup_of(rng), engine::shuffled_commands(requests, 0.25, rng), rng,
                drafts ? &alone : nullptr, storage, listener, totals);
    for (const NewSequence& request : requests) {
      const engine::Heard& want = alone.at(request.id);
      ASSERT_NO_FATAL_FAILURE(expect_follows(request, want, words));
      if (!listener.knows(request.id)) continue;  // cancelled before its first event
      const engine::Heard& got = listener.of(request.id);
      const auto size =
          static_cast<std::ptrdiff_t>(std::min(got.tokens.size(), want.tokens.size()));
      ASSERT_TRUE(std::equal(got.tokens.begin(), got.tokens.begin() + size, want.tokens.begin()));
      if (got.finish == Finish::kCancelled) {
        ++cancelled;
        continue;
      }
      ASSERT_EQ(got.tokens.size(), want.tokens.size());
      ASSERT_EQ(got.finish, want.finish);
      ended += request.params.constraint && got.finish == Finish::kStop ? 1 : 0;
    }
  }
  EXPECT_GT(totals.preemptions, 0u);
  EXPECT_GT(totals.kept, 20);
  EXPECT_GT(totals.drafted, totals.kept);
  EXPECT_GT(cancelled, 3u);
  EXPECT_GT(ended, 10u);
}

}  // namespace
}  // namespace skiff::service
