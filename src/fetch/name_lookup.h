// fetch/name_lookup.h -- the addresses of a host by its name, within a time.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace skiff::fetch {

using Addresses = std::vector<std::string>;  // in digits, in the order in which to try them
using FindAddresses = std::function<Result<Addresses>(const std::string& host)>;

// Asks the system, which may take as long as its name servers let it.
Result<Addresses> system_addresses(const std::string& host);

// The system's search cannot be broken off, so each runs in a thread of its own. Where it takes too
// long, the thread is left to itself and ends with the search. There is at most one such thread:
// until it has ended, other names are not searched for. Used by one thread at a time.
class NameLookup {
 public:
  explicit NameLookup(FindAddresses find = system_addresses);
  // Waits at most so many seconds. A host in digits is its own address. Errors are kExhausted.
  Result<Addresses> find(const std::string& host, double seconds);

 private:
  struct Search;
  Result<std::shared_ptr<Search>> search_for(const std::string& host);
  const FindAddresses find_;
  std::shared_ptr<Search> search_;  // the last one, which may still run
};

}  // namespace skiff::fetch
