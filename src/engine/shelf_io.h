// engine/shelf_io.h -- the threads that copy blocks from host memory to the shelf of a prefill
// instance.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "base/queue.h"
#include "engine/tier_io.h"
#include "model/block_form.h"
#include "peer/shelf.h"

namespace skiff::engine {

// A copy of a block and its checksum take a core about half a millisecond for each 4 MB, and a
// prompt has dozens of blocks that all become ready in one step, so several threads share them.
// Nothing here can hang, so no job is answered as late. Takes writes only. Thread-safe.
class ShelfIo final : public TierIo {
 public:
  using HostMemory = std::function<std::span<std::byte>(int host_block)>;
  // `inbox` and the host memory must outlive this object. `threads` is at least 1.
  ShelfIo(std::shared_ptr<peer::Shelf> shelf, std::shared_ptr<const model::BlockForm> form,
          HostMemory host, Queue<Command>& inbox, int threads);
  ~ShelfIo() override;  // carries out the jobs that were started
  void start(kv::TierJob job) override { jobs_.push(std::move(job)); }

 private:
  void work();

  const std::shared_ptr<peer::Shelf> shelf_;
  const std::shared_ptr<const model::BlockForm> form_;
  const HostMemory host_;
  Queue<Command>& inbox_;
  Queue<kv::TierJob> jobs_;
  std::vector<std::thread> threads_;
};

}  // namespace skiff::engine
