#include "model/kv_cache_dtype.h"

#include <gmock/gmock.h>

namespace skiff::model {
namespace {

using testing::HasSubstr;

std::optional<DType> named(std::string_view word) {
  const auto dtype = kv_cache_dtype_named(word);
  EXPECT_TRUE(dtype) << word;
  return dtype ? *dtype : std::nullopt;
}

TEST(KvCacheDtypeTest, KnowsTheNamesOfOtherEngines) {
  EXPECT_EQ(named("auto"), std::nullopt);
  EXPECT_EQ(named("float32"), DType::kF32);
  EXPECT_EQ(named("bfloat16"), DType::kBF16);
  EXPECT_EQ(named("int8"), DType::kI8);
  for (const char* word : {"fp8", "fp8_e4m3", "float8_e4m3fn", "block_wise_fp8"})
    EXPECT_EQ(named(word), DType::kF8E4M3) << word;
  for (const char* word : {"int4", "int4_zp"}) EXPECT_EQ(named(word), DType::kU4) << word;
}

TEST(KvCacheDtypeTest, RefusesByName) {
  EXPECT_THAT(kv_cache_dtype_named("fp8_e5m2").error().what, HasSubstr("fp8_e5m2"));
  EXPECT_THAT(kv_cache_dtype_named("fp8_e5m2").error().what, HasSubstr("fp8 (e4m3"));
  EXPECT_THAT(kv_cache_dtype_named("int7").error().what, HasSubstr("\"int7\" is not known"));
  EXPECT_FALSE(kv_cache_dtype_named(""));
}

TEST(KvCacheDtypeTest, OddHeadsHaveNoNibbles) {
  ModelSpec spec;
  spec.layers = {{.mixer = Gqa{.heads = 2, .kv_heads = 1, .head_dim = 8}, .ffn = Dense{}},
                 {.mixer = Gqa{.heads = 2, .kv_heads = 1, .head_dim = 7}, .ffn = Dense{}}};
  EXPECT_FALSE(refuse_kv_cache(spec, DType::kI8));
  ASSERT_TRUE(refuse_kv_cache(spec, DType::kU4));
  EXPECT_THAT(refuse_kv_cache(spec, DType::kU4)->what, HasSubstr("have 7"));
}

TEST(KvCacheDtypeTest, LatentsAreFloatsOrFp8) {
  ModelSpec spec;
  spec.layers = {{.mixer = Mla{.heads = 2, .kv_rank = 8, .rope_dim = 4}, .ffn = Dense{}}};
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF8E4M3})
    EXPECT_FALSE(refuse_kv_cache(spec, dtype)) << name(dtype);
  for (const DType dtype : {DType::kI8, DType::kU4}) {
    ASSERT_TRUE(refuse_kv_cache(spec, dtype)) << name(dtype);
    EXPECT_THAT(refuse_kv_cache(spec, dtype)->what, HasSubstr("choose auto, bfloat16 or fp8"));
  }
}

}  // namespace
}  // namespace skiff::model
