// What stands in for a group over NCCL where CUDA is not built.
#include "base/load_error.h"
#include "comm/nccl/group.h"

namespace skiff::nccl {

struct Group::Shared {};

std::string why_impossible() {
  return "this skiff was built without CUDA; build it with cmake --preset cuda";
}

Group::Group(const Settings& /*settings*/) { fail_load("{}", why_impossible()); }
Group::~Group() = default;
UniqueId Group::make_id() const { return {}; }
std::vector<comm::Mesh> Group::connect(const UniqueId& /*id*/,
                                       std::vector<std::unique_ptr<comm::Communicator>> hosts) {
  hosts.clear();
  return {};
}
void Group::begin_service() {}
void Group::end(const std::string& /*why*/) {}

}  // namespace skiff::nccl
