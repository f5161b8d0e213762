#include "fetch/name_lookup.h"

#include <fmt/format.h>

#include <boost/asio/ip/address.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <utility>

namespace skiff::fetch {
namespace {

bool in_digits(const std::string& host) {
  boost::system::error_code error;
  boost::asio::ip::make_address(host, error);
  return !error;
}

}  // namespace

NameLookup::NameLookup(FindAddresses find) : searches_(/*most=*/1, std::move(find)) {}

Result<Addresses> NameLookup::find(const std::string& host, double seconds) {
  if (in_digits(host)) return Addresses{host};
  const auto answer = std::make_shared<std::promise<Result<Addresses>>>();
  auto found = answer->get_future();
  const auto waiting = searches_.begin(
      host, [answer](const Result<Addresses>& addresses) { answer->set_value(addresses); });
  if (!waiting) return waiting.error();
  if (found.wait_for(std::chrono::duration<double>(seconds)) == std::future_status::ready)
    return found.get();
  return name_trouble(host, fmt::format("the system has not found it within {:g} s", seconds));
}

}  // namespace skiff::fetch
