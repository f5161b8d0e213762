#include "route/backend.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace skiff::route {

bool Health::probed(bool good, const HealthSettings& settings) {
  failures_ = good ? 0 : failures_ + 1;
  successes_ = good ? successes_ + 1 : 0;
  const State before = state_;
  if (good && (state_ == State::kUnknown || successes_ >= settings.successes)) state_ = State::kUp;
  if (!good && (state_ == State::kUnknown || failures_ >= settings.failures)) state_ = State::kDown;
  return state_ != before;
}

void Backend::refused(std::string_view retry_after, Clock::time_point now) {
  constexpr int kMostSeconds = 10;  // a server that has room earlier is not left idle for longer
  int seconds = 1;
  std::from_chars(retry_after.data(), retry_after.data() + retry_after.size(), seconds);
  refuses_until = now + std::chrono::seconds(std::clamp(seconds, 1, kMostSeconds));
}

LoadShare::LoadShare(std::shared_ptr<Backend> backend, int64_t tokens)
    : backend_(std::move(backend)), tokens_(tokens) {
  ++backend_->load.running;
  ++backend_->load.sent;
  backend_->load.tokens += tokens_;
  backend_->load.waiting += tokens_;
}

LoadShare::~LoadShare() {
  answered();
  --backend_->load.running;
  backend_->load.tokens -= tokens_;
}

void LoadShare::answered() {
  if (std::exchange(waiting_, false)) backend_->load.waiting -= tokens_;
}

}  // namespace skiff::route
