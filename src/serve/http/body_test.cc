#include "serve/http/body.h"

#include <gtest/gtest.h>

#include <random>

namespace skiff::http {
namespace {

struct Outcome {
  bool done;
  int status;
  size_t taken;
  std::string body;
  bool operator==(const Outcome&) const = default;
};

Outcome read(const std::string& header, const std::string& bytes, std::mt19937& random,
             size_t most) {
  BodyReader reader(
      {.headers = {{header.substr(0, header.find(':')), header.substr(header.find(':') + 1)}}}, 20);
  size_t taken = 0;
  for (size_t at = 0; at < bytes.size();) {
    const std::string part = bytes.substr(at, 1 + random() % most);
    taken += reader.take(part);
    at += part.size();
  }
  return {reader.done(), reader.refusal().status, taken, reader.body()};
}

TEST(BodyReaderTest, Lengths) {
  std::mt19937 random(1);
  EXPECT_EQ(read("content-length:5", "hellothen", random, 2), (Outcome{true, 0, 5, "hello"}));
  EXPECT_EQ(read("content-length:0", "then", random, 2), (Outcome{true, 0, 0, ""}));
  EXPECT_EQ(read("none:", "then", random, 2), (Outcome{true, 0, 0, ""}));
  EXPECT_EQ(read("content-length:21", "x", random, 2), (Outcome{false, 413, 0, ""}));
}

TEST(BodyReaderTest, PiecesOfChunksDoNotMatter) {
  std::mt19937 random(1);
  const std::string good = "5;a=\"b\"\r\nhello\r\n00a\r\n0123456789\r\n0\r\nT: x\r\n\r\n";
  EXPECT_EQ(read("transfer-encoding:chunked", good + "then", random, 3),
            (Outcome{true, 0, good.size(), "hello0123456789"}));
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = good;
    for (int flips = static_cast<int>(random() % 3); flips > 0; --flips)
      bytes[random() % bytes.size()] = "\r\n 0fg;\0-"[random() % 9];
    const Outcome whole = read("transfer-encoding:chunked", bytes, random, 1000);
    EXPECT_EQ(read("transfer-encoding:chunked", bytes, random, 1).body, whole.body);
    EXPECT_EQ(read("transfer-encoding:chunked", bytes, random, 5).status, whole.status);
    EXPECT_EQ(read("transfer-encoding:chunked", bytes, random, 5).done, whole.done);
  }
}

TEST(BodyReaderTest, SizesAreHexadecimalAndNothingElse) {
  std::mt19937 random(1);
  for (const char* bad : {"\r\n", ";\r\n", "0x1\r\n", "+1\r\n", "-1\r\n", " 1\r\n", "1 \r\n",
                          "g\r\n", "00000000000000001\r\n", "1\n"})
    EXPECT_EQ(read("transfer-encoding:chunked", bad, random, 3).status, 400) << bad;
  for (const char* big : {"15\r\n", "ffffffffffffffff\r\n", "8000000000000000\r\n"})
    EXPECT_EQ(read("transfer-encoding:chunked", big, random, 3).status, 413) << big;
  EXPECT_EQ(read("transfer-encoding:chunked", "1;" + std::string(80000, 'e'), random, 999).status,
            400);
}

}  // namespace
}  // namespace skiff::http
