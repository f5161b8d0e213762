#include "capi/engine.h"

#include <pthread.h>

#include <chrono>
#include <csignal>
#include <future>

#include "base/load_error.h"
#include "base/log.h"
#include "capi/log_setup.h"
#include "capi/options.h"

namespace skiff::capi {
namespace {

// Signals belong to the threads of the process that the library is in. Threads inherit the mask, so
// it also holds for those that the engine makes later. What a thread itself causes stays.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP})
      sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

Outcome closed() { return {.status = SKIFF_CLOSED, .what = "the engine has been stopped"}; }

Outcome hangs(std::chrono::duration<double> limit) {
  return {.status = SKIFF_INTERNAL,
          .what = fmt::format("the engine was stopped, but its step did not end within {} s: "
                              "the device hangs; end the process to free what it holds",
                              limit.count())};
}

}  // namespace

Outcome Engine::open(std::string_view options, std::shared_ptr<Engine>* engine) {
  const auto words = option_words(options);
  if (!words) return outcome_of(words.error());
  try {
    apps::Args args(apps::kLibrary, *words);
    if (!args.given("model"))
      return {.status = SKIFF_NOT_FOUND,
              .what = "the option \"model\" is missing: the folder of a model, as in models/demo",
              .field = "model"};
    set_up_log(args.text("log-level"), args.text("log-format"));
    for (const std::string& warning : args.warnings()) spdlog::warn("{}", warning);
    *engine = std::make_shared<Engine>(std::move(args));
  } catch (const apps::UsageError& e) {
    return {.status = SKIFF_INVALID, .what = e.what(), .field = "options"};
  }
  return {};
}

Engine::Engine(apps::Args args, std::chrono::duration<double> longest_step)
    : args_(std::move(args)), longest_step_(longest_step) {
  const SignalsBlocked blocked;
  loader_ = std::thread([this] { load(); });
}

void Engine::load() {
  pthread_setname_np(pthread_self(), "load");
  Outcome state;
  std::shared_ptr<Loaded> made;
  try {
    made = make_loaded();
  } catch (const apps::UsageError& e) {
    state = {.status = SKIFF_INVALID, .what = e.what(), .field = "options"};
  } catch (const std::exception& e) {
    state = {.status = SKIFF_FAILED, .what = e.what()};
  }
  {
    std::lock_guard lock(mutex_);
    if (state_.status == SKIFF_LOADING) state_ = std::move(state);
    loaded_ = std::move(made);
  }
  settled_.set();
}

std::shared_ptr<Loaded> Engine::make_loaded() {
  LoadHooks hooks;
  hooks.progress = [this](double part) {
    part_ = part;
    if (stopping_) fail_load("the loading was stopped");
  };
  hooks.failed = [this](const std::string& why) { fail(why); };
  return std::make_shared<Loaded>(args_, std::move(hooks));
}

// The device is lost: whoever waits is told, and the engine's thread, which has nothing to return
// to, is parked.
void Engine::fail(const std::string& why) {
  spdlog::critical("the engine cannot go on: {}", why);
  const Outcome lost{.status = SKIFF_CLOSED, .what = "the engine cannot go on: " + why};
  set_state(lost);
  close_outboxes(lost);
  ending_.give_up();
  parked_ = true;  // from here on this object may be gone
  std::promise<void>().get_future().wait();
}

void Engine::set_state(Outcome state) {
  std::lock_guard lock(mutex_);
  state_ = std::move(state);
}

Outcome Engine::state() const {
  std::lock_guard lock(mutex_);
  return state_;
}

Outcome Engine::ready(int timeout_ms, double* part) const {
  const Notice::Woken woken = settled_.wait(timeout_ms);
  if (part) *part = part_;
  if (woken == Notice::Woken::kInterrupted)
    return {.status = SKIFF_INTERRUPTED, .what = "a signal was handled"};
  const Outcome now = state();
  if (part && now.ok()) *part = 1;
  return now;
}

Outcome Engine::loaded(std::shared_ptr<Loaded>* loaded) const {
  std::lock_guard lock(mutex_);
  if (state_.ok()) *loaded = loaded_;
  return state_;
}

Outcome Engine::attach(const std::shared_ptr<Outbox>& outbox) {
  std::lock_guard lock(mutex_);
  if (!state_.ok()) return state_;
  std::erase_if(outboxes_, [](const auto& weak) { return weak.expired(); });
  outboxes_.push_back(outbox);
  return {};
}

void Engine::close_outboxes(const Outcome& why) {
  std::vector<std::weak_ptr<Outbox>> outboxes;
  {
    std::lock_guard lock(mutex_);
    outboxes = outboxes_;
  }
  for (const auto& weak : outboxes)
    if (const auto outbox = weak.lock()) outbox->close(why);
}

Outcome Engine::stop() {
  stopping_ = true;
  std::lock_guard joining(joining_);
  if (loader_.joinable()) loader_.join();
  std::shared_ptr<Loaded> loaded;
  {
    std::lock_guard lock(mutex_);
    if (state_.ok()) state_ = closed();
    loaded = std::exchange(loaded_, nullptr);
  }
  close_outboxes(closed());
  if (loaded && parked_)
    loaded->abandon();
  else if (loaded)
    end(std::move(loaded));
  return ended();
}

// The device may be lost, or hang, while its thread is joined. That thread then uses the engine and
// the model for as long as the process lives.
void Engine::end(std::shared_ptr<Loaded> loaded) {
  const SignalsBlocked blocked;
  const Ending::Met met =
      ending_.run([self = weak_from_this().lock(), loaded = std::move(loaded)] { loaded->stop(); },
                  longest_step_);
  if (met != Ending::Met::kTimeUp) return;
  spdlog::critical("{}", hangs(longest_step_).what);
  set_state(hangs(longest_step_));
}

// A thread that hung may have ended since.
Outcome Engine::ended() {
  if (ending_.met() == Ending::Met::kTimeUp) return hangs(longest_step_);
  std::lock_guard lock(mutex_);
  if (state_.status == SKIFF_INTERNAL) state_ = closed();
  return {};
}

}  // namespace skiff::capi
