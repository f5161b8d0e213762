// fetch/name_searches.h -- searches for the addresses of hosts, for callers that do not wait. One
// that hangs keeps no other waiting.
#pragma once
#include <cstddef>
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

// The error that a host's name was not found. kExhausted.
Error name_trouble(const std::string& host, const std::string& why);

// The system's search cannot be broken off, so each runs in a thread of its own. Where it takes too
// long, the thread is left to itself and ends with the search. There are at most `most` such
// threads: until one has ended, no further names are searched for. Thread-safe.
class NameSearches {
 public:
  using OnFound = std::function<void(const Result<Addresses>&)>;
  using Waiting = std::shared_ptr<const OnFound>;

  explicit NameSearches(size_t most, FindAddresses find = system_addresses);
  ~NameSearches();  // nobody is called once it has returned
  NameSearches(const NameSearches&) = delete;
  NameSearches& operator=(const NameSearches&) = delete;

  // Calls `found` once, on the thread of the search, unless the caller has let go of what is
  // returned. It must be quick and must not use this object. A host for which a search is under way
  // is not searched for again. The error says why there is no search.
  Result<Waiting> begin(const std::string& host, OnFound found);

 private:
  struct State;
  Status start(const std::string& host);
  const size_t most_;
  const FindAddresses find_;
  const std::shared_ptr<State> state_;
};

}  // namespace skiff::fetch
