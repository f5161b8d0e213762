// model/registry.h -- the families that this build knows, by architecture.
#pragma once
#include <string_view>
#include <vector>

#include "model/family.h"

namespace skiff::model {

const Family* find_family(std::string_view arch);  // nullptr if unknown
std::vector<std::string_view> known_architectures();

}  // namespace skiff::model
