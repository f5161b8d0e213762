#include <iterator>
#include <utility>

#include "serve/pooling/route.h"

namespace skiff::pooling {

std::vector<Field> joined(std::vector<std::vector<Field>> tables) {
  std::vector<Field> all;
  for (std::vector<Field>& table : tables)
    all.insert(all.end(), std::make_move_iterator(table.begin()),
               std::make_move_iterator(table.end()));
  return all;
}

Result<PoolingCall> parse_call(const OrderedJson& body, const RouteKind& kind) {
  PoolingCall call;
  if (auto error = read_fields(body, kind.fields, kind.inputs, call)) return *error;
  if (auto error = kind.read(body, call)) return *error;
  call.request.pool = true;
  call.request.add_special = call.add_special.value_or(true);
  call.request.template_special = call.add_special.value_or(false);
  return call;
}

}  // namespace skiff::pooling
