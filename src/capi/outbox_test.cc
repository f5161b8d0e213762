#include "capi/outbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "serve/service/engine_testing.h"

namespace skiff::capi {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct Box {
  explicit Box(int n = 1, bool stream = false, int streaming_tokens = 1) {
    openai::OpenAiCall asked;
    asked.request.n = n;
    asked.stream = stream;
    asked.max_streaming_tokens = streaming_tokens;
    EXPECT_TRUE(outbox.open(std::make_shared<Call>(1, asked, context)).ok());
    EXPECT_FALSE(outbox.started(1, 100));
  }

  static service::Reply piece(int index, std::vector<Token> tokens, Finish finish = Finish::kNone) {
    service::Reply reply;
    reply.index = index;
    reply.text = std::string(tokens.size(), 'x');
    reply.tokens = std::move(tokens);
    reply.finish = finish;
    return reply;
  }

  std::vector<Piece> take() {
    std::vector<Piece> pieces;
    EXPECT_TRUE(outbox.take(&pieces).ok());
    return pieces;
  }
  bool readable() const { return outbox.notice().wait(0) == Notice::Woken::kSet; }

  service::EchoService echo;
  std::shared_ptr<service::ProtocolContext> context = std::make_shared<service::ProtocolContext>(
      service::ProtocolConfig{.model_names = {"echo"}}, echo.service, 0);
  Outbox outbox;
};

TEST(Outbox, MergesWhatNobodyHasCollected) {
  Box box(/*n=*/1, /*stream=*/true);
  EXPECT_FALSE(box.readable());
  box.outbox.put(1, Box::piece(0, {5}));
  box.outbox.put(1, Box::piece(0, {6, 7}));
  EXPECT_TRUE(box.readable());
  auto pieces = box.take();
  ASSERT_EQ(pieces.size(), 1);
  EXPECT_THAT(pieces[0].reply.tokens, ElementsAre(5, 6, 7));
  EXPECT_GT(pieces[0].first_token, 0);
  EXPECT_FALSE(pieces[0].last);
  EXPECT_FALSE(box.readable());
  box.outbox.put(1, Box::piece(0, {8}, Finish::kStop));
  pieces = box.take();
  EXPECT_THAT(pieces[0].reply.tokens, ElementsAre(8));
  EXPECT_TRUE(pieces[0].last);
}

TEST(Outbox, AWholeReplyComesAtItsEnd) {
  Box box(/*n=*/2);
  box.outbox.put(1, Box::piece(0, {5}));
  EXPECT_FALSE(box.readable());
  box.outbox.put(1, Box::piece(1, {6}, Finish::kLength));
  auto pieces = box.take();
  ASSERT_EQ(pieces.size(), 1);
  EXPECT_EQ(pieces[0].reply.index, 1);
  EXPECT_FALSE(pieces[0].last);
  box.outbox.put(1, Box::piece(0, {7}, Finish::kStop));
  pieces = box.take();
  EXPECT_THAT(pieces[0].reply.tokens, ElementsAre(5, 7));
  EXPECT_TRUE(pieces[0].last);
}

TEST(Outbox, AnEventOfAStreamHasAsManyTokensAsAsked) {
  Box box(/*n=*/1, /*stream=*/true, /*streaming_tokens=*/3);
  box.outbox.put(1, Box::piece(0, {1, 2}));
  EXPECT_FALSE(box.readable());
  box.outbox.put(1, Box::piece(0, {3}));
  EXPECT_TRUE(box.readable());
}

TEST(Outbox, WhatIsDroppedIsNeverGiven) {
  Box box(/*n=*/2, /*stream=*/true);
  box.outbox.put(1, Box::piece(0, {5}));
  EXPECT_EQ(box.outbox.drop(1), 100);
  EXPECT_EQ(box.outbox.drop(1), std::nullopt);
  EXPECT_FALSE(box.readable());
  box.outbox.put(1, Box::piece(1, {5}, Finish::kStop));
  EXPECT_FALSE(box.readable());
  EXPECT_THAT(box.take(), IsEmpty());
}

// One that could not follow its constraint, for instance.
TEST(Outbox, AFailureLeavesTheOtherSequences) {
  Box box(/*n=*/3);
  box.outbox.put(1, Box::piece(2, {4}, Finish::kStop));
  EXPECT_EQ(box.outbox.put(1, Box::piece(0, {9}, Finish::kExhausted)), std::nullopt);
  auto pieces = box.take();
  ASSERT_EQ(pieces.size(), 2);
  EXPECT_THAT(pieces[0].reply.tokens, ElementsAre(4));
  EXPECT_EQ(pieces[1].reply.finish, Finish::kExhausted);
  EXPECT_THAT(pieces[1].reply.tokens, ElementsAre(9));
  EXPECT_FALSE(pieces[0].last || pieces[1].last);
  box.outbox.put(1, Box::piece(1, {5}));
  box.outbox.put(1, Box::piece(1, {6}, Finish::kStop));
  pieces = box.take();
  ASSERT_EQ(pieces.size(), 1);
  EXPECT_THAT(pieces[0].reply.tokens, ElementsAre(5, 6));
  EXPECT_TRUE(pieces[0].last);
}

// Nothing more comes of a request of which a sequence could not be replied to. What has come of the
// others is given all the same.
TEST(Outbox, AFaultEndsAllSequencesAndDropsNone) {
  Box box(/*n=*/4);
  box.outbox.put(1, Box::piece(3, {3}, Finish::kStop));
  EXPECT_EQ(box.take().size(), 1);
  box.outbox.put(1, Box::piece(2, {4}, Finish::kLength));
  box.outbox.put(1, Box::piece(1, {5}));
  EXPECT_EQ(box.outbox.put(1, Box::piece(0, {}, Finish::kCancelled)), 100);
  EXPECT_EQ(box.outbox.put(1, Box::piece(1, {6}, Finish::kStop)), std::nullopt);
  auto pieces = box.take();
  ASSERT_EQ(pieces.size(), 3);
  std::ranges::sort(pieces, {}, [](const Piece& piece) { return piece.reply.index; });
  EXPECT_EQ(pieces[0].reply.finish, Finish::kCancelled);
  EXPECT_EQ(pieces[1].reply.finish, Finish::kCancelled);
  EXPECT_THAT(pieces[1].reply.tokens, ElementsAre(5));
  EXPECT_EQ(pieces[2].reply.finish, Finish::kLength);
  EXPECT_EQ(std::ranges::count_if(pieces, &Piece::last), 1);
}

TEST(Outbox, AFailureBeforeTheRequestHasItsNameIsSaidByStarted) {
  Box box;
  EXPECT_TRUE(box.outbox.open(std::make_shared<Call>(2, openai::OpenAiCall{}, box.context)).ok());
  EXPECT_EQ(box.outbox.put(2, Box::piece(0, {}, Finish::kCancelled)), std::nullopt);
  EXPECT_TRUE(box.outbox.started(2, 200));
  EXPECT_TRUE(box.outbox.started(3, 300));  // dropped before
}

TEST(Outbox, ClosedItGivesTheRestAndThenTheReason) {
  Box box;
  box.outbox.put(1, Box::piece(0, {5}, Finish::kStop));
  box.outbox.close({.status = SKIFF_CLOSED, .what = "over"});
  EXPECT_EQ(box.take().size(), 1);
  EXPECT_TRUE(box.readable());
  std::vector<Piece> none;
  EXPECT_EQ(box.outbox.take(&none).what, "over");
  EXPECT_EQ(box.outbox.open(std::make_shared<Call>(2, openai::OpenAiCall{}, box.context)).status,
            SKIFF_CLOSED);
}

TEST(Outbox, OneThreadPutsWhileAnotherTakes) {
  constexpr int kTokens = 5000;
  Box box(/*n=*/1, /*stream=*/true);
  std::jthread writer([&] {
    for (int i = 0; i < kTokens; ++i)
      box.outbox.put(1, Box::piece(0, {i}, i + 1 == kTokens ? Finish::kStop : Finish::kNone));
  });
  std::vector<Token> got;
  for (bool last = false; !last;) {
    ASSERT_EQ(box.outbox.notice().wait(10000), Notice::Woken::kSet);
    for (const Piece& piece : box.take()) {
      got.insert(got.end(), piece.reply.tokens.begin(), piece.reply.tokens.end());
      last = piece.last;
    }
  }
  ASSERT_EQ(got.size(), kTokens);
  for (int i = 0; i < kTokens; ++i) ASSERT_EQ(got[static_cast<size_t>(i)], i);
}

}  // namespace
}  // namespace skiff::capi
