#include "engine/rest.h"

#include <utility>

namespace skiff::engine {

// An engine that ends drops its errand and with it the promise to come.
Rest::Rest(const std::vector<Sleeper>& engines) {
  std::vector<std::future<void>> came;
  for (const Sleeper& one : engines) {
    auto tasks = tasks_.emplace_back(std::make_shared<Tasks>());
    auto comes = std::make_shared<std::promise<void>>();
    came.push_back(comes->get_future());
    one.engine.errands().add([tasks, comes = std::move(comes), rests = one.rests] {
      rests(true);
      comes->set_value();
      while (auto task = tasks->pop()) (*task)();
      rests(false);
    });
    one.inbox.push(Cancel{});  // wakes the engine; no sequence has the id 0
  }
  try {
    for (std::future<void>& one : came) one.get();
  } catch (...) {
    let_go();
    throw;
  }
}

Rest::~Rest() { let_go(); }

void Rest::let_go() {
  for (const auto& tasks : tasks_) tasks->close();
}

void Rest::on_all(const std::function<void(size_t engine)>& work) {
  std::vector<std::future<void>> done;
  for (size_t engine = 0; engine < tasks_.size(); ++engine) {
    std::packaged_task<void()> task([&work, engine] { work(engine); });
    done.push_back(task.get_future());
    tasks_[engine]->push(std::move(task));
  }
  for (const std::future<void>& one : done) one.wait();  // the tasks refer to `work`
  for (std::future<void>& one : done) one.get();
}

}  // namespace skiff::engine
