// base/shared_list.h -- an immutable list whose copies share one memory.
#pragma once
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace skiff {

// A request's lists go with each of its sequences, of which there may be thousands; copying a
// SharedList costs one reference count and no memory. It reads like a const std::vector.
template <class T>
class SharedList {
 public:
  using value_type = T;
  using const_iterator = typename std::vector<T>::const_iterator;
  using iterator = const_iterator;

  SharedList() = default;
  SharedList(std::initializer_list<T> items) : SharedList(std::vector<T>(items)) {}
  SharedList(std::vector<T> items)
      : items_(items.empty() ? nullptr : std::make_shared<const std::vector<T>>(std::move(items))) {
  }

  operator const std::vector<T>&() const { return all(); }
  const std::vector<T>& all() const {
    static const std::vector<T> none;
    return items_ ? *items_ : none;
  }
  const_iterator begin() const { return all().begin(); }
  const_iterator end() const { return all().end(); }
  size_t size() const { return items_ ? items_->size() : 0; }
  bool empty() const { return items_ == nullptr; }
  const T& operator[](size_t index) const { return (*items_)[index]; }
  const T& at(size_t index) const { return all().at(index); }
  friend bool operator==(const SharedList& a, const SharedList& b) {
    return a.items_ == b.items_ || a.all() == b.all();
  }

 private:
  std::shared_ptr<const std::vector<T>> items_;  // null if the list is empty
};

}  // namespace skiff
