#include "serve/http/tls.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <fstream>

#include "base/log.h"

namespace skiff::http {
namespace {

namespace ssl = boost::asio::ssl;

Error refusal(const char* flag, const std::string& file, const std::string& why) {
  ERR_clear_error();
  return {Code::kInvalid, fmt::format("--{} {}: {}", flag, file, why), flag};
}

// The last error of OpenSSL, as text.
std::string reason() {
  const char* text = ERR_reason_error_string(ERR_peek_last_error());
  return text ? text : "it cannot be used";
}

bool readable(const std::string& file) { return std::ifstream(file, std::ios::binary).good(); }

// Refuses encrypted keys. OpenSSL's default would ask for the password on the terminal.
int no_password(char*, int, int, void*) { return -1; }

void warn_about_dates(const SSL_CTX* context, const std::string& file) {
  const X509* leaf = SSL_CTX_get0_certificate(context);
  if (!leaf) return;
  if (X509_cmp_current_time(X509_get0_notAfter(leaf)) < 0)
    spdlog::warn("{}: the certificate has expired; clients will refuse it", escaped(file));
  if (X509_cmp_current_time(X509_get0_notBefore(leaf)) > 0)
    spdlog::warn("{}: the certificate is not valid yet; clients will refuse it", escaped(file));
}

}  // namespace

Result<std::shared_ptr<ssl::context>> load_tls(const std::string& certificate,
                                               const std::string& key) {
  static constexpr char kCertificate[] = "ssl-certfile", kKey[] = "ssl-keyfile";
  if (!readable(certificate)) return refusal(kCertificate, certificate, "cannot be read");
  if (!readable(key)) return refusal(kKey, key, "cannot be read");
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  SSL_CTX* native = context->native_handle();
  SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
  SSL_CTX_set_options(
      native, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_mode(native, SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_default_passwd_cb(native, no_password);
  ERR_clear_error();
  if (SSL_CTX_use_certificate_chain_file(native, certificate.c_str()) != 1)
    return refusal(kCertificate, certificate,
                   fmt::format("not a PEM certificate chain ({})", reason()));
  if (SSL_CTX_use_PrivateKey_file(native, key.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(native) != 1)
    return refusal(kKey, key,
                   fmt::format("not the PEM key, without a password, that belongs to {} ({})",
                               certificate, reason()));
  warn_about_dates(native, certificate);
  return context;
}

}  // namespace skiff::http
