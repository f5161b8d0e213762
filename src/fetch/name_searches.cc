#include "fetch/name_searches.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>

#include <array>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace skiff::fetch {

Error name_trouble(const std::string& host, const std::string& why) {
  return {Code::kExhausted, fmt::format("the name {}: {}", host, why)};
}

Result<Addresses> system_addresses(const std::string& host) {
  const addrinfo hints{.ai_socktype = SOCK_STREAM};
  addrinfo* list = nullptr;
  if (const int failed = getaddrinfo(host.c_str(), nullptr, &hints, &list))
    return name_trouble(host, gai_strerror(failed));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, freeaddrinfo);
  Addresses found;
  for (const addrinfo* one = list; one; one = one->ai_next) {
    std::array<char, NI_MAXHOST> digits;
    if (getnameinfo(one->ai_addr, one->ai_addrlen, digits.data(), digits.size(), nullptr, 0,
                    NI_NUMERICHOST) == 0)
      found.emplace_back(digits.data());
  }
  if (found.empty()) return name_trouble(host, "it has no address");
  return found;
}

// What the threads of searches hold, which may outlive the rest.
struct NameSearches::State {
  std::mutex mutex;
  // Who waits for each host for which a search is under way. Guarded by mutex.
  std::map<std::string, std::vector<std::weak_ptr<const OnFound>>> waiting;

  void end(const std::string& host, const Result<Addresses>& found) {
    const std::lock_guard lock(mutex);
    const auto search = waiting.extract(host);
    if (search.empty()) return;
    for (const auto& one : search.mapped())
      if (const Waiting call = one.lock()) (*call)(found);
  }
};

NameSearches::NameSearches(size_t most, FindAddresses find)
    : most_(most), find_(std::move(find)), state_(std::make_shared<State>()) {}

NameSearches::~NameSearches() {
  const std::lock_guard lock(state_->mutex);
  state_->waiting.clear();
}

// With the mutex held, so that the search does not end before somebody waits for it.
Status NameSearches::start(const std::string& host) {
  const auto& waiting = state_->waiting;
  if (waiting.size() >= most_)
    return name_trouble(host,
                        fmt::format("the system still searches for {}{}", waiting.begin()->first,
                                    waiting.size() > 1 ? " and others" : ""));
  try {
    std::thread([state = state_, find = find_, host] { state->end(host, find(host)); }).detach();
  } catch (const std::system_error& e) {
    return name_trouble(host, fmt::format("there is no thread to search for it ({})", e.what()));
  }
  return ok();
}

Result<NameSearches::Waiting> NameSearches::begin(const std::string& host, OnFound found) {
  auto waiting = std::make_shared<const OnFound>(std::move(found));
  const std::lock_guard lock(state_->mutex);
  if (!state_->waiting.contains(host))
    if (const Status started = start(host); !started) return started.error();
  auto& all = state_->waiting[host];
  std::erase_if(all, [](const auto& one) { return one.expired(); });
  all.push_back(waiting);
  return waiting;
}

}  // namespace skiff::fetch
