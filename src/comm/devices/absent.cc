// What stands in for a group of devices where CUDA is not built.
#include "base/load_error.h"
#include "comm/devices/group.h"

namespace skiff::devices {

struct DeviceGroup::Shared {};

DeviceGroup::DeviceGroup(int /*first_device*/, int /*size*/, int64_t /*owners_from*/) {
  fail_load("this skiff was built without CUDA; build it with cmake --preset cuda");
}
DeviceGroup::DeviceGroup(std::vector<int> /*devices*/, int64_t owners_from)
    : DeviceGroup(0, 0, owners_from) {}
DeviceGroup::~DeviceGroup() = default;
std::vector<comm::Mesh> DeviceGroup::make_meshes() { return {}; }
std::vector<std::shared_ptr<comm::RowExchange>> DeviceGroup::make_exchanges() { return {}; }
void DeviceGroup::begin_service() {}

}  // namespace skiff::devices
