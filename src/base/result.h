// base/result.h -- a value, or the reason there is none.
#pragma once
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace skiff {

// What kind of failure; protocols map it to a status (see serve/http/api_error.h).
//   kInvalid      the caller's input is wrong            kNotFound   a file, model or id is missing
//   kUnsupported  understood, but not something we do    kExhausted  a bounded resource is full
//   kCancelled    somebody asked to stop                 kInternal   a bug of ours
enum class Code { kInvalid, kNotFound, kUnsupported, kExhausted, kCancelled, kInternal };

// `what` is one line that names the file, field or flag, the value, and what to do about it.
// `field` names the offending request field or flag where there is one.
struct Error {
  Code code = Code::kInternal;
  std::string what;
  std::string field = {};
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : v_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : v_(std::in_place_index<1>, std::move(error)) {}

  explicit operator bool() const { return v_.index() == 0; }
  T& operator*() & { return checked(); }
  const T& operator*() const& { return const_cast<Result*>(this)->checked(); }
  T&& operator*() && { return std::move(checked()); }
  T* operator->() { return &checked(); }
  const T* operator->() const { return &const_cast<Result*>(this)->checked(); }
  const Error& error() const { return std::get<1>(v_); }

 private:
  T& checked() {
    SKIFF_CHECK(v_.index() == 0, "Result holds an error: {}", std::get<1>(v_).what);
    return std::get<0>(v_);
  }
  std::variant<T, Error> v_;
};

struct Unit {};
using Status = Result<Unit>;
inline Status ok() { return Unit{}; }

}  // namespace skiff
