// serve/http/tls.h -- certificate and key from PEM files, checked before they are used. Private to
// the HTTP server.
#pragma once
#include <boost/asio/ssl/context.hpp>

#include <memory>
#include <string>

#include "base/result.h"

namespace skiff {

// TLS 1.2 and 1.3. An error names the file and what is wrong with it: unreadable, not PEM, a key
// that wants a password or belongs to another certificate. One that has expired, or is not valid
// yet, is only warned about: clients say so themselves.
Result<std::shared_ptr<boost::asio::ssl::context>> load_tls(const std::string& certificate,
                                                            const std::string& key);

}  // namespace skiff
