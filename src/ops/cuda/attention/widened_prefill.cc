#include "ops/cuda/attention/widened_prefill.h"

#include <algorithm>

#include "ops/cuda/attention/maps.h"

namespace skiff::cuda {
namespace {

constexpr size_t kAligned = 256;

size_t aligned(size_t bytes) { return (bytes + kAligned - 1) / kAligned * kAligned; }

// The places of a copy of some heads in the scratch.
struct Copies {
  int pages = 0;
  size_t table = 0, page_head = 0;  // bytes: of the page table, and of one head in one page

  Copies(const PrefillArgs& p, const std::vector<WidenSpan>& spans) {
    for (const WidenSpan& s : spans) pages += s.pages;
    table = aligned(static_cast<size_t>(p.args.rows.num_seqs * p.args.rows.pages_stride) *
                    sizeof(int32_t));
    page_head = static_cast<size_t>(p.args.cache.page_size * p.args.head_dim) * 2;
  }
  size_t half(int heads) const { return aligned(pages * page_head * heads); }
  // The most heads whose keys and values fit.
  int most(size_t bytes) const {
    if (bytes < table + 2 * kAligned) return 0;
    return static_cast<int>((bytes - table - 2 * kAligned) / 2 /
                            std::max<size_t>(1, pages * page_head));
  }
};

// The prefill of `heads` kv heads from `first` on over their copy.
PrefillArgs over_copy(const PrefillArgs& p, const WidenArgs& w) {
  PrefillArgs to = p;
  AttendArgs& a = to.args;
  const int64_t skipped = int64_t{w.first_head} * a.group * a.head_dim;
  a.q = static_cast<const uint16_t*>(a.q) + skipped;
  a.out = static_cast<uint16_t*>(a.out) + skipped;
  a.rows.pages = w.table;
  const int64_t page = int64_t{a.cache.page_size} * w.heads * a.head_dim;
  a.cache = {.k = w.k,
             .v = w.v,
             .k_page = page,
             .v_page = page,
             .page_size = a.cache.page_size,
             .kv_heads = w.heads,
             .head_dim = a.head_dim,
             .element = KvElement::kBf16};
  to.beside = false;  // the kernel before it made the copy
  return to;
}

}  // namespace

std::vector<WidenSpan> widen_spans(const PlanShape& shape, int page_size,
                                   std::span<const int32_t> row_start,
                                   std::span<const int32_t> kv_len) {
  std::vector<WidenSpan> spans;
  int at = 0;
  for (size_t s = 0; s < kv_len.size(); ++s) {
    const int rows = row_start[s + 1] - row_start[s];
    if (!is_prefilled(shape, rows)) continue;
    const int seen = shape.window > 0 ? std::max(0, kv_len[s] - rows + 1 - shape.window) : 0;
    const int first = seen / page_size, end = (kv_len[s] + page_size - 1) / page_size;
    if (spans.size() == kMaxWidenSpans) return {};
    spans.push_back({static_cast<int32_t>(s), first, end - first, at});
    at += end - first;
  }
  return spans;
}

bool start_widened_prefill(const PrefillArgs& p, const std::vector<WidenSpan>& spans,
                           const WidenScratch& scratch, cudaStream_t stream) {
  const Copies copies(p, spans);
  const int all = p.args.cache.kv_heads, most = std::min(all, copies.most(scratch.bytes));
  if (spans.empty() || most == 0) return false;
  const int groups = (all + most - 1) / most, each = (all + groups - 1) / groups;
  for (int first = 0; first < all; first += each) {
    WidenArgs w = {.rows = p.args.rows,
                   .cache = p.args.cache,
                   .count = static_cast<int>(spans.size()),
                   .pages = copies.pages,
                   .first_head = first,
                   .heads = std::min(each, all - first),
                   .table = reinterpret_cast<int32_t*>(scratch.data)};
    std::ranges::copy(spans, w.span);
    w.k = scratch.data + copies.table;
    w.v = static_cast<std::byte*>(w.k) + copies.half(w.heads);
    start_widen(w, stream);
    const PrefillArgs widened = over_copy(p, w);
    const CacheMaps maps = cache_maps(widened.args.cache, copies.pages);
    start_prefill(widened, maps.k, maps.v, stream);
  }
  return true;
}

}  // namespace skiff::cuda
