// serve/http/server_testing.h -- an HTTP server that echoes, plain or under TLS, for tests.
#pragma once
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>

#include "serve/http/client_testing.h"
#include "serve/http/server.h"

namespace skiff::http {

// A folder that is removed with its owner.
struct TestFolder {
  TestFolder() {
    char name[] = "/tmp/skiff_test_XXXXXX";
    path = mkdtemp(name);
  }
  ~TestFolder() { std::filesystem::remove_all(path); }
  TestFolder(const TestFolder&) = delete;
  std::string path;
};

// Writes a self-signed certificate for `name` that expires in `days`, or has expired if that is
// negative.
inline void make_certificate(const std::string& certificate, const std::string& key,
                             const std::string& name, int days = 1) {
  EVP_PKEY* pair = EVP_EC_gen("P-256");
  X509* x509 = X509_new();
  X509_set_version(x509, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(x509), 1);
  X509_gmtime_adj(X509_getm_notBefore(x509), -86400L * 10);
  X509_gmtime_adj(X509_getm_notAfter(x509), 86400L * days);
  X509_set_pubkey(x509, pair);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(x509), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509_set_issuer_name(x509, X509_get_subject_name(x509));
  X509_sign(x509, pair, EVP_sha256());
  std::FILE* out = std::fopen(certificate.c_str(), "w");
  PEM_write_X509(out, x509);
  std::fclose(out);
  out = std::fopen(key.c_str(), "w");
  PEM_write_PrivateKey(out, pair, nullptr, nullptr, 0, nullptr, nullptr);
  std::fclose(out);
  X509_free(x509);
  EVP_PKEY_free(pair);
}

inline HttpConfig local_http_config(TestClient::Over over = TestClient::Over::kTcp) {
  static const TestFolder folder;
  HttpConfig config;
  config.host = "127.0.0.1";
  config.port = 0;
  if (over == TestClient::Over::kTcp) return config;
  config.tls_certificate = folder.path + "/certificate.pem";
  config.tls_key = folder.path + "/key.pem";
  if (!std::filesystem::exists(config.tls_key))
    make_certificate(config.tls_certificate, config.tls_key, "first");
  return config;
}

inline HttpResponse plain(int status, const std::string& text) {
  return {.status = status, .body = text, .content_type = "text/plain", .headers = {}};
}

// Answers "METHOD path query body"; /slow does so after 100 ms, /drop never does.
inline void echo(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
  if (request.path == "/drop") return;
  if (request.path == "/throw") throw std::runtime_error("secret");
  if (request.path == "/slow") std::this_thread::sleep_for(std::chrono::milliseconds(100));
  if (request.path == "/stream") {
    reply->begin_stream(plain(200, "one"));
    reply->write("two");
    reply->write("");
    return reply->end_stream();
  }
  reply->send(
      plain(200, request.method + " " + request.path + " " + request.query + " " + request.body));
}

struct Echo {
  explicit Echo(const HttpConfig& config = local_http_config(), HttpHandler handler = echo)
      : over(config.tls_key.empty() ? TestClient::Over::kTcp : TestClient::Over::kTls),
        server(config, {.handler = std::move(handler), .failure = plain}) {
    server.start();
  }
  uint16_t port() const { return server.port(); }
  TestClient client() const { return TestClient(port(), over); }
  const TestClient::Over over;
  HttpServer server;
};

}  // namespace skiff::http
