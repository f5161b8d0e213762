// serve/http/tls.h -- certificate and key from PEM files, checked before they are used. Private to
// the HTTP server.
#pragma once
#include <boost/asio/ssl/context.hpp>

#include <memory>
#include <string>

#include "base/result.h"

namespace skiff::http {

// Allows TLS 1.2 and 1.3. An error names the file and its fault: unreadable, not PEM, a key that
// needs a password or belongs to another certificate. A certificate that has expired or is not
// valid yet only causes a warning, because clients report it themselves.
Result<std::shared_ptr<boost::asio::ssl::context>> load_tls(const std::string& certificate,
                                                            const std::string& key);

}  // namespace skiff::http
