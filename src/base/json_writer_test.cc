#include "base/json_writer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "base/json.h"

namespace skiff {
namespace {

TEST(JsonWriter, PutsCommasWhereTheyBelong) {
  std::string out = "x";
  JsonWriter json(out);
  json.open_object().key("a").open_array().integer(1).string("b\"").null().open_object();
  json.close_object().close_array().key("b").open_array().close_array().key("c").json("[2]");
  json.key("d").open_object().key("e").number(1).close_object().close_object();
  EXPECT_EQ(out, R"(x{"a":[1,"b\"",null,{}],"b":[],"c":[2],"d":{"e":1.0}})");
}

TEST(JsonWriter, NumbersReadBackAsThemselves) {
  std::mt19937_64 random(5);
  for (int trial = 0; trial < 20000; ++trial) {
    double value = static_cast<double>(trial % 100) - 50;
    if (trial % 3 == 0) value = static_cast<double>(random() >> 11) * 0x1p-53 * -20;
    if (trial % 3 == 1) {
      const uint64_t bits = random();
      std::memcpy(&value, &bits, sizeof value);
      if (!std::isfinite(value)) continue;
    }
    std::string out;
    JsonWriter(out).number(value);
    const Json back = Json::parse(out);
    EXPECT_TRUE(back.is_number_float()) << out;
    EXPECT_EQ(back.get<double>(), value) << out;
  }
}

}  // namespace
}  // namespace skiff
