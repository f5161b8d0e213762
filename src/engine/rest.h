// engine/rest.h -- keeps several engines at rest at the same time, and has their threads work
// meanwhile.
#pragma once
#include <functional>
#include <future>
#include <memory>
#include <vector>

#include "base/queue.h"
#include "engine/engine.h"

namespace skiff::engine {

// While it lives, no sequence runs or waits in any of the engines; what is submitted meanwhile
// waits in their inboxes. The constructor waits for the sequences that run, so a caller that cannot
// wait cancels them first. Two must not be made at the same time, as each would wait for engines
// that the other has.
//
// For one thread, which is none of the engines'.
class Rest {
 public:
  struct Sleeper {
    Engine& engine;
    Queue<Command>& inbox;
    // Called on the engine's thread: true when it comes to rest, false when it goes on.
    std::function<void(bool)> rests;
  };
  // Returns when all are at rest. Throws a std::future_error if one of them has ended, or ends
  // before; the others go on then.
  explicit Rest(const std::vector<Sleeper>& engines);
  ~Rest();  // lets all go on
  Rest(const Rest&) = delete;

  // Does `work` for each engine, on its thread, all side by side, and waits for all. Throws what
  // the first of them, by number, has thrown.
  void on_all(const std::function<void(size_t engine)>& work);

 private:
  // What the thread of an engine is to do. It is owned by both threads, because the one that waits
  // may be gone when an engine comes to rest.
  using Tasks = Queue<std::packaged_task<void()>>;

  void let_go();

  std::vector<std::shared_ptr<Tasks>> tasks_;
};

}  // namespace skiff::engine
