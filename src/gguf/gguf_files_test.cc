// A model in several files, right and wrong.
#include "gguf/gguf_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/load_error.h"
#include "base/log.h"
#include "gguf/gguf_writer_testing.h"

namespace skiff {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class GgufFiles : public ::testing::Test {
 protected:
  GgufFiles() : dir_(fs::temp_directory_path() / fmt::format("skiff_gguf_{}", ::getpid())) {
    fs::create_directories(dir_);
  }
  ~GgufFiles() override { fs::remove_all(dir_); }

  static Json keys(unsigned number, unsigned count = 3, int tensors = 4) {
    return {{"split.no", number}, {"split.count", count}, {"split.tensors.count", tensors}};
  }
  static testing::GgufFileTensor tensor(const std::string& name) {
    return {name, 0, {2, 4}, std::string(32, '\1')};
  }
  std::string path(const std::string& name) const { return (dir_ / name).string(); }
  static std::string part(unsigned number) { return fmt::format("m-{:05}-of-00003.gguf", number); }
  void write(const std::string& name, const Json& metadata,
             const std::vector<testing::GgufFileTensor>& tensors) const {
    std::ofstream(path(name), std::ios::binary) << testing::gguf_bytes(metadata, tensors);
  }
  // Three parts, the first with the metadata, as gguf-split leaves them.
  void write_all() const {
    Json first = keys(0);
    first["general.architecture"] = "llama";
    write(part(1), first, {tensor("a"), tensor("b")});
    write(part(2), keys(1), {tensor("c")});
    write(part(3), keys(2), {tensor("d")});
  }
  std::string refusal(const std::string& name) const {
    try {
      read_gguf(path(name));
      return "accepted";
    } catch (const LoadError& e) {
      return e.what();
    }
  }

  fs::path dir_;
};

TEST_F(GgufFiles, PartsAreOneModel) {
  write_all();
  const GgufModel model = read_gguf(path(part(1)));
  EXPECT_THAT(model.files, ElementsAre(path(part(1)), path(part(2)), path(part(3))));
  EXPECT_EQ(model.header.metadata.at("general.architecture"), "llama");
  std::vector<std::string> names;
  std::vector<size_t> files;
  for (const GgufTensor& t : model.header.tensors) {
    names.push_back(t.name);
    files.push_back(t.file);
  }
  EXPECT_THAT(names, ElementsAre("a", "b", "c", "d"));
  EXPECT_THAT(files, ElementsAre(0u, 0u, 1u, 2u));
  EXPECT_EQ(gguf_file_of(dir_.string()), path(part(1)));
  EXPECT_EQ(gguf_file_of(path(part(1))), path(part(1)));
}

TEST_F(GgufFiles, AnotherFileBesideThePartsMustBeToldApart) {
  write_all();
  write("other.gguf", Json::object(), {tensor("a")});
  EXPECT_THAT([&] { gguf_file_of(dir_.string()); },
              ::testing::ThrowsMessage<LoadError>(HasSubstr("several files")));
}

TEST_F(GgufFiles, TheFirstPartIsAskedFor) {
  write_all();
  EXPECT_THAT(refusal(part(2)), AllOf(HasSubstr("part 2 of 3"), HasSubstr(part(1))));
}

TEST_F(GgufFiles, MissingPartsAreNamed) {
  write_all();
  fs::remove(path(part(3)));
  EXPECT_THAT(refusal(part(1)), AllOf(HasSubstr("1 of 3 parts are missing"), HasSubstr(part(3))));
}

TEST_F(GgufFiles, NamesAreThoseOfParts) {
  write("model.gguf", keys(0), {tensor("a")});
  EXPECT_THAT(refusal("model.gguf"), HasSubstr("-00001-of-00003.gguf"));
  write("m-00001-of-00002.gguf", keys(0), {tensor("a")});
  EXPECT_THAT(refusal("m-00001-of-00002.gguf"), HasSubstr("-00001-of-00003.gguf"));
}

TEST_F(GgufFiles, NumbersOfPartsAgree) {
  for (const Json& wrong : {keys(1), keys(2, 4), keys(0, 1), Json::object()}) {
    write_all();
    write(part(3), wrong, {tensor("d")});
    EXPECT_THAT(refusal(part(1)), AllOf(HasSubstr(part(3)), HasSubstr("split.no"))) << wrong.dump();
  }
}

TEST_F(GgufFiles, TensorsAreCountedAndApart) {
  write_all();
  write(part(3), keys(2), {tensor("d"), tensor("e")});
  EXPECT_THAT(refusal(part(1)), AllOf(HasSubstr("have 5 tensors"), HasSubstr("is 4")));
  write(part(3), keys(2), {tensor("a")});
  EXPECT_THAT(refusal(part(1)), AllOf(HasSubstr(part(3)), HasSubstr("\"a\"")));
}

TEST_F(GgufFiles, KeysOfPartsAreBounded) {
  const std::pair<Json, const char*> cases[] = {
      {{{"split.count", -1}}, "must be a count"},
      {{{"split.count", "3"}}, "must be a count"},
      {{{"split.count", 5000u}}, "at most 4096"},
      {{{"split.no", 3u}, {"split.count", 3u}}, "split.no"},
      {{{"split.no", 0.5}, {"split.count", 3u}}, "split.no"}};
  for (const auto& [keys, said] : cases) {
    write(part(1), keys, {tensor("a")});
    EXPECT_THAT(refusal(part(1)), HasSubstr(said)) << keys.dump();
  }
}

TEST_F(GgufFiles, OnePartNeedsNoName) {
  write("model.gguf", keys(0, 1, 1), {tensor("a")});
  EXPECT_THAT(read_gguf(path("model.gguf")).files, ElementsAre(path("model.gguf")));
}

}  // namespace
}  // namespace skiff
