#include "serve/grpc/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serve/grpc/wire.h"

namespace skiff::grpc {
namespace {

using testing::HasSubstr;

std::string bytes_field(int field, std::string_view value) {
  std::string out;
  put_bytes(out, field, value);
  return out;
}

std::string number_field(int field, uint64_t value) {
  std::string out;
  put_number(out, field, value);
  return out;
}

std::string raw(std::string_view text) {
  std::string out{static_cast<char>(text.size()), 0, 0, 0};
  return out += text;
}

const std::string kInput =
    bytes_field(1, "IN") + bytes_field(2, "BYTES") + bytes_field(3, std::string_view("\1", 1));

std::string request(const std::string& input = kInput, const std::string& rest = "") {
  return bytes_field(1, "model") + bytes_field(3, "id-1") + bytes_field(5, input) + rest;
}

TEST(GrpcWire, ReadsWhatItWrites) {
  const std::string message =
      number_field(1, 300) + bytes_field(2, "abc") + number_field(536870911, 0);
  WireReader reader(message);
  ASSERT_TRUE(reader.next());
  EXPECT_TRUE(reader.is(1, WireType::kVarint));
  EXPECT_EQ(reader.number(), 300U);
  ASSERT_TRUE(reader.next());
  EXPECT_TRUE(reader.is(2, WireType::kBytes));
  EXPECT_EQ(reader.bytes(), "abc");
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.field(), 536870911);
  EXPECT_FALSE(reader.next());
  EXPECT_TRUE(reader.good());
}

TEST(GrpcWire, RefusesWhatIsNoMessage) {
  using namespace std::string_view_literals;
  for (const std::string_view bytes : {"\x08"sv,
                                       "\x0a\x05"sv
                                       "ab",
                                       "\x00\x01"sv, "\x0b"sv, "\x0f"sv, "\x09\x01"sv, "\x0d\x01"sv,
                                       "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"sv}) {
    WireReader reader(bytes);
    while (reader.next()) {
    }
    EXPECT_FALSE(reader.good()) << testing::PrintToString(bytes);
  }
}

TEST(GrpcMessages, RawAndTypedContents) {
  for (const bool typed : {false, true}) {
    const std::string message = typed ? request(kInput + bytes_field(5, bytes_field(8, "[{}]")))
                                      : request(kInput, bytes_field(7, raw("[{}]")));
    const InferRequest read = read_infer_request(message);
    EXPECT_EQ(read.problem, "");
    EXPECT_EQ(read.model.name, "model");
    EXPECT_EQ(read.id, "id-1");
    EXPECT_EQ(read.object, "[{}]");
    EXPECT_EQ(read.typed, typed);
    EXPECT_FALSE(read.empty_final);
  }
}

TEST(GrpcMessages, EmptyFinalIsAParameter) {
  const std::string entry =
      bytes_field(1, "triton_enable_empty_final_response") + bytes_field(2, number_field(1, 1));
  const std::string other = bytes_field(1, "priority") + bytes_field(2, number_field(2, 1));
  const std::string message =
      request(kInput, bytes_field(4, other) + bytes_field(4, entry) + bytes_field(7, raw("x")));
  EXPECT_TRUE(read_infer_request(message).empty_final);
}

TEST(GrpcMessages, Refusals) {
  const std::string body = bytes_field(7, raw("x"));
  const std::string other_name = bytes_field(1, "TEXT") + bytes_field(2, "BYTES");
  const std::string other_type = bytes_field(1, "IN") + bytes_field(2, "INT32");
  const std::string other_shape =
      bytes_field(1, "IN") + bytes_field(2, "BYTES") + number_field(3, 2);
  const std::string contents = bytes_field(5, bytes_field(8, "x"));
  const std::pair<std::string, const char*> cases[] = {
      {bytes_field(1, "model"), "0 inputs"},
      {request(kInput, bytes_field(5, kInput) + body), "2 inputs"},
      {request(other_name, body), "no input \"TEXT\""},
      {request(other_type, body), "must be BYTES"},
      {request(other_shape, body), "shape [1]"},
      {request(kInput), "no contents"},
      {request(kInput, body + body), "more than one input"},
      {request(kInput + contents, body), "both typed and raw"},
      {request(kInput + bytes_field(5, bytes_field(8, "x") + bytes_field(8, "y"))),
       "more than one element"},
      {request(kInput + bytes_field(5, bytes_field(2, "\1"))), "no bytes_contents"},
      {request(kInput, bytes_field(7, "xyz")), "4 bytes"},
      {request(kInput, bytes_field(7, raw("x") + "more")), "4 bytes"},
      {request(kInput, body + bytes_field(6, bytes_field(1, "LOGITS"))), "no output \"LOGITS\""},
      {request(kInput, body) + "\x0b", "no message"},
      {request(kInput, body) + bytes_field(3, std::string(300, 'x')), "id has 300 bytes"},
  };
  for (const auto& [message, why] : cases) {
    const InferRequest read = read_infer_request(message);
    EXPECT_THAT(read.problem, HasSubstr(why));
    EXPECT_EQ(read.model.name, "model");
    EXPECT_LE(read.id.size(), 256U);
  }
}

TEST(GrpcMessages, AnswersAreMessages) {
  const std::string answer =
      infer_response({.model = "model", .id = "7", .object = "[1]", .typed = false, .final = true});
  WireReader reader(answer);
  int fields = 0;
  while (reader.next()) {
    ++fields;
    if (reader.is(6, WireType::kBytes)) {
      EXPECT_EQ(reader.bytes(), raw("[1]"));
    }
  }
  EXPECT_TRUE(reader.good());
  EXPECT_EQ(fields, 6);
}

}  // namespace
}  // namespace skiff::grpc
