// text/jinja/text_method.h -- shared by the files that implement methods of str.
#pragma once
#include <string>
#include <string_view>

#include "text/jinja/builtins.h"

namespace skiff::jinja {

// The text that a method was called on. Results of methods on markup are markup.
struct TextSelf {
  Interpreter& in;
  const Value& value;
  std::string_view text;
  Value result(std::string s) const {
    in.budget().make(64 + s.size());
    return Value(std::move(s), value.is_markup());
  }
  Value list(Values items, Seq::Form form = Seq::Form::kList) const {
    return Value::seq(in.budget(), form, std::move(items));
  }
};

// The methods split, rsplit, splitlines, partition and rpartition.
Value split_text(const TextSelf& self, const Args& args);
Value rsplit_text(const TextSelf& self, const Args& args);
Value split_lines(const TextSelf& self, const Args& args);
Value partition_text(const TextSelf& self, const Args& args);
Value rpartition_text(const TextSelf& self, const Args& args);

}  // namespace skiff::jinja
