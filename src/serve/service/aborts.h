// serve/service/aborts.h -- requests that an operator ends: which ones are meant, and the queue of
// such wishes for the output thread.
#pragma once
#include <future>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "serve/service/service.h"

namespace skiff::service {

// Which requests a list of names means. A name is a request's id with or without its protocol's
// prefix (chatcmpl-, cmpl-, ...), or such a name with the number of one of its sequences behind it
// ("chatcmpl-abc_1"); that means the whole request, too, unless another one has exactly this name.
class AbortNames {
 public:
  explicit AbortNames(const std::vector<std::string>& names);
  // Returns whether `id` itself was named. Takes note of it for has_child().
  bool has(std::string_view id);
  // Returns whether one of the n sequences of the request `id` was named. To be asked after has()
  // was asked of all requests.
  bool has_child(std::string_view id, int n) const;

 private:
  struct Child {
    std::string whole;  // the name with its number
    int index;
  };
  std::unordered_set<std::string> exact_, found_;
  std::unordered_multimap<std::string, Child> children_;
};

// The name of a request without its protocol's prefix.
std::string_view bare_id(std::string_view id);

// Thread-safe.
class AbortQueue {
 public:
  struct Job {
    AbortWish wish;
    std::promise<std::vector<Aborted>> done;
  };
  // The future is fulfilled by whoever takes the job; at once, with nothing, after close().
  std::future<std::vector<Aborted>> add(AbortWish wish);
  std::vector<Job> take();
  void close();

 private:
  std::mutex mutex_;
  std::vector<Job> jobs_;  // guarded by mutex_
  bool closed_ = false;    // guarded by mutex_
};

}  // namespace skiff::service
