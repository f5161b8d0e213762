#include "serve/queue/own_requests.h"

#include <gtest/gtest.h>

#include "serve/queue/reply_testing.h"

namespace skiff::queue {
namespace {

using Clock = OwnRequests::Clock;
using Standing = Seen::Standing;

struct OwnRequestsTest : ::testing::Test {
  // Adds a request and puts it; returns its id.
  std::string put() {
    reply = std::make_shared<testing::KeptReply>();
    http::HttpRequest request;
    request.path = "/v1/completions";
    own.add({.request = std::move(request), .handler = nullptr, .reply = reply, .cache_part = ""},
            Clock::now(), [this] { ++wakes; });
    return put_again();
  }
  std::string put_again() {
    const auto fresh = own.to_put();
    EXPECT_EQ(fresh.size(), 1u);
    own.was_put(fresh.front().first);
    return fresh.front().first;
  }
  void taken(const std::string& id, int64_t number) {
    own.hear(Note{.kind = Note::Kind::kTaken, .lease = {id, number}});
  }
  void hear(const Lease& lease, uint32_t index, const std::string& bytes, bool ends = false,
            bool streams = true) {
    Piece piece{.lease = lease,
                .index = index,
                .begins = index == 0,
                .streams = streams,
                .ends = ends,
                .head = {.status = 200, .body = "", .content_type = "text/event-stream"},
                .bytes = bytes};
    own.hear(std::move(piece));
  }
  std::vector<Lease> saw(const std::string& id, Standing standing, int64_t number) {
    return own.saw({id}, {{standing, number}});
  }

  OwnRequests own{"me"};
  std::shared_ptr<testing::KeptReply> reply;
  int wakes = 0;
};

TEST_F(OwnRequestsTest, AStreamPassesOncePieceByPiece) {
  const std::string id = put();
  taken(id, 1);
  hear({id, 1}, 0, "a");
  EXPECT_EQ(reply->response.body, "a");
  hear({id, 1}, 0, "a");  // sent again after a connection broke
  hear({id, 1}, 1, "b");
  hear({id, 1}, 1, "b");
  hear({id, 1}, 2, "c", /*ends=*/true);
  EXPECT_EQ(reply->response.body, "abc");
  EXPECT_EQ(reply->ends, 1);
  EXPECT_EQ(own.size(), 0u);
  EXPECT_EQ(own.counts().answered, 1);
}

TEST_F(OwnRequestsTest, AWholeAnswerIsSentAtItsEnd) {
  const std::string id = put();
  taken(id, 1);
  hear({id, 1}, 0, "a", false, /*streams=*/false);
  EXPECT_EQ(reply->sends, 0);
  hear({id, 1}, 1, "b", true, /*streams=*/false);
  EXPECT_EQ(reply->sends, 1);
  EXPECT_EQ(reply->response.body, "ab");
}

// What an instance says that was lost, or stood still, is never heard once its lease has ended.
TEST_F(OwnRequestsTest, AnExpiredLeaseComesBackOnceAndIsNotHeard) {
  const std::string id = put();
  taken(id, 1);
  hear({id, 1}, 0, "old", false, /*streams=*/false);
  ASSERT_EQ(saw(id, Standing::kExpired, 1), std::vector<Lease>({{id, 1}}));
  own.was_called_back({id, 1}, 2);
  EXPECT_EQ(own.waiting(), 1u);
  hear({id, 1}, 1, "old", true, /*streams=*/false);
  EXPECT_EQ(reply->sends, 0);
  taken(id, 3);
  hear({id, 1}, 0, "old", true, /*streams=*/false);
  EXPECT_EQ(reply->sends, 0);
  hear({id, 3}, 0, "new", true, /*streams=*/false);
  EXPECT_EQ(reply->response.body, "new");
  EXPECT_EQ(own.counts().came_back, 1);
}

// Another instance may have taken the request before this one notes that it called it back.
TEST_F(OwnRequestsTest, ALeaseMayBeHeardBeforeTheEndOfTheOneBefore) {
  const std::string id = put();
  taken(id, 1);
  ASSERT_EQ(saw(id, Standing::kExpired, 1).size(), 1u);
  taken(id, 3);
  hear({id, 3}, 0, "a", false, /*streams=*/false);
  own.was_called_back({id, 1}, 2);
  hear({id, 3}, 1, "b", true, /*streams=*/false);
  EXPECT_EQ(reply->sends, 1);
  EXPECT_EQ(reply->response.body, "ab");
  EXPECT_EQ(own.counts().came_back, 1);
}

TEST_F(OwnRequestsTest, AStreamThatHasBegunIsNotRepeatedByTheNextLease) {
  const std::string id = put();
  taken(id, 1);
  hear({id, 1}, 0, "data: text\n\n");
  taken(id, 3);
  hear({id, 3}, 0, "data: text\n\n");
  EXPECT_EQ(reply->begins, 1);
  EXPECT_EQ(reply->ends, 1);
  EXPECT_NE(reply->response.body.find("\"error\""), std::string::npos) << reply->response.body;
}

// A store that was restored from a copy counts leases from where the copy was made.
TEST_F(OwnRequestsTest, ANumberThatIsHandedOutTwiceIsALoss) {
  const std::string first = put();
  taken(first, 1);
  hear({first, 1}, 0, "data: old\n\n");
  taken(first, 1);
  hear({first, 1}, 1, "data: new\n\n");
  EXPECT_EQ(reply->ends, 1);
  EXPECT_EQ(reply->response.body.find("new"), std::string::npos) << reply->response.body;
  const std::string second = put();
  taken(second, 1);
  hear({second, 1}, 0, "old", false, /*streams=*/false);
  taken(second, 1);
  EXPECT_NE(put_again(), second);
  EXPECT_EQ(own.counts().came_back, 1);
}

TEST_F(OwnRequestsTest, TheSecondLossIsAnError) {
  const std::string id = put();
  taken(id, 1);
  ASSERT_EQ(saw(id, Standing::kExpired, 1).size(), 1u);
  own.was_called_back({id, 1}, 2);
  taken(id, 3);
  EXPECT_TRUE(saw(id, Standing::kExpired, 3).empty());
  EXPECT_EQ(reply->response.status, 502);
  EXPECT_EQ(reply->sends, 1);
  EXPECT_EQ(own.to_drop(), std::vector<std::string>{id});
}

TEST_F(OwnRequestsTest, AStreamThatHasBegunIsNotRepeated) {
  const std::string id = put();
  taken(id, 1);
  hear({id, 1}, 0, "data: text\n\n");
  EXPECT_TRUE(saw(id, Standing::kExpired, 1).empty());
  EXPECT_EQ(reply->ends, 1);
  EXPECT_NE(reply->response.body.find("\"error\""), std::string::npos) << reply->response.body;
  EXPECT_EQ(own.size(), 0u);
  EXPECT_EQ(own.counts().broken, 1);
}

// The last piece may be on its way when the store knows nothing of the request any more.
TEST_F(OwnRequestsTest, WhatTheStoreLostIsPutAgainByAnotherName) {
  const std::string id = put();
  taken(id, 1);
  EXPECT_TRUE(saw(id, Standing::kGone, 0).empty());
  EXPECT_TRUE(own.to_put().empty());
  EXPECT_TRUE(saw(id, Standing::kGone, 0).empty());
  const std::string again = put_again();
  EXPECT_NE(again, id);
  hear({id, 1}, 0, "old", true, /*streams=*/false);
  EXPECT_EQ(reply->sends, 0);
  taken(again, 1);
  hear({again, 1}, 0, "new", true, /*streams=*/false);
  EXPECT_EQ(reply->response.body, "new");
}

TEST_F(OwnRequestsTest, AGapIsALoss) {
  const std::string id = put();
  taken(id, 1);
  hear({id, 1}, 0, "a", false, /*streams=*/false);
  hear({id, 1}, 2, "c", true, /*streams=*/false);
  EXPECT_EQ(reply->sends, 0);
  EXPECT_EQ(own.to_put().size(), 1u);
}

TEST_F(OwnRequestsTest, AClientThatLeavesTakesItsRequestOut) {
  const std::string id = put();
  taken(id, 1);
  reply->closed();
  EXPECT_EQ(own.size(), 0u);
  EXPECT_EQ(own.to_drop(), std::vector<std::string>{id});
  EXPECT_EQ(wakes, 1);
  own.were_dropped(1);
  hear({id, 1}, 5, "more");  // whoever computes it has not heard yet
  EXPECT_EQ(own.to_drop(), std::vector<std::string>{id});
}

TEST_F(OwnRequestsTest, WhatNobodyComputesIsReleased) {
  const std::string first = put();
  const auto first_reply = reply;
  taken(first, 1);
  const std::string second = put();
  EXPECT_EQ(own.release_all(/*held=*/false).size(), 1u);
  EXPECT_EQ(own.size(), 1u);
  EXPECT_EQ(own.release_all(/*held=*/true).size(), 1u);
  EXPECT_EQ(own.to_drop(), (std::vector<std::string>{second, first}));
  EXPECT_EQ(first_reply->sends, 0) << "it is computed here";
}

TEST_F(OwnRequestsTest, AWaitEnds) {
  put();
  own.expire(Clock::now(), 900);
  EXPECT_EQ(reply->sends, 0);
  own.expire(Clock::now() + std::chrono::seconds(901), 900);
  EXPECT_EQ(reply->response.status, 503);
}

}  // namespace
}  // namespace skiff::queue
