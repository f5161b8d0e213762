#include "serve/paddle/writer.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace skiff::paddle {
namespace {

// A piece of the second of two choices, which have 7 tokens between them.
service::Reply piece(std::vector<Token> tokens, int so_far, Finish finish = Finish::kNone) {
  service::Reply reply;
  reply.index = 1;
  reply.text = "ab";
  reply.tokens = std::move(tokens);
  reply.finish = finish;
  reply.usage = {.prompt = 4, .completion = 7};
  reply.own = {.prompt = 4, .completion = so_far};
  return reply;
}

TEST(PaddleWriter, TokensSoFarAreThoseOfTheSequence) {
  ReplyWriter writer({.req_id = "r"});
  const auto first = writer.pieces(piece({5, 6}, 2));
  ASSERT_EQ(first.size(), 2u);
  for (int i = 0; i < 2; ++i) {
    const auto object = *parse_json(first[i]);
    EXPECT_EQ(object["usage"]["completion_tokens"], i + 1);
    EXPECT_EQ(object["usage"]["prompt_tokens"], 4);
    EXPECT_EQ(object["send_idx"], i);
  }
  const auto end = writer.pieces(piece({7}, 3, Finish::kLength));
  ASSERT_EQ(end.size(), 1u);
  const auto object = *parse_json(end[0]);
  EXPECT_EQ(object["tokens_all_num"], 3);
  EXPECT_EQ(object["tokens_all_ids"], Json({5, 6, 7}));
}

TEST(PaddleWriter, TheOnlyObjectOfASequenceHasItsOwnUsage) {
  ReplyWriter writer({.req_id = "r"});
  writer.gather(piece({5, 6}, 2, Finish::kLength));
  const auto object = *parse_json(writer.whole(/*usage=*/true));
  EXPECT_EQ(object["usage"]["completion_tokens"], 2);
}

}  // namespace
}  // namespace skiff::paddle
