#include "serve/service/pooled_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace skiff::service {
namespace {

using testing::ElementsAre;
using testing::FloatNear;
using testing::HasSubstr;

TEST(PooledModel, EmbeddingsAreCutAndThenNormalized) {
  EXPECT_THAT(embedding_of({3, 4, 12}, 0, false), ElementsAre(3, 4, 12));
  EXPECT_THAT(embedding_of({3, 4, 12}, 2, false), ElementsAre(3, 4));
  EXPECT_THAT(embedding_of({3, 4, 12}, 2, true), ElementsAre(0.6f, 0.8f));
  EXPECT_THAT(embedding_of({3, 4}, 9, true), ElementsAre(0.6f, 0.8f));
  EXPECT_THAT(embedding_of({0, 0}, 0, true), ElementsAre(0, 0)) << "no length, no division";
}

TEST(PooledModel, ScoresOfClasses) {
  EXPECT_THAT(class_scores({0}, true), ElementsAre(0.5f));
  EXPECT_THAT(class_scores({1, 1}, true), ElementsAre(0.5f, 0.5f));
  const auto third = FloatNear(1 / (1 + std::exp(1.f)), 1e-6f);
  EXPECT_THAT(class_scores({1001, 1000}, true), ElementsAre(testing::_, third)) << "no overflow";
  EXPECT_THAT(class_scores({7, -2}, false), ElementsAre(7, -2));
}

TEST(PooledModel, ScoresOfPairs) {
  EXPECT_EQ(pair_score({2}, false), 2);
  EXPECT_EQ(pair_score({5, 5}, true), 0.5f);
  EXPECT_EQ(pair_score({1, 4}, false), 3) << "the second class against the first";
  EXPECT_GT(pair_score({0, 2}, true), pair_score({0, 1}, true));
  EXPECT_FLOAT_EQ(cosine({1, 0}, {1, 1}), std::sqrt(0.5f));
  EXPECT_EQ(cosine({0, 0}, {1, 1}), 0);
}

TEST(PooledModel, DimensionsNeedTheModelsWord) {
  PooledModel model{.width = 32};
  EXPECT_TRUE(check_dimensions(model, 0));
  EXPECT_EQ(check_dimensions(model, 8).error().field, "dimensions");
  EXPECT_THAT(check_dimensions(model, 8).error().what, HasSubstr("--override-pooler-config"));
  model.matryoshka = true;
  EXPECT_TRUE(check_dimensions(model, 8));
  EXPECT_THAT(check_dimensions(model, 33).error().what, HasSubstr("32"));
  model.dimensions = {8, 16};
  EXPECT_TRUE(check_dimensions(model, 16));
  EXPECT_THAT(check_dimensions(model, 9).error().what, HasSubstr("8, 16"));
}

}  // namespace
}  // namespace skiff::service
