// The constraint that makes a model write calls asks for arguments that readers take.
#include "text/answer/call_writing.h"

#include <gtest/gtest.h>

namespace skiff::answer {
namespace {

Result<OrderedJson> tag_of(const char* parameters) {
  const CallFormat& format = **find_call_format("hermes");
  OrderedJson tools = OrderedJson::parse(R"([{"type": "function", "function": {"name": "f"}}])");
  tools[0]["function"]["parameters"] = OrderedJson::parse(parameters);
  return call_tag(format, *find_call_writing(format, [](auto) { return true; }), tools,
                  {.required = true, .all_schemas = true});
}

TEST(CallWriting, ArgumentsAreObjectsWhateverElseTheSchemaAllows) {
  for (const char* parameters :
       {"{}", R"({"type": ["integer", "object"]})", R"({"enum": [{"a": 1}, 5]})",
        R"({"$ref": "#/$defs/A", "$defs": {"A": {"type": "object"}}})"}) {
    const auto tag = tag_of(parameters);
    ASSERT_TRUE(tag) << parameters;
    EXPECT_NE(tag->dump().find(R"("type":"object")"), std::string::npos) << tag->dump();
  }
}

TEST(CallWriting, ASchemaWithoutObjectsIsRefused) {
  for (const char* parameters : {R"({"type": ["integer", "object"], "const": 5})",
                                 R"({"enum": ["five"]})", R"({"type": "string"})"}) {
    const auto tag = tag_of(parameters);
    ASSERT_FALSE(tag) << parameters;
    EXPECT_EQ(tag.error().field, "tools");
    EXPECT_NE(tag.error().what.find("\"f\""), std::string::npos) << tag.error().what;
  }
}

}  // namespace
}  // namespace skiff::answer
