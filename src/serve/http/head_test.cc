#include "serve/http/head.h"

#include <gtest/gtest.h>

#include <random>

namespace skiff::http {
namespace {

// Parses bytes that arrive in pieces. Returns the end of the head, or minus the status of the
// refusal.
int found(const std::string& bytes, std::mt19937& random, size_t most) {
  HeadReader scan(200, 3);
  for (size_t at = 0; at < bytes.size() && scan.size() == 0;) {
    at = std::min(bytes.size(), at + 1 + random() % most);
    if (!scan.look(std::string_view(bytes).substr(0, at))) return -scan.refusal().status;
  }
  return static_cast<int>(scan.size());
}

TEST(HeadReaderTest, PiecesDoNotMatter) {
  std::mt19937 random(1);
  const std::string good = "GET / HTTP/1.1\r\nHost: h\r\nA:\tb\xff\r\n\r\nrest";
  EXPECT_EQ(found(good, random, 1000), 34);
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = good;
    for (int flips = static_cast<int>(random() % 3); flips > 0; --flips)
      bytes[random() % bytes.size()] = "\r\n \t:\0aZ/1\xff"[random() % 11];
    const int whole = found(bytes, random, 1000);
    EXPECT_EQ(found(bytes, random, 1), whole);
    EXPECT_EQ(found(bytes, random, 7), whole);
  }
}

TEST(HeadReaderTest, Bounds) {
  std::mt19937 random(1);
  EXPECT_EQ(found("GET / HTTP/1.1\r\na:1\r\nb:2\r\nc:3\r\n\r\n", random, 9), 33);
  EXPECT_EQ(found("GET / HTTP/1.1\r\na:1\r\nb:2\r\nc:3\r\nd:4\r\n\r\n", random, 9), -431);
  EXPECT_EQ(found("GET / HTTP/1.1\r\na:" + std::string(184, 'x'), random, 9), -431);
  const std::string exact = "GET / HTTP/1.1\r\na:" + std::string(178, 'x') + "\r\n\r\n";
  EXPECT_EQ(found(exact, random, 9), 200);
}

TEST(HttpHeadTest, Targets) {
  HttpRequest request;
  ASSERT_TRUE(split_target("http://h:1/a%2Fb?c=%00", &request));
  EXPECT_EQ(request.authority, "h:1");
  EXPECT_EQ(request.path, "/a/b");
  EXPECT_EQ(request.query, "c=%00");
  for (const char* bad : {"", "a", "http://", "http:///a", "ftp://h/", "/%", "/%4", "/%g0", "/%09"})
    EXPECT_FALSE(split_target(bad, &request)) << bad;
}

}  // namespace
}  // namespace skiff::http
