#include "serve/http/request_reader.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <string_view>

namespace skiff::http {
namespace {

using Took = RequestReader::Took;

class RequestReaderTest : public testing::Test {
 protected:
  void give(std::string_view bytes) {
    reader_.append(boost::asio::buffer(bytes.data(), bytes.size()));
  }
  static std::string post(std::string_view path, std::string_view body) {
    return "POST " + std::string(path) +
           " HTTP/1.1\r\nhost: x\r\ncontent-length: " + std::to_string(body.size()) + "\r\n\r\n" +
           std::string(body);
  }

  HttpConfig config_{.max_body = 1000, .max_bodies = 300};
  std::shared_ptr<BodyCount::Sum> counted_ = std::make_shared<BodyCount::Sum>(0);
  RequestReader reader_{config_, counted_};
};

TEST_F(RequestReaderTest, TakesOneRequestAfterTheOtherWhereverTheyAreCut) {
  const std::string both = post("/a", "first") + post("/b", "");
  for (size_t cut = 0; cut <= both.size(); ++cut) {
    RequestReader reader(config_, counted_);
    const auto add = [&](std::string_view part) {
      reader.append(boost::asio::buffer(part.data(), part.size()));
    };
    add(std::string_view(both).substr(0, cut));
    bool late = false;
    const auto all_of = [&](Took took, auto again) {
      if (took != Took::kMore || late) return took;
      late = true;
      add(std::string_view(both).substr(cut));
      return again();
    };
    const auto head = [&] { return reader.take_head(); };
    const auto body = [&] { return reader.take_body(); };
    reader.begin();
    ASSERT_EQ(all_of(head(), head), Took::kAll) << cut;
    EXPECT_EQ(reader.target(), "/a");
    EXPECT_EQ(reader.begin_body(), Took::kMore);
    ASSERT_EQ(all_of(body(), body), Took::kAll) << cut;
    reader.finish();
    EXPECT_EQ(reader.request().body, "first");
    reader.begin();
    ASSERT_EQ(all_of(head(), head), Took::kAll) << cut;
    EXPECT_EQ(reader.target(), "/b");
    EXPECT_EQ(reader.begin_body(), Took::kAll);
    EXPECT_EQ(reader.ahead(), 0u);
  }
}

TEST_F(RequestReaderTest, ARefusedHeadSaysWhatIsKnownOfIt) {
  give("HEAD /a HTTP/1.1\r\nhost: x\r\nbroken line\r\n\r\n");
  reader_.begin();
  EXPECT_EQ(reader_.take_head(), Took::kRefused);
  EXPECT_EQ(reader_.refusal().status, 400);
  EXPECT_EQ(reader_.request().method, "HEAD");
}

TEST_F(RequestReaderTest, ABodyThatIsTooLargeIsRefusedBeforeItIsAwaited) {
  give("POST /a HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 1001\r\n\r\n");
  reader_.begin();
  ASSERT_EQ(reader_.take_head(), Took::kAll);
  EXPECT_EQ(reader_.begin_body(), Took::kMore);
  EXPECT_FALSE(reader_.awaits_continue());
  EXPECT_EQ(reader_.take_body(), Took::kRefused);
  EXPECT_EQ(reader_.refusal().status, 413);
}

TEST_F(RequestReaderTest, AllBodiesTogetherAreBounded) {
  give(post("/a", std::string(290, 'x')));
  reader_.begin();
  ASSERT_EQ(reader_.take_head(), Took::kAll);
  ASSERT_EQ(reader_.begin_body(), Took::kMore);
  EXPECT_FALSE(reader_.awaits_continue());
  ASSERT_EQ(reader_.take_body(), Took::kAll);
  EXPECT_GE(*counted_, 290);
  reader_.finish();

  RequestReader other(config_, counted_);
  const std::string second = post("/b", std::string(200, 'x'));
  other.append(boost::asio::buffer(second));
  other.begin();
  ASSERT_EQ(other.take_head(), Took::kAll);
  ASSERT_EQ(other.begin_body(), Took::kMore);
  EXPECT_EQ(other.take_body(), Took::kRefused);
  EXPECT_EQ(other.refusal().status, 503);
  const int64_t both = *counted_;
  other.drop_body();
  EXPECT_LE(*counted_, both - 200) << "what is dropped counts no more";
  reader_.begin();
  EXPECT_EQ(*counted_, 0) << "the count went with the body";
}

TEST_F(RequestReaderTest, ASlowBodyHasLittleTime) {
  config_.max_bodies = 10000;
  config_.body_grace = 5;
  config_.body_rate = 100;
  config_.body_seconds = 7;
  give("POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 900\r\n\r\n");
  reader_.begin();
  ASSERT_EQ(reader_.take_head(), Took::kAll);
  ASSERT_EQ(reader_.begin_body(), Took::kMore);
  EXPECT_LE(reader_.body_allowance(), 5);
  give(std::string(100, 'x'));
  ASSERT_EQ(reader_.take_body(), Took::kMore);
  EXPECT_LE(reader_.body_allowance(), 6);
  give(std::string(700, 'x'));
  ASSERT_EQ(reader_.take_body(), Took::kMore);
  EXPECT_LE(reader_.body_allowance(), 7) << "never more than body_seconds";
}

}  // namespace
}  // namespace skiff::http
