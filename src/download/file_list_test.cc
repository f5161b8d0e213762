#include "download/file_list.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace skiff::download {
namespace {

// Digests of "abc", from RFC 1321 and FIPS 180-2.
const std::string kMd5 = "900150983cd24fb0d6963f7d28e17f72";
const std::string kSha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

TEST(FileList, NamesStayInTheirFolder) {
  for (const char* good : {"a", "a/b.c", ".gitattributes", "a..b", "..a", "\xe6\xa8\xa1.json"})
    EXPECT_TRUE(is_safe_name(good)) << good;
  for (const std::string& bad :
       {std::string(), std::string("/a"), std::string("a/"), std::string(".."), std::string("../a"),
        std::string("a/../b"), std::string("a//b"), std::string("./a"), std::string("a\\..\\b"),
        std::string("c:a"), std::string("a\nb"), std::string("a\0b", 3), std::string(300, 'a'),
        std::string(2000, 'a')})
    EXPECT_FALSE(is_safe_name(bad)) << bad;
}

TEST(FileList, Md5Lists) {
  const auto files = read_md5_list("a/b:" + kMd5 + "\r\n\nc:d:" + kMd5 + "\n");
  EXPECT_FALSE(files) << "a colon in a name";
  const auto good = read_md5_list("a/b:" + kMd5 + "\r\n\nc:" + kMd5);
  ASSERT_TRUE(good);
  ASSERT_EQ((*good).size(), 2u);
  EXPECT_EQ((*good)[0].name, "a/b");
  EXPECT_EQ((*good)[1].checksum.hex, kMd5);
  for (const char* bad : {"a", "a:12", "../a:{0}", "a:{0}\na:{0}", "a:{0}\na/b:{0}"}) {
    const std::string text = fmt::format(fmt::runtime(bad), kMd5);
    EXPECT_FALSE(read_md5_list(text)) << text;
  }
}

TEST(FileList, HubListings) {
  const auto files = read_hub_listing(R"({"siblings": [
      {"rfilename": "w", "size": 3, "blobId": "x", "lfs": {"sha256": ")" +
                                      kSha256 + R"("}},
      {"rfilename": "c.json", "blobId": "f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f"},
      {"rfilename": "plain", "size": -1}]})");
  ASSERT_TRUE(files);
  ASSERT_EQ((*files).size(), 3u);
  EXPECT_EQ((*files)[0].size, 3u);
  EXPECT_EQ((*files)[0].checksum.kind, Checksum::Kind::kSha256);
  EXPECT_EQ((*files)[1].checksum.kind, Checksum::Kind::kGitSha1);
  EXPECT_EQ((*files)[2].checksum.kind, Checksum::Kind::kNone);
  EXPECT_FALSE((*files)[2].size);
  for (const char* bad : {"", "[]", "{}", R"({"siblings": [3]})", R"({"siblings": [{}]})",
                          R"({"siblings": [{"rfilename": "../../etc/passwd"}]})"})
    EXPECT_FALSE(read_hub_listing(bad)) << bad;
}

TEST(FileList, ShardsOfAnIndex) {
  const auto files = read_shard_index(R"({"weight_map": {"a": "2", "b": "1", "c": "2"}})");
  ASSERT_TRUE(files);
  ASSERT_EQ((*files).size(), 2u);
  EXPECT_EQ((*files)[0].name, "1");
  EXPECT_FALSE(read_shard_index(R"({"weight_map": {"a": "../x"}})"));
  EXPECT_FALSE(read_shard_index(R"({"weight_map": [1]})"));
}

TEST(FileList, Patterns) {
  for (const char* good : {"*.json", "c*", "*", "a/c.json", "?.json", "*c*s*n"})
    EXPECT_TRUE(matches(good, "a/c.json")) << good;
  for (const char* bad : {"json", "*.jso", "b*", "", "??.json"})
    EXPECT_FALSE(matches(bad, "a/c.json")) << bad;
}

TEST(DigestTest, EqualsPublishedValues) {
  const auto of = [](Checksum::Kind kind) {
    Digest digest(kind, 3);
    digest.add("a");
    digest.add("bc");
    return digest.hex();
  };
  EXPECT_EQ(of(Checksum::Kind::kMd5), kMd5);
  EXPECT_EQ(of(Checksum::Kind::kSha256), kSha256);
  // What `printf abc | git hash-object --stdin` prints.
  EXPECT_EQ(of(Checksum::Kind::kGitSha1), "f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f");
  EXPECT_EQ(of(Checksum::Kind::kNone), "");
  EXPECT_FALSE(Checksum::parse(Checksum::Kind::kMd5, kSha256));
  EXPECT_EQ(Checksum::parse(Checksum::Kind::kMd5, "900150983CD24FB0D6963F7D28E17F72")->hex, kMd5);
}

}  // namespace
}  // namespace skiff::download
