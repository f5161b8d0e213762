#include "engine/shelf_io.h"

#include <pthread.h>

#include <utility>

#include "base/check.h"

namespace skiff::engine {

ShelfIo::ShelfIo(std::shared_ptr<peer::Shelf> shelf, std::shared_ptr<const model::BlockForm> form,
                 HostMemory host, Queue<Command>& inbox, int threads)
    : shelf_(std::move(shelf)), form_(std::move(form)), host_(std::move(host)), inbox_(inbox) {
  SKIFF_CHECK(threads > 0);
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

ShelfIo::~ShelfIo() {
  jobs_.close();
  for (std::thread& thread : threads_) thread.join();
}

void ShelfIo::work() {
  pthread_setname_np(pthread_self(), "shelf");
  std::vector<std::byte> whole;  // a block of a group of ranks, as one rank would have it
  while (const auto job = jobs_.pop()) {
    SKIFF_CHECK(job->kind == kv::TierJob::Kind::kWrite, "nothing is read from a shelf");
    std::span<const std::byte> block = host_(job->host_block);
    if (!form_->same()) {
      whole.resize(form_->whole_bytes());
      form_->join(block, whole);
      block = whole;
    }
    shelf_->fill(job->record, block);
    inbox_.push(TierDone{.job = job->id, .ok = true});
  }
}

}  // namespace skiff::engine
