#include "model/registry.h"

namespace skiff::model {

extern const Family kLlama, kMistral, kMixtral, kQwen2, kQwen3, kQwen3Moe, kErnie45, kErnie45Paddle,
    kErnie45Moe, kDeepseek, kDeepseekV2, kDeepseekV3, kErnie45Mtp, kDeepseekV3Mtp, kEagle, kEagle3;

namespace {

const Family* const kFamilies[] = {
    &kLlama,   &kMistral,       &kMixtral,    &kQwen2,    &kQwen3,      &kQwen3Moe,
    &kErnie45, &kErnie45Paddle, &kErnie45Moe, &kDeepseek, &kDeepseekV2, &kDeepseekV3,
};

// They draft for another model and are none by themselves (model/mtp.h).
const Family* const kModules[] = {&kErnie45Mtp, &kDeepseekV3Mtp, &kEagle, &kEagle3};

}  // namespace

const Family* find_family(std::string_view arch) {
  for (const Family* family : kFamilies)
    if (family->arch == arch) return family;
  for (const Family* family : kModules)
    if (family->arch == arch) return family;
  return nullptr;
}

std::vector<std::string_view> known_architectures() {
  std::vector<std::string_view> names;
  for (const Family* family : kFamilies) names.push_back(family->arch);
  return names;
}

}  // namespace skiff::model
