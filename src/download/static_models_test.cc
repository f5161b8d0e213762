// Names of static models are told from those of checkpoints, however much of their path is given.
#include "download/static_models.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
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

TEST(StaticModels, GraphsAreFoundInAFolderAndInThoseOfItsRanks) {
  namespace fs = std::filesystem;
  const fs::path root = fs::path(testing::TempDir()) / fmt::format("skiff_graph_{}", getpid());
  const auto folder_with = [&](const std::string& name, std::initializer_list<const char*> files) {
    for (const char* file : files) {
      const fs::path path = root / name / file;
      fs::create_directories(path.parent_path());
      std::ofstream(path) << "x";
    }
    return (root / name).string();
  };
  EXPECT_EQ(graph_in((root / "none").string()), "");
  EXPECT_EQ(graph_in(folder_with("checkpoint",
                                 {"config.json", "model.safetensors", "rank_0/model.safetensors"})),
            "");
  EXPECT_EQ(graph_in(folder_with("flat", {"config.json", "model.pdmodel", "model.pdiparams"})),
            "model.pdiparams");
  const std::string ranks = folder_with(
      "ranks", {"config.json", "rank_1/model.pdiparams", "rank_0/model.pdmodel", "rank_0/x.json"});
  EXPECT_EQ(graph_in(ranks), "rank_0/model.pdmodel");
  const std::string advice = advice_on_graph(ranks, "rank_0/model.pdmodel");
  EXPECT_TRUE(advice.starts_with(ranks + ": rank_0/model.pdmodel is an inference graph")) << advice;
  const StaticModel& known = static_models().front();
  EXPECT_EQ(advice_on_graph("/models/" + std::string(known.name) + "/model", "model.pdmodel"),
            advice_on(known));
  fs::remove_all(root);
}

}  // namespace
}  // namespace skiff::download
