#include "fetch/url.h"

#include <gtest/gtest.h>

namespace skiff::fetch {
namespace {

std::string shown(const std::string& text) {
  const auto url = parse_url(text);
  return url ? (*url).text() : "refused";
}

TEST(Url, ReadsHostPortAndTarget) {
  const auto url = parse_url("https://mirror.example:8443/a/b?c=d#e");
  ASSERT_TRUE(url);
  EXPECT_TRUE((*url).secure);
  EXPECT_EQ((*url).host, "mirror.example");
  EXPECT_EQ((*url).port, "8443");
  EXPECT_EQ((*url).target, "/a/b?c=d");
  EXPECT_EQ(shown("http://h"), "http://h/");
  EXPECT_EQ(shown("http://h:80?q"), "http://h/?q");
  EXPECT_EQ(shown("http://[::1]:9/x"), "http://[::1]:9/x");
}

TEST(Url, RefusesWhatARequestCannotCarry) {
  for (const char* text :
       {"", "h", "ftp://h/", "http://", "http:///x", "http://h:0/", "http://h:70000/",
        "http://h:x/", "http://user:hidden@h/", "http://h/a b", "http://h/\r\nX: y", "http://[::1/",
        "http://h/\xc3\xa9", "http://a[b]/", "http://[]/"})
    EXPECT_EQ(shown(text), "refused") << text;
  EXPECT_EQ(shown("http://h/" + std::string(9000, 'a')), "refused");
  const auto secret = parse_url("http://user:hidden@h/");
  EXPECT_EQ(secret.error().what.find("hidden"), std::string::npos);
}

TEST(Url, RedirectsAreResolved) {
  const auto base = parse_url("https://h:1/a/b?c=/d");
  const auto to = [&](const char* location) {
    const auto url = resolve(*base, location);
    return url ? (*url).text() : "refused";
  };
  EXPECT_EQ(to("http://other/x"), "http://other/x");
  EXPECT_EQ(to("//other/x"), "https://other/x");
  EXPECT_EQ(to("/x?y"), "https://h:1/x?y");
  EXPECT_EQ(to("x"), "https://h:1/a/x");
  EXPECT_EQ(to(""), "refused");
  EXPECT_EQ(to("x y"), "refused");
}

TEST(Url, PathsAreEncoded) { EXPECT_EQ(encoded_path("a b/c%?#~-_."), "a%20b/c%25%3F%23~-_."); }

}  // namespace
}  // namespace skiff::fetch
