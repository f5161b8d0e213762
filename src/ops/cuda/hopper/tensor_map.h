// ops/cuda/hopper/tensor_map.h -- tensor maps, which describe a tensor and its boxes to TMA. CUDA
// driver API, "Tensor Map Object Management".
#pragma once
#include <cuda.h>

#include <cstdint>
#include <span>

namespace skiff::cuda {

// Throws DeviceError where the driver cannot encode tensor maps.
void require_tensor_maps();

// What the L2 loads around a row of a box. 256 bytes suit boxes whose neighbours follow at once;
// where one chunk after the other is streamed, half of it would be loaded twice.
enum class L2Line { k128, k256 };

// A bf16 tensor of box.size() dimensions, the fastest first. `size` counts elements; `stride_bytes`
// lacks the first dimension's, which is contiguous. A box is copied to shared memory in rows of
// box[0] = 64 elements in the 128-byte swizzle; what lies outside of the tensor becomes zero.
CUtensorMap tensor_map(void* data, std::span<const uint64_t> size,
                       std::span<const uint64_t> stride_bytes, std::span<const uint32_t> box,
                       L2Line line = L2Line::k256);
// Makes such a map of a tensor of bytes: box[0] is 32, 64 or 128, and rows of so many bytes are
// swizzled as TMA swizzles them.
CUtensorMap byte_map(void* data, std::span<const uint64_t> size,
                     std::span<const uint64_t> stride_bytes, std::span<const uint32_t> box);
// Makes such a map of a tensor of 32-bit words, whose boxes are copied without swizzling.
CUtensorMap word_map(void* data, std::span<const uint64_t> size,
                     std::span<const uint64_t> stride_bytes, std::span<const uint32_t> box);

}  // namespace skiff::cuda
