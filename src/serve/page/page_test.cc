// The route of the web page: who gets it, in which encoding, and what its headers promise.
#include "serve/page/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <zlib.h>

#include "serve/http/client_testing.h"
#include "serve/openai/server_testing.h"
#include "serve/page/accept.h"

namespace skiff::page {
namespace {

using http::ClientResponse;
using http::TestClient;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kBrowser = "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n";

ClientResponse get(uint16_t port, const std::string& headers, const std::string& method = "GET") {
  return TestClient(port).call(method, "/", "", headers);
}

std::string gunzip(const std::string& bytes) {
  std::string out(4 << 20, '\0');
  z_stream stream{};
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(inflateInit2(&stream, 16 + MAX_WBITS), Z_OK);
  EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  inflateEnd(&stream);
  return out;
}

// Returns the hash by which a policy names what lies between `open` and `close`.
std::string source_hash(const std::string& page, const std::string& open,
                        const std::string& close) {
  const size_t begin = page.find(open) + open.size();
  const size_t end = page.find(close, begin);
  EXPECT_NE(end, std::string::npos);
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_Digest(page.data() + begin, end - begin, digest, &size, EVP_sha256(), nullptr);
  unsigned char text[64];
  EVP_EncodeBlock(text, digest, static_cast<int>(size));
  return std::string("'sha256-") + reinterpret_cast<char*>(text) + "'";
}

TEST(Accept, NamesCountAndWildcardsDoNot) {
  for (const char* list :
       {"text/html", "TEXT/HTML;level=1", "a/b , text/html ; q=0.1", "text/html;q=1"})
    EXPECT_TRUE(accepts_named(list, "text/html")) << list;
  for (const char* list : {"", "*/*", "text/*", "text/html;q=0", "text/html; Q=0.000", "text/htmlx",
                           ",,;q=1", "application/json"})
    EXPECT_FALSE(accepts_named(list, "text/html")) << list;
}

TEST(Accept, EtagsMatchWeakly) {
  for (const char* list : {"\"a\"", "*", "\"b\", \"a\"", "W/\"a\"", " W/\"b\" ,W/\"a\" "})
    EXPECT_TRUE(lists_etag(list, "\"a\"")) << list;
  for (const char* list : {"", "a", "\"A\"", "\"aa\"", "w/\"a\""})
    EXPECT_FALSE(lists_etag(list, "\"a\"")) << list;
}

TEST(Page, BrowsersGetItAndOthersTheRestOfTheTable) {
  openai::TestServer server;
  const auto page = get(server.port(), kBrowser);
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.headers.at("content-type"), "text/html; charset=utf-8");
  EXPECT_THAT(page.body, testing::StartsWith("<!doctype html>"));
  EXPECT_EQ(page.body, page_bytes().html);
  for (const char* headers : {"", "Accept: */*\r\n", "Accept: application/json\r\n"}) {
    const auto other = get(server.port(), headers);
    EXPECT_EQ(other.status, 200) << headers;
    EXPECT_EQ(other.body, "Ollama is running") << headers;
  }
  const auto wrong = get(server.port(), kBrowser, "DELETE");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.at("allow"), "GET");  // once, though two routes have it
  EXPECT_EQ(TestClient(server.port()).call("GET", "/", "x", kBrowser).status, 413);
}

TEST(Page, CompressedIsTheSamePage) {
  openai::TestServer server;
  const std::string zipped = std::string(kBrowser) + "Accept-Encoding: br, gzip\r\n";
  const auto small = get(server.port(), zipped);
  const auto whole = get(server.port(), std::string(kBrowser) + "Accept-Encoding: gzip;q=0\r\n");
  EXPECT_EQ(small.headers.at("content-encoding"), "gzip");
  EXPECT_FALSE(whole.headers.contains("content-encoding"));
  EXPECT_EQ(gunzip(small.body), whole.body);
  EXPECT_LT(small.body.size(), whole.body.size() / 2);
  EXPECT_EQ(small.headers.at("vary"), "Accept, Accept-Encoding");
  EXPECT_NE(small.headers.at("etag"), whole.headers.at("etag"));
}

TEST(Page, IsAskedForAgainButNotSentAgain) {
  openai::TestServer server;
  const std::string zipped = std::string(kBrowser) + "Accept-Encoding: gzip\r\n";
  const std::string etag = get(server.port(), zipped).headers.at("etag");
  const auto same = get(server.port(),
                        zipped + "Connection: close\r\nIf-None-Match: \"old\", W/" + etag + "\r\n");
  EXPECT_EQ(same.status, 304);
  EXPECT_EQ(same.body, "");
  EXPECT_EQ(same.headers.at("etag"), etag);
  EXPECT_EQ(same.headers.at("cache-control"), "no-cache");
  EXPECT_EQ(get(server.port(), zipped + "If-None-Match: \"old\"\r\n").status, 200);
  // The tag of one encoding does not stand for the other.
  EXPECT_EQ(get(server.port(), std::string(kBrowser) + "If-None-Match: " + etag + "\r\n").status,
            200);
}

TEST(Page, HeadHasTheHeadersOfGet) {
  openai::TestServer server;
  TestClient client(server.port());
  client.send("HEAD", "/", "", std::string(kBrowser) + "Connection: close\r\n");
  const std::string head = client.take_until("\r\n\r\n");
  EXPECT_THAT(head, testing::StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(head, HasSubstr("Content-Length: " + std::to_string(page_bytes().html.size())));
  EXPECT_THAT(head, HasSubstr("Content-Security-Policy: default-src 'none'"));
  EXPECT_FALSE(client.fill());  // nothing follows
}

TEST(Page, ThePolicyAllowsTheScriptAndTheStyleThatAreThere) {
  openai::TestServer server;
  const auto page = get(server.port(), kBrowser);
  const std::string policy = page.headers.at("content-security-policy");
  EXPECT_THAT(policy,
              HasSubstr("script-src " +
                        source_hash(page.body, "<script type=\"module\">", "</script>") + ";"));
  EXPECT_THAT(policy,
              HasSubstr("style-src " + source_hash(page.body, "<style>", "</style>") + ";"));
  for (const char* part :
       {"default-src 'none';", "connect-src 'self';", "img-src data: blob:;", "base-uri 'none';",
        "form-action 'none';", "frame-ancestors 'none';", "require-trusted-types-for 'script'"})
    EXPECT_THAT(policy, HasSubstr(part));
  EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
  EXPECT_EQ(page.headers.at("x-content-type-options"), "nosniff");
  EXPECT_EQ(page.headers.at("referrer-policy"), "no-referrer");
}

TEST(Page, HasNoAssetsOfOthersAndNoInlineHandlers) {
  const std::string page(page_bytes().html);
  for (const char* never :
       {"innerHTML", "insertAdjacentHTML", "document.write", "eval(", "<link rel=\"style",
        "src=\"http", "href=\"http", "@import", "url(http", " onclick=", " style=\""})
    EXPECT_THAT(page, Not(HasSubstr(never)));
}

TEST(Page, NeedsNoKeyButAnOwnNameAndNoForeignOrigin) {
  serve::ServerConfig config = openai::local_config();
  config.api_keys = {"secret"};
  config.allowed_hosts = {"localhost"};
  openai::TestServer server(config);
  EXPECT_EQ(get(server.port(), kBrowser).status, 200);
  EXPECT_EQ(get(server.port(), "").status, 401);
  EXPECT_EQ(get(server.port(), std::string(kBrowser) + "Origin: https://evil.example\r\n").status,
            403);
  TestClient client(server.port());
  client.send_raw(std::string("GET / HTTP/1.1\r\nHost: evil.example\r\n") + kBrowser + "\r\n");
  EXPECT_THAT(client.take_until("\r\n"), HasSubstr("403"));
  // What the page asks for still needs the key.
  EXPECT_EQ(TestClient(server.port()).call("GET", "/v1/models", "", kBrowser).status, 401);
}

TEST(Page, OnlyPagesOfThisServerMayUseTheApi) {
  openai::TestServer server;
  const std::string own = "Origin: http://localhost:" + std::to_string(server.port()) + "\r\n";
  const std::string host = "Host: localhost:" + std::to_string(server.port()) + "\r\n";
  const std::string body = R"({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1})";
  const auto post = [&](const std::string& headers) {
    TestClient client(server.port());
    client.send_raw("POST /v1/chat/completions HTTP/1.1\r\n" + host + headers +
                    "Content-Type: application/json\r\nContent-Length: " +
                    std::to_string(body.size()) + "\r\n\r\n" + body);
    return client.take_until("\r\n");
  };
  EXPECT_THAT(post(own + "Sec-Fetch-Site: same-origin\r\n"), HasSubstr("200"));
  EXPECT_THAT(post(own), HasSubstr("200"));
  EXPECT_THAT(post("Origin: https://evil.example\r\nSec-Fetch-Site: cross-site\r\n"),
              HasSubstr("403"));
}

TEST(Page, IsThereWhileTheModelLoadsAndCanBeSwitchedOff) {
  serve::Server loading(openai::local_config());
  loading.start();
  EXPECT_EQ(get(loading.port(), kBrowser).status, 200);
  EXPECT_EQ(get(loading.port(), "").status, 503);
  serve::ServerConfig config = openai::local_config();
  config.web_page = false;
  openai::TestServer server(config);
  EXPECT_EQ(get(server.port(), kBrowser).body, "Ollama is running");
}

}  // namespace
}  // namespace skiff::page
