#include "serve/queue/messages.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace skiff::queue {
namespace {

http::HttpRequest some_request() {
  http::HttpRequest request;
  request.method = "POST";
  request.path = "/v1/completions";
  request.query = "a=b";
  request.request_id = "req-1";
  request.client = "10.0.0.1:5000";
  request.headers = {{"authorization", "Bearer secret"}, {"traceparent", "00-ab-cd-01"}};
  request.body = std::string("{\"prompt\": \"\0\"}", 15);
  return request;
}

Piece some_piece() {
  return {.lease = {.id = "me:7", .number = 3},
          .index = 9,
          .begins = true,
          .streams = true,
          .ends = false,
          .head = {.status = 200,
                   .body = "",
                   .content_type = "text/event-stream",
                   .headers = {{"Cache-Control", "no-cache"}}},
          .bytes = std::string("data: \0\r\n", 9)};
}

TEST(QueueMessages, ARequestKeepsWhatItsHandlerReadsAndLosesItsKey) {
  const http::HttpRequest sent = some_request();
  const std::string bytes = write_request(sent, "part");
  EXPECT_EQ(bytes.find("secret"), std::string::npos);
  const auto got = read_request(bytes, 1000);
  ASSERT_TRUE(got) << got.error().what;
  EXPECT_EQ(got->method, sent.method);
  EXPECT_EQ(got->path, sent.path);
  EXPECT_EQ(got->query, sent.query);
  EXPECT_EQ(got->request_id, sent.request_id);
  EXPECT_EQ(got->client, sent.client);
  EXPECT_EQ(got->body, sent.body);
  EXPECT_EQ(got->header(":cache-part"), "part");
  EXPECT_EQ(got->header("traceparent"), "00-ab-cd-01");
  EXPECT_EQ(got->header("authorization"), "");
}

TEST(QueueMessages, APieceIsReadAsItWasWritten) {
  const Piece sent = some_piece();
  const auto got = read_message(write_piece(sent));
  ASSERT_TRUE(got) << got.error().what;
  const Piece& piece = std::get<Piece>(*got);
  EXPECT_EQ(piece.lease, sent.lease);
  EXPECT_EQ(piece.index, 9u);
  EXPECT_TRUE(piece.begins && piece.streams && !piece.ends);
  EXPECT_EQ(piece.head.status, 200);
  EXPECT_EQ(piece.head.content_type, sent.head.content_type);
  EXPECT_EQ(piece.head.headers, sent.head.headers);
  EXPECT_EQ(piece.bytes, sent.bytes);
}

TEST(QueueMessages, NotesAreReadAsScriptsWriteThem) {
  const auto taken = read_message("T12 me:7");
  ASSERT_TRUE(taken);
  EXPECT_EQ(std::get<Note>(*taken).kind, Note::Kind::kTaken);
  EXPECT_EQ(std::get<Note>(*taken).lease, (Lease{"me:7", 12}));
  EXPECT_EQ(write_note(std::get<Note>(*taken)), "T12 me:7");
  EXPECT_EQ(std::get<Note>(*read_message("R")).kind, Note::Kind::kRing);
  for (const char* bad : {"", "X", "T", "T12", "T-1 a", "Tx a", "R1 a", "S99999999999999999999 a"})
    EXPECT_FALSE(read_message(bad)) << bad;
}

// Each message cut at every length is refused, and so is one with a byte too many.
TEST(QueueMessages, CutMessagesAreRefused) {
  const std::string request = write_request(some_request(), "part");
  const std::string piece = write_piece(some_piece());
  for (size_t size = 0; size < request.size(); ++size)
    EXPECT_FALSE(read_request(request.substr(0, size), 1000)) << size;
  for (size_t size = 0; size < piece.size(); ++size)
    EXPECT_FALSE(read_message(piece.substr(0, size))) << size;
  EXPECT_FALSE(read_request(request + "x", 1000));
  EXPECT_FALSE(read_message(piece + "x"));
}

TEST(QueueMessages, BoundsHold) {
  http::HttpRequest large = some_request();
  large.body.assign(1001, 'x');
  EXPECT_FALSE(read_request(write_request(large, ""), 1000));
  EXPECT_TRUE(read_request(write_request(large, ""), 1001));
  Piece split = some_piece();
  split.head.headers = {{"A", "b\r\nSet-Cookie: c"}};
  EXPECT_FALSE(read_message(write_piece(split)));
  split = some_piece();
  split.head.status = 99;
  EXPECT_FALSE(read_message(write_piece(split)));
}

TEST(QueueMessages, ChangedBytesNeverCrash) {
  uint64_t state = 20261126;
  const auto random = [&state] { return splitmix64(state); };
  const std::string good = write_piece(some_piece());
  for (int i = 0; i < 20000; ++i) {
    std::string bad = good;
    for (int j = 0; j < 3; ++j) bad[random() % bad.size()] = static_cast<char>(random());
    const auto read = read_message(bad);
    const auto* piece = read ? std::get_if<Piece>(&*read) : nullptr;
    if (piece) {
      EXPECT_EQ(write_piece(*piece), bad);
    }
  }
}

}  // namespace
}  // namespace skiff::queue
