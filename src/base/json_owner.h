// base/json_owner.h -- JSON values whose end needs no memory.
//
// The destructor of nlohmann's type first moves all elements of an array or object to a new vector:
// where a long list does not fit into memory, that throws in a destructor, which ends the process.
#pragma once
#include <utility>

#include "base/json.h"

namespace skiff {

// Makes the value empty without allocating. The stack grows with the value's depth, which parsing
// has bounded.
template <class AnyJson>
void dismantle(AnyJson& value) noexcept {
  if (auto* array = value.template get_ptr<typename AnyJson::array_t*>()) {
    for (AnyJson& element : *array) dismantle(element);
    array->clear();
  } else if (auto* object = value.template get_ptr<typename AnyJson::object_t*>()) {
    for (auto& [name, member] : *object) dismantle(member);
    object->clear();
  }
}

template <class AnyJson>
class JsonOwner {
 public:
  JsonOwner() = default;
  explicit JsonOwner(AnyJson value) : value_(std::move(value)) {}
  JsonOwner(JsonOwner&& other) noexcept : value_(std::move(other.value_)) {}
  JsonOwner& operator=(JsonOwner&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  ~JsonOwner() { dismantle(value_); }
  AnyJson& operator*() { return value_; }
  const AnyJson& operator*() const { return value_; }

 private:
  AnyJson value_;
};

}  // namespace skiff
