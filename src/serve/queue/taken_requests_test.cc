#include "serve/queue/taken_requests.h"

#include <gtest/gtest.h>

#include "serve/queue/own_requests.h"
#include "serve/queue/reply_testing.h"

namespace skiff::queue {
namespace {

struct TakenRequestsTest : ::testing::Test {
  std::shared_ptr<TakenRequests> taken = std::make_shared<TakenRequests>(
      [this] { ++wakes; }, [](const std::function<void()>& job) { job(); });
  int wakes = 0;
  const Lease lease{"a:1", 1};

  // The pieces that wait, as they were written.
  std::vector<Piece> pieces() const {
    std::vector<Piece> read;
    for (const Outgoing& outgoing : taken->outgoing())
      read.push_back(std::get<Piece>(*read_message(outgoing.piece)));
    return read;
  }
};

TEST_F(TakenRequestsTest, AStreamBecomesNumberedPieces) {
  const auto reply = taken->begin(lease);
  reply->begin_stream({.status = 200, .body = "a", .content_type = "text/event-stream"});
  EXPECT_TRUE(reply->write("b"));
  reply->end_stream();
  EXPECT_FALSE(reply->write("c"));
  const auto sent = pieces();
  ASSERT_EQ(sent.size(), 3u);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(sent[i].index, i);
    EXPECT_EQ(sent[i].begins, i == 0);
    EXPECT_EQ(sent[i].ends, i == 2);
  }
  EXPECT_TRUE(sent[0].streams);
  EXPECT_TRUE(taken->outgoing().back().last);
  EXPECT_EQ(wakes, 3);
  taken->were_sent({true, true, true});
  EXPECT_EQ(taken->size(), 0u);
}

TEST_F(TakenRequestsTest, ALongAnswerIsCutAndPutTogether) {
  std::string body;
  for (int i = 0; i < 300'000; ++i) body += std::to_string(i);
  const auto reply = taken->begin(lease);
  reply->send({.status = 201, .body = body});
  auto sent = pieces();
  EXPECT_EQ(sent.size(), body.size() / kMaxPiece + 1);
  OwnRequests own("a");
  const auto client = std::make_shared<testing::KeptReply>();
  own.add({.request = {}, .handler = nullptr, .reply = client, .cache_part = ""},
          OwnRequests::Clock::now(), [] {});
  own.hear(Note{.kind = Note::Kind::kTaken, .lease = lease});
  for (Piece& piece : sent) own.hear(std::move(piece));
  EXPECT_EQ(client->response.status, 201);
  EXPECT_EQ(client->response.body, body);
}

TEST_F(TakenRequestsTest, ARefusalGivesTheRequestBackSomeTimes) {
  taken->begin(lease)->send({.status = 429, .body = "full"});
  EXPECT_TRUE(taken->outgoing().empty());
  EXPECT_EQ(taken->to_give_back(), std::vector<Lease>{lease});
  taken->were_given_back(1);
  taken->begin({"a:1", 9})->send({.status = 429, .body = "full"});
  EXPECT_TRUE(taken->to_give_back().empty());
  EXPECT_EQ(pieces().front().head.status, 429);
}

TEST_F(TakenRequestsTest, WhatAnOperatorEndsIsNotGivenBack) {
  taken->begin(lease)->send(
      {.status = 503, .body = "aborted", .headers = {{"x-should-retry", "false"}}});
  EXPECT_TRUE(taken->to_give_back().empty());
  ASSERT_EQ(pieces().size(), 1u);
  EXPECT_EQ(pieces().front().head.status, 503);
}

TEST_F(TakenRequestsTest, AnEndedLeaseEndsTheGeneration) {
  int closed = 0;
  const auto first = taken->begin(lease);
  first->on_close([&] { ++closed; });
  first->begin_stream({.status = 200, .body = ""});
  taken->were_sent({false});
  EXPECT_EQ(closed, 1);
  EXPECT_FALSE(first->write("more"));
  const auto second = taken->begin({"a:2", 1});
  second->on_close([&] { ++closed; });
  taken->stop({"a:2", 1});
  EXPECT_EQ(closed, 2);
  second->on_close([&] { ++closed; });
  EXPECT_EQ(closed, 3) << "at once: it has ended";
  EXPECT_EQ(taken->size(), 0u);
}

TEST_F(TakenRequestsTest, AStreamThatIsNotSentEnds) {
  int closed = 0;
  const auto reply = taken->begin(lease);
  reply->on_close([&] { ++closed; });
  reply->begin_stream({.status = 200, .body = ""});
  const std::string part(kMaxPiece, 'x');
  size_t written = 0;
  while (reply->write(part)) written += part.size();
  EXPECT_EQ(written, TakenRequests::kMaxUnsent);
  EXPECT_EQ(closed, 1);
}

// Its lease ends with the process, and another instance computes the request once more.
TEST_F(TakenRequestsTest, AFailedEngineGivesNoWholeAnswers) {
  const auto whole = taken->begin(lease), stream = taken->begin({"a:2", 1});
  stream->begin_stream({.status = 200, .body = "a", .content_type = "text/event-stream"});
  taken->fail();
  whole->send({.status = 500, .body = "the engine has failed"});
  stream->write("an error");
  stream->end_stream();
  EXPECT_TRUE(taken->to_give_back().empty());
  ASSERT_EQ(pieces().size(), 3u);
  for (const Piece& piece : pieces()) EXPECT_EQ(piece.lease.id, "a:2");
  EXPECT_TRUE(pieces().back().ends);
}

TEST_F(TakenRequestsTest, AHandlerThatDropsItsReplyAnswers500) {
  taken->begin(lease);
  ASSERT_EQ(pieces().size(), 1u);
  EXPECT_EQ(pieces().front().head.status, 500);
}

}  // namespace
}  // namespace skiff::queue
