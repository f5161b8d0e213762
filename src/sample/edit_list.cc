#include "sample/edit_list.h"

#include <utility>

namespace skiff::sample {

EditList::EditList(std::vector<Edit> fixed) : entries_(std::move(fixed)), fixed_(true) {}

void EditList::push(const Edit& edit) {
  entries_.push_back(edit);
  if (!pages_.empty()) changed_.push_back(static_cast<int32_t>(entries_.size()) - 1);
}

void EditList::set(size_t index, const Edit& edit) {
  entries_[index] = edit;
  if (!pages_.empty()) changed_.push_back(static_cast<int32_t>(index));
}

}  // namespace skiff::sample
