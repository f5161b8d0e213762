// fetch/name_server_testing.h -- a name server that hangs, for tests.
#pragma once
#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "fetch/name_searches.h"

namespace skiff::fetch {

// Answers when it is let go.
class Hanging {
 public:
  ~Hanging() { let_go(); }
  FindAddresses find() {
    return [gate = gate_, asked = asked_](const std::string&) -> Result<Addresses> {
      ++*asked;
      gate.wait();
      return Addresses{"10.0.0.1"};
    };
  }
  void let_go() {
    if (!std::exchange(open_, true)) opener_.set_value();
  }
  int asked() const { return *asked_; }

 private:
  // The thread of a search outlives the test.
  std::promise<void> opener_;
  const std::shared_future<void> gate_ = opener_.get_future().share();
  const std::shared_ptr<std::atomic<int>> asked_ = std::make_shared<std::atomic<int>>(0);
  bool open_ = false;
};

}  // namespace skiff::fetch
