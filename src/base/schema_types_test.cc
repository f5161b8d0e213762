#include "base/schema_types.h"

#include <gtest/gtest.h>

namespace skiff {
namespace {

TEST(SchemaTypes, KeywordsThatNameTypesAreRead) {
  const auto types = [](const char* schema) {
    const OrderedJson root = OrderedJson::parse(
        R"({"$defs": {"S": {"type": "string"}, "R": {"anyOf": [{"$ref": "#/$defs/R"}]}}})");
    return static_cast<int>(allowed_types(OrderedJson::parse(schema), root));
  };
  EXPECT_EQ(types("{}"), kJsonAny);
  EXPECT_EQ(types("true"), kJsonAny);
  EXPECT_EQ(types("false"), 0);
  EXPECT_EQ(types(R"({"type": "integer"})"), kJsonNumber);
  EXPECT_EQ(types(R"({"type": ["string", "null"]})"), kJsonString | kJsonNull);
  EXPECT_EQ(types(R"({"type": "string", "nullable": true})"), kJsonString | kJsonNull);
  EXPECT_EQ(types(R"({"type": "string", "nullable": true, "enum": ["null"]})"), kJsonString);
  EXPECT_EQ(types(R"({"anyOf": [{"type": "string"}, {"type": "null"}]})"), kJsonString | kJsonNull);
  EXPECT_EQ(types(R"({"oneOf": [{"const": 1}, {"enum": [[1], {}]}]})"),
            kJsonNumber | kJsonArray | kJsonObject);
  EXPECT_EQ(types(R"({"allOf": [{"type": ["string", "integer"]}, {"enum": ["1", true]}]})"),
            kJsonString);
  EXPECT_EQ(types(R"({"$ref": "#/$defs/S"})"), kJsonString);
  EXPECT_EQ(types(R"({"$ref": "#/$defs/absent"})"), kJsonAny);
  EXPECT_EQ(types(R"({"$ref": "#bad~pointer"})"), kJsonAny);
  EXPECT_EQ(types(R"({"$ref": "#/$defs/R"})"), kJsonAny);
  EXPECT_EQ(types(R"({"type": "unheard of"})"), kJsonAny);
}

}  // namespace
}  // namespace skiff
