// fetch/name_lookup.h -- the addresses of a host by its name, within a time.
#pragma once
#include <string>

#include "base/result.h"
#include "fetch/name_searches.h"

namespace skiff::fetch {

// One search at a time: until one that takes too long has ended, other names are not searched for.
// Used by one thread at a time.
class NameLookup {
 public:
  explicit NameLookup(FindAddresses find = system_addresses);
  // Waits at most so many seconds. A host in digits is its own address. Errors are kExhausted.
  Result<Addresses> find(const std::string& host, double seconds);

 private:
  NameSearches searches_;
};

}  // namespace skiff::fetch
