#include "workload/sse.h"

#include <gtest/gtest.h>

#include "workload/serve_bench.h"

namespace skiff::workload {
namespace {

const std::string kStream =
    "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"
    ": keep-alive\n\n"
    "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\r\n\r\n"
    "data:{\"choices\":[{\"text\":\"b\"}],\"usage\":null}\n\n"
    "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"c\"}}]}\n\n"
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3,"
    "\"prompt_tokens_details\":{\"cached_tokens\":5}}}\n\ndata: [DONE]\n\n";

TEST(Sse, PiecesAreTimedHoweverTheBytesAreCut) {
  for (size_t cut = 0; cut <= kStream.size(); ++cut) {
    SseReader reader;
    StreamOutcome out;
    reader.feed(std::string_view(kStream).substr(0, cut), 1, out);
    reader.feed(std::string_view(kStream).substr(cut), 2, out);
    EXPECT_TRUE(reader.complete());
    EXPECT_TRUE(out.ok()) << out.error;
    EXPECT_EQ(out.gaps.size(), 2u);
    EXPECT_GE(out.first, 1);
    EXPECT_EQ(out.prompt, 7);
    EXPECT_EQ(out.cached, 5);
    EXPECT_EQ(out.completion, 3);
  }
}

TEST(Sse, AnErrorEventIsAFailure) {
  SseReader reader;
  StreamOutcome out;
  reader.feed("data: {\"error\":{\"message\":\"no room\"}}\n\n", 1, out);
  EXPECT_FALSE(out.ok());
  EXPECT_NE(out.error.find("no room"), std::string::npos);
  EXPECT_FALSE(reader.complete());
}

TEST(Sse, AReplyWithoutTextComesWithItsEnd) {
  SseReader reader;
  StreamOutcome out;
  reader.feed("data: {\"choices\":[{\"text\":\"\",\"finish_reason\":null}]}\n\n", 1, out);
  EXPECT_EQ(out.first, 0);
  reader.feed("data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"length\"}]}\n\n", 2, out);
  EXPECT_EQ(out.first, 2);
  EXPECT_TRUE(out.gaps.empty());
}

TEST(Sse, AnEndWithoutTextIsNoPieceOfText) {
  SseReader reader;
  StreamOutcome out;
  reader.feed("data: {\"choices\":[{\"text\":\"a\",\"finish_reason\":null}]}\n\n", 1, out);
  reader.feed("data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"length\"}]}\n\n", 2, out);
  EXPECT_EQ(out.first, 1);
  EXPECT_TRUE(out.gaps.empty());
}

TEST(Url, HostPortAndPrefix) {
  const auto url = parse_url("http://gpu1:8188/v1/");
  ASSERT_TRUE(url);
  EXPECT_EQ(url->host, "gpu1");
  EXPECT_EQ(url->port, "8188");
  EXPECT_EQ(url->prefix, "");
  EXPECT_EQ(parse_url("http://a/x/v1")->prefix, "/x");
  EXPECT_EQ(parse_url("http://[::1]:80")->host, "::1");
  EXPECT_EQ(parse_url("http://a")->port, "80");
  for (const char* bad : {"", "a:80", "https://a", "http://", "http://a:b", "http://:80"})
    EXPECT_FALSE(parse_url(bad)) << bad;
}

TEST(ServeBench, APromptHasAsManyLettersAsTokensAreAskedFor) {
  ServeBench bench;
  bench.model = "m";
  bench.requests = {{.at = 0, .input = 5, .output = 3, .hashes = {}}};
  const std::string body = request_body(bench, 0);
  EXPECT_NE(body.find("\"max_tokens\":3"), std::string::npos);
  const size_t prompt = body.find("\"prompt\":\"") + 10;
  EXPECT_EQ(body.find('"', prompt) - prompt, 9u);
}

}  // namespace
}  // namespace skiff::workload
