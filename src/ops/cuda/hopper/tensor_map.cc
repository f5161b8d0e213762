#include "ops/cuda/hopper/tensor_map.h"

#include "base/check.h"
#include "ops/cuda/driver.h"

namespace skiff::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

Encode encoder() {
  static const auto encode = driver_function<Encode>("cuTensorMapEncodeTiled", 12000);
  return encode;
}

struct Elements {
  CUtensorMapDataType type;
  CUtensorMapSwizzle swizzle;
  CUtensorMapL2promotion line;
};

CUtensorMapL2promotion promotion(L2Line line) {
  return line == L2Line::k128 ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B
                              : CU_TENSOR_MAP_L2_PROMOTION_L2_256B;
}

CUtensorMap encoded(const Elements& elements, void* data, std::span<const uint64_t> size,
                    std::span<const uint64_t> stride_bytes, std::span<const uint32_t> box) {
  constexpr uint32_t kEvery[5] = {1, 1, 1, 1, 1};
  SKIFF_CHECK(box.size() >= 2 && box.size() <= 5 && size.size() == box.size() &&
              stride_bytes.size() + 1 == box.size());
  CUtensorMap map;
  const CUresult result =
      encoder()(&map, elements.type, static_cast<cuuint32_t>(box.size()), data, size.data(),
                stride_bytes.data(), box.data(), kEvery, CU_TENSOR_MAP_INTERLEAVE_NONE,
                elements.swizzle, elements.line, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  SKIFF_CHECK(result == CUDA_SUCCESS, "error {} encoding a tensor map of {} x {} elements",
              static_cast<int>(result), size[1], size[0]);
  return map;
}

}  // namespace

void require_tensor_maps() { encoder(); }

CUtensorMap tensor_map(void* data, std::span<const uint64_t> size,
                       std::span<const uint64_t> stride_bytes, std::span<const uint32_t> box,
                       L2Line line) {
  return encoded({CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, CU_TENSOR_MAP_SWIZZLE_128B, promotion(line)},
                 data, size, stride_bytes, box);
}

CUtensorMap byte_map(void* data, std::span<const uint64_t> size,
                     std::span<const uint64_t> stride_bytes, std::span<const uint32_t> box) {
  SKIFF_CHECK(box[0] == 32 || box[0] == 64 || box[0] == 128, "rows of {} bytes", box[0]);
  const auto elements =
      box[0] == 128  ? Elements{CU_TENSOR_MAP_DATA_TYPE_UINT8, CU_TENSOR_MAP_SWIZZLE_128B,
                               CU_TENSOR_MAP_L2_PROMOTION_L2_128B}
      : box[0] == 64 ? Elements{CU_TENSOR_MAP_DATA_TYPE_UINT8, CU_TENSOR_MAP_SWIZZLE_64B,
                                CU_TENSOR_MAP_L2_PROMOTION_L2_64B}
                     : Elements{CU_TENSOR_MAP_DATA_TYPE_UINT8, CU_TENSOR_MAP_SWIZZLE_32B,
                                CU_TENSOR_MAP_L2_PROMOTION_NONE};
  return encoded(elements, data, size, stride_bytes, box);
}

CUtensorMap word_map(void* data, std::span<const uint64_t> size,
                     std::span<const uint64_t> stride_bytes, std::span<const uint32_t> box) {
  return encoded({CU_TENSOR_MAP_DATA_TYPE_UINT32, CU_TENSOR_MAP_SWIZZLE_NONE,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B},
                 data, size, stride_bytes, box);
}

}  // namespace skiff::cuda
