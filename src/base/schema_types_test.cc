#include "base/schema_types.h"

#include <gtest/gtest.h>

namespace skiff {
namespace {

TEST(SchemaTypes, KeywordsThatNameTypesAreRead) {
  const auto types = [](const char* schema) {
    const OrderedJson root = OrderedJson::parse(
        R"({"$defs": {"S": {"type": "string"}, "R": {"anyOf": [{"$ref": "#/$defs/R"}]}}})");
    return static_cast<int>(SchemaTypes(root).of(OrderedJson::parse(schema)));
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

// One large part to which thousands refer is looked at as often as the bound allows.
TEST(SchemaTypes, WorkIsBoundedOverAllParts) {
  OrderedJson root = {{"$defs", {{"Large", {{"enum", OrderedJson::array()}}}}}};
  OrderedJson& large = root["$defs"]["Large"]["enum"];
  for (int i = 0; i < 30'000; ++i) large.push_back("x");
  SchemaTypes types(root);
  const OrderedJson part = {{"$ref", "#/$defs/Large"}};
  EXPECT_EQ(types.of(part), kJsonString);
  EXPECT_EQ(types.of(part), kJsonString);
  EXPECT_EQ(types.of(part), kJsonAny) << "90,000 values are more than may be looked at";
  OrderedJson twice = {{"$defs", {{"R", {{"anyOf", {part, part}}}}}}};
  for (OrderedJson& branch : twice["$defs"]["R"]["anyOf"]) branch["$ref"] = "#/$defs/R";
  EXPECT_EQ(SchemaTypes(twice).of({{"$ref", "#/$defs/R"}}), kJsonAny);  // 2^32 paths
  OrderedJson many;
  for (int i = 0; i < 1000; ++i) many[std::to_string(i)] = {{"type", "null"}};
  SchemaTypes of_many(many);
  for (int i = 0; i < 1000; ++i)
    EXPECT_EQ(of_many.of({{"$ref", "#/" + std::to_string(i)}}), i < 256 ? kJsonNull : kJsonAny);
}

}  // namespace
}  // namespace skiff
