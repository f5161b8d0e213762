#include "apps/chat/history_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace skiff::apps {
namespace {

namespace fs = std::filesystem;
using testing::IsEmpty;

class History : public testing::Test {
 protected:
  History() { fs::remove_all(root_); }
  ~History() override { fs::remove_all(root_); }
  std::string path() const { return root_ + "/a/b/history"; }
  static int mode(const std::string& path) {
    struct stat found = {};
    EXPECT_EQ(stat(path.c_str(), &found), 0) << path;
    return found.st_mode & 0777;
  }
  const std::string root_ = testing::TempDir() + "skiff_history_test";
};

TEST(HistoryPath, FollowsTheBaseDirectories) {
  EXPECT_EQ(history_path("/state", "/home/me"), "/state/skiff/history");
  EXPECT_EQ(history_path(nullptr, "/home/me"), "/home/me/.local/state/skiff/history");
  EXPECT_EQ(history_path("", "/home/me"), "/home/me/.local/state/skiff/history");
  EXPECT_EQ(history_path("relative", nullptr), "");
  EXPECT_EQ(history_path(nullptr, nullptr), "");
}

TEST_F(History, EntriesComeBackInOrder) {
  const HistoryFile file(path());
  const std::vector<std::string> entries = {"one", "two\nlines\\n", "\\", "你好"};
  for (const std::string& entry : entries) EXPECT_TRUE(file.append(entry));
  EXPECT_EQ(file.load(), entries);
}

TEST_F(History, OnlyTheOwnerMayRead) {
  ASSERT_TRUE(HistoryFile(path()).append("secret"));
  EXPECT_EQ(mode(path()), 0600);
  EXPECT_EQ(mode(root_ + "/a"), 0700);
}

TEST_F(History, ALongFileIsCut) {
  const HistoryFile file(path());
  ASSERT_TRUE(file.append("first"));
  std::ofstream out(path(), std::ios::app);
  for (size_t i = 0; i < 2 * HistoryFile::kMaxEntries; ++i) out << "entry " << i << "\n";
  out.close();
  const auto entries = file.load();
  ASSERT_EQ(entries.size(), HistoryFile::kMaxEntries);
  EXPECT_EQ(entries.back(), "entry 1999");
  EXPECT_EQ(entries.front(), "entry 1000");
  std::ifstream in(path());
  size_t lines = 0;
  for (std::string line; std::getline(in, line);) ++lines;
  EXPECT_EQ(lines, HistoryFile::kMaxEntries);
  EXPECT_EQ(mode(path()), 0600);
}

TEST_F(History, WhatCannotBeKeptDoesNoHarm) {
  EXPECT_TRUE(HistoryFile("").append("x"));
  EXPECT_THAT(HistoryFile("").load(), IsEmpty());
  EXPECT_THAT(HistoryFile(path()).load(), IsEmpty());
  fs::create_directories(path());  // a folder where the file should be
  EXPECT_FALSE(HistoryFile(path()).append("x"));
  EXPECT_THAT(HistoryFile(path()).load(), IsEmpty());
  const HistoryFile file(root_ + "/history");
  EXPECT_TRUE(file.append(std::string(HistoryFile::kMaxEntryBytes + 1, 'x')));
  EXPECT_THAT(file.load(), IsEmpty());
}

TEST_F(History, StrayEscapesAreReadAsTheyCan) {
  EXPECT_EQ(unescaped_entry("a\\"), "a\\");
  EXPECT_EQ(unescaped_entry("a\\tb"), "atb");
}

}  // namespace
}  // namespace skiff::apps
