#include "fetch/name_lookup.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>

#include <array>
#include <boost/asio/ip/address.hpp>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

namespace skiff::fetch {
namespace {

bool in_digits(const std::string& host) {
  boost::system::error_code error;
  boost::asio::ip::make_address(host, error);
  return !error;
}

Error trouble(const std::string& host, const std::string& why) {
  return {Code::kExhausted, fmt::format("the name {}: {}", host, why)};
}

}  // namespace

Result<Addresses> system_addresses(const std::string& host) {
  const addrinfo hints{.ai_socktype = SOCK_STREAM};
  addrinfo* list = nullptr;
  if (const int failed = getaddrinfo(host.c_str(), nullptr, &hints, &list))
    return trouble(host, gai_strerror(failed));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, freeaddrinfo);
  Addresses found;
  for (const addrinfo* one = list; one; one = one->ai_next) {
    std::array<char, NI_MAXHOST> digits;
    if (getnameinfo(one->ai_addr, one->ai_addrlen, digits.data(), digits.size(), nullptr, 0,
                    NI_NUMERICHOST) == 0)
      found.emplace_back(digits.data());
  }
  if (found.empty()) return trouble(host, "it has no address");
  return found;
}

struct NameLookup::Search {
  explicit Search(std::string name) : host(std::move(name)) {}

  void end(Result<Addresses> found) {
    const std::lock_guard lock(mutex);
    answer = std::move(found);
    changed.notify_all();
  }
  bool over() {
    const std::lock_guard lock(mutex);
    return answer.has_value();
  }

  const std::string host;
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Result<Addresses>> answer;  // guarded by mutex
};

NameLookup::NameLookup(FindAddresses find) : find_(std::move(find)) {}

// The thread holds nothing of this object, which may be gone before it.
Result<std::shared_ptr<NameLookup::Search>> NameLookup::search_for(const std::string& host) {
  if (search_ && !search_->over()) {
    if (search_->host == host) return search_;
    return trouble(host, fmt::format("the system still searches for {}", search_->host));
  }
  auto search = std::make_shared<Search>(host);
  try {
    std::thread([search, find = find_] { search->end(find(search->host)); }).detach();
  } catch (const std::system_error& e) {
    return trouble(host, fmt::format("there is no thread to search for it ({})", e.what()));
  }
  search_ = search;
  return search;
}

Result<Addresses> NameLookup::find(const std::string& host, double seconds) {
  if (in_digits(host)) return Addresses{host};
  const auto search = search_for(host);
  if (!search) return search.error();
  std::unique_lock lock((*search)->mutex);
  if ((*search)->changed.wait_for(lock, std::chrono::duration<double>(seconds),
                                  [&] { return (*search)->answer.has_value(); }))
    return *(*search)->answer;
  return trouble(host, fmt::format("the system has not found it within {:g} s", seconds));
}

}  // namespace skiff::fetch
