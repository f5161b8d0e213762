#include "comm/nccl/group.h"

#include <cuda_runtime.h>

#include <exception>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/load_error.h"
#include "comm/nccl/rank.h"
#include "comm/nccl/shared.h"
#include "ops/cuda/check.h"

namespace skiff::nccl {
namespace {

Library need_library() {
  Result<Library> library = load_library();
  if (!library) fail_load("ranks on CUDA devices of several nodes: {}", library.error().what);
  return *library;
}

// Joins the group as one of its ranks and greets the others.
void join(const std::shared_ptr<Group::Shared>& shared, const UniqueId& id, int device,
          std::unique_ptr<comm::Communicator>& hosts, comm::Mesh& mesh) {
  cuda::check(cudaSetDevice(device), "choosing a device");
  Link& link = shared->add(std::make_unique<Link>(shared->nccl, id, hosts->rank(), hosts->size()));
  Buffer memory(Device{Device::kCuda, static_cast<int8_t>(device)},
                static_cast<size_t>(link.size() * Rank::kPieceBytes));
  auto rank = std::make_unique<Rank>(shared, link, std::move(memory), std::move(hosts));
  Rank& greeter = *rank;
  mesh.tp = std::move(rank);
  greeter.greet();
}

}  // namespace

std::string why_impossible() {
  const Result<Library> library = load_library();
  return library ? "" : library.error().what;
}

Group::Group(const Settings& settings)
    : shared_(std::make_shared<Shared>(settings, need_library())) {}

Group::~Group() = default;

UniqueId Group::make_id() const { return nccl::make_id(shared_->nccl); }

// A thread for each rank, because in NCCL they wait for each other. One that fails ends the group,
// so that the others do not wait for it.
std::vector<comm::Mesh> Group::connect(const UniqueId& id,
                                       std::vector<std::unique_ptr<comm::Communicator>> hosts) {
  SKIFF_CHECK_EQ(static_cast<int>(hosts.size()), shared_->settings.ranks);
  std::vector<comm::Mesh> meshes(hosts.size());
  std::vector<std::thread> threads;
  shared_->may_wait = true;
  shared_->watch();
  for (size_t i = 0; i < hosts.size(); ++i)
    threads.emplace_back([&, i] {
      const int rank = hosts[i]->rank();
      try {
        join(shared_, id, shared_->settings.first_device + static_cast<int>(i), hosts[i],
             meshes[i]);
      } catch (const std::exception& error) {
        const std::string why = fmt::format("rank {}: {}", rank, error.what());
        (meshes[i].tp ? meshes[i].tp : hosts[i])->abort(why);
        shared_->end(why);
      }
    });
  for (std::thread& thread : threads) thread.join();
  shared_->throw_if_ended();
  shared_->may_wait = false;
  return meshes;
}

void Group::begin_service() { shared_->in_service = true; }

void Group::end(const std::string& why) { shared_->end(why); }

}  // namespace skiff::nccl
