#include "sample/edit_store.h"

#include <algorithm>

namespace skiff::sample {
namespace {

constexpr int kPassingPages = 64;  // the last pages, for lists that are sent in pieces
constexpr size_t kMaxChanges = 1 << 16, kMaxPieces = 1 << 13;  // limits of one operation

int pages_for(size_t entries) {
  return static_cast<int>((entries + EditStore::kPage - 1) / EditStore::kPage);
}

template <class T, class From, class F>
Tensor column(PinnedArena& memory, DType dtype, const std::vector<From>& from, F field) {
  const Tensor out = memory.take(dtype, {std::ssize(from)});
  std::ranges::transform(from, out.as<T>(), field);
  return out;
}

// Returns the first token of a page that names consecutive tokens, else -1.
int32_t first_of_run(std::span<const Edit> page) {
  return page.back().token - page.front().token == std::ssize(page) - 1 ? page.front().token : -1;
}

}  // namespace

int EditStore::pages_of(int vocab, int max_slots) {
  const int full = pages_for(static_cast<size_t>(vocab));
  return std::min(max_slots, kFullLists) * full + max_slots * std::min(kSlotPages, full) +
         kPassingPages;
}

size_t EditStore::bytes(int vocab, int max_slots) {
  return static_cast<size_t>(pages_of(vocab, max_slots)) * kPage * sizeof(Edit);
}

EditStore::EditStore(Ops& ops, Staging& staging, int vocab, int max_slots)
    : ops_(ops), staging_(staging), memory_(ops.device(), bytes(vocab, max_slots)) {
  const int64_t pages = pages_of(vocab, max_slots);
  pages_ = {.token = memory_.view(DType::kI32, {pages, kPage}),
            .add = memory_.view(DType::kF32, {pages, kPage}, memory_.size() / 2)};
  for (auto page = static_cast<int32_t>(pages) - kPassingPages; page-- > 0;) free_.push_back(page);
}

void EditStore::begin(Tensor logits) {
  logits_ = logits;
  ++draw_;
}

void EditStore::add(int row, EditList& list) {
  if (list.empty()) return;
  if (!reserve(list)) return add_in_passing(row, list);
  send_list(list);
  const auto entries = std::ssize(list.entries());
  for (size_t p = 0; p < list.pages_.size(); ++p) {
    const int64_t count = entries - static_cast<int64_t>(p) * kPage;
    if (count <= 0) break;
    pieces_.push_back({.row = row,
                       .page = list.pages_[p],
                       .count = static_cast<int32_t>(std::min<int64_t>(count, kPage)),
                       .first = list.fixed_ ? list.first_[p] : -1});
  }
  if (pieces_.size() >= kMaxPieces) apply();
}

// Takes pages for all entries. Returns false, and leaves the list without pages, if there is no
// room.
bool EditStore::reserve(EditList& list) {
  list.used_ = draw_;
  const auto need = static_cast<size_t>(pages_for(list.entries().size()));
  if (list.pages_.empty()) {
    there_.push_back(&list);
    list.changed_.clear();
    for (int32_t i = 0; i < std::ssize(list.entries()); ++i) list.changed_.push_back(i);
  }
  while (list.pages_.size() < need) {
    const int32_t page = take_page();
    if (page < 0) {
      release(list);
      return false;
    }
    list.pages_.push_back(page);
  }
  return true;
}

// Returns a free page, or a page of the least recently used list; -1 if every page is in use.
int32_t EditStore::take_page() {
  if (free_.empty()) {
    const auto oldest = std::ranges::min_element(there_, {}, &EditList::used_);
    if (oldest == there_.end() || (*oldest)->used_ == draw_) return -1;
    release(**oldest);
  }
  const int32_t page = free_.back();
  free_.pop_back();
  return page;
}

void EditStore::release(EditList& list) {
  std::erase(there_, &list);
  free_.insert(free_.end(), list.pages_.begin(), list.pages_.end());
  list.pages_.clear();
  list.first_.clear();
  list.changed_.clear();
}

void EditStore::send_list(EditList& list) {
  const std::span<const Edit> entries = list.entries();
  if (list.fixed_ && list.first_.empty()) {
    for (size_t i = 0; i < entries.size(); i += kPage)
      list.first_.push_back(
          first_of_run(entries.subspan(i, std::min<size_t>(kPage, entries.size() - i))));
  }
  std::ranges::sort(list.changed_);
  const auto [end, last] = std::ranges::unique(list.changed_);
  list.changed_.erase(end, last);
  for (const int32_t i : list.changed_) {
    const auto index = static_cast<size_t>(i);
    if (index < entries.size())
      change(list.pages_[index / kPage] * kPage + i % kPage, entries[index]);
  }
  list.changed_.clear();
}

void EditStore::change(int32_t at, const Edit& edit) {
  changes_.push_back({at, edit});
  if (changes_.size() >= kMaxChanges) send_changes();
}

void EditStore::send_changes() {
  if (changes_.empty()) return;
  sent_ += changes_.size();
  PinnedArena& memory = staging_.room(changes_.size() * sizeof(Change));
  ops_.store_edits(
      pages_,
      {.at = column<int32_t>(memory, DType::kI32, changes_, [](auto& c) { return c.at; }),
       .token =
           column<int32_t>(memory, DType::kI32, changes_, [](auto& c) { return c.edit.token; }),
       .add = column<float>(memory, DType::kF32, changes_, [](auto& c) { return c.edit.add; })});
  changes_.clear();
}

void EditStore::apply() {
  send_changes();
  if (pieces_.empty()) return;
  PinnedArena& memory = staging_.room(pieces_.size() * sizeof(Piece));
  const auto of = [&](auto field) {
    return column<int32_t>(memory, DType::kI32, pieces_, [&](auto& p) { return p.*field; });
  };
  ops_.edit_logits(logits_, pages_,
                   {.row = of(&Piece::row),
                    .page = of(&Piece::page),
                    .count = of(&Piece::count),
                    .first = of(&Piece::first)});
  pieces_.clear();
}

void EditStore::add_in_passing(int row, const EditList& list) {
  apply();
  const int32_t first_page = static_cast<int32_t>(pages_.token.rows()) - kPassingPages;
  const std::span<const Edit> entries = list.entries();
  for (size_t begin = 0; begin < entries.size(); begin += size_t{kPassingPages} * kPage) {
    const auto some =
        entries.subspan(begin, std::min(entries.size() - begin, size_t{kPassingPages} * kPage));
    int32_t at = first_page * kPage;
    for (const Edit& edit : some) change(at++, edit);
    for (int32_t p = 0; p < pages_for(some.size()); ++p) {
      const auto left = static_cast<int32_t>(some.size()) - p * kPage;
      pieces_.push_back({row, first_page + p, std::min(left, kPage), -1});
    }
    apply();
  }
}

}  // namespace skiff::sample
