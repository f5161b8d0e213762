// Names of static models are told from those of checkpoints, however much of their path is given.
#include "download/static_models.h"

#include <gtest/gtest.h>

#include <set>

namespace skiff::download {
namespace {

TEST(StaticModels, NamesAreFoundAloneAndAtTheEndOfAPath) {
  for (const StaticModel& model : static_models()) {
    const std::string name(model.name);
    for (const std::string& path : {name, name + "/", "static/3.0.0.b4/" + name + "/model",
                                    "/models/" + name + "/node2", name + "/mtp/"})
      EXPECT_EQ(find_static_model(path), &model) << path;
    for (const std::string& path : {"x" + name, name + "x", name + "/rank_0", name.substr(1)})
      EXPECT_EQ(find_static_model(path), nullptr) << path;
  }
}

TEST(StaticModels, CheckpointsAreNone) {
  for (const StaticModel& model : static_models())
    EXPECT_EQ(find_static_model(model.checkpoint), nullptr) << model.checkpoint;
  EXPECT_EQ(find_static_model(""), nullptr);
  EXPECT_EQ(find_static_model("/model"), nullptr);
}

TEST(StaticModels, EachIsThereOnceAndHasAdvice) {
  std::set<std::string_view> names;
  for (const StaticModel& model : static_models()) {
    EXPECT_TRUE(names.insert(model.name).second) << model.name;
    const std::string advice = advice_on(model);
    EXPECT_NE(advice.find(model.checkpoint), std::string::npos) << advice;
    EXPECT_TRUE(advice.ends_with(model.flags)) << advice;
    EXPECT_EQ(model.name.ends_with("weight_only_int8"), advice.find("wint8") != advice.npos);
    EXPECT_EQ(model.name.ends_with("weight_only_int4"), advice.find("wint4") != advice.npos);
    EXPECT_EQ(model.name.find("-MTP") != model.name.npos, advice.find("mtp") != advice.npos);
  }
}

}  // namespace
}  // namespace skiff::download
