// A model's folder may hold entries that are not regular files.
#include "base/regular_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "base/load_error.h"

namespace skiff {
namespace {

class RegularFileTest : public testing::Test {
 protected:
  RegularFileTest() {
    char name[] = "/tmp/skiff_test_XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~RegularFileTest() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string folder_;
};

void expect_refused(const std::string& path, const std::string& why) {
  try {
    read_regular_file(path, 100);
    FAIL() << path << " was read";
  } catch (const LoadError& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr(path));
    EXPECT_THAT(e.what(), testing::HasSubstr(why));
  }
}

TEST_F(RegularFileTest, ReadsAFileAndALinkToOne) {
  const std::string bytes("{\"a\": \0 \xff}", 10);
  std::ofstream(path("file"), std::ios::binary) << bytes;
  std::filesystem::create_symlink(path("file"), path("link"));
  EXPECT_EQ(read_regular_file(path("file"), 10), bytes);
  EXPECT_EQ(read_regular_file(path("link"), 10), bytes);
  std::ofstream(path("empty")) << "";
  EXPECT_EQ(read_regular_file(path("empty"), 10), "");
}

TEST_F(RegularFileTest, RefusesWhatIsNoFile) {
  ASSERT_EQ(mkfifo(path("fifo").c_str(), 0600), 0);
  std::filesystem::create_symlink(path("fifo"), path("link"));
  std::filesystem::create_symlink(path("nothing"), path("dangling"));
  alarm(10);  // without O_NONBLOCK the open of a FIFO never returns
  expect_refused(path("fifo"), "not a regular file");
  expect_refused(path("link"), "not a regular file");
  expect_refused(folder_, "not a regular file");
  expect_refused("/dev/zero", "not a regular file");
  expect_refused(path("dangling"), "No such file");
  EXPECT_THROW(read_json_file(path("fifo")), LoadError);
  alarm(0);
}

TEST_F(RegularFileTest, RefusesMoreThanTheLimit) {
  std::ofstream(path("large")) << std::string(101, 'x');
  expect_refused(path("large"), "limit of 100");
}

}  // namespace
}  // namespace skiff
