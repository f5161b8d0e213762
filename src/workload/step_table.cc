#include "workload/step_table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <vector>

#include "base/load_error.h"

namespace skiff::workload {
namespace {

using sched::StepCost;

constexpr int kMaxRows = 1 << 24;
constexpr double kMaxMs = 1e9;
// The least share of a step's time that is left once attention is taken off.
constexpr double kLeastShare = 0.2;

struct Line {
  std::string kind;
  int rows = 0, context = 0;
  double ms = 0;
};

// kind,rows,ms,above_percent,rows_per_second,context
bool read_line(const std::string& text, Line& line) {
  char kind[16] = "";
  double above = 0, rate = 0;
  int read = 0;
  const int fields = std::sscanf(text.c_str(), "%15[a-z],%d,%lf,%lf,%lf,%d%n", kind, &line.rows,
                                 &line.ms, &above, &rate, &line.context, &read);
  line.kind = kind;
  return fields == 6 && text.size() == static_cast<size_t>(read) && line.rows >= 1 &&
         line.rows <= kMaxRows && line.context >= 0 && line.context <= kMaxRows && line.ms > 0 &&
         line.ms <= kMaxMs;
}

StepCost::Point decode_point(const Line& line, double kv_seconds) {
  const double seconds = line.ms / 1e3;
  const double attention = kv_seconds * line.rows * line.context;
  return {line.rows, std::max(seconds - attention, kLeastShare * seconds)};
}

bool adds_twice(const std::vector<StepCost::Point>& points, int rows) {
  return std::ranges::find(points, rows, &StepCost::Point::rows) != points.end();
}

}  // namespace

Result<MeasuredSteps> parse_steps(std::string_view text, const StepCost::Context& context) {
  const auto invalid = [](std::string what) { return Error{Code::kInvalid, std::move(what)}; };
  std::vector<StepCost::Point> decodes, prompts;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string one(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (number == 1 || one.empty()) continue;  // the first line names the columns
    Line line;
    if (!read_line(one, line))
      return invalid(
          fmt::format("line {} is \"{}\"; skiff bench steps --csv writes "
                      "kind,rows,ms,above_percent,rows_per_second,context",
                      number, one));
    if (line.kind != "decode" && line.kind != "prompt") continue;
    auto& points = line.kind == "decode" ? decodes : prompts;
    if (adds_twice(points, line.rows))
      return invalid(fmt::format("line {}: {} rows are there twice", number, line.rows));
    points.push_back(line.kind == "decode"
                         ? decode_point(line, context.seconds)
                         : sched::prompt_point(line.rows, line.ms / 1e3, context.doubling));
  }
  if (decodes.size() < 2 || prompts.size() < 2)
    return invalid("the table needs two decode steps and two prompt steps at least");
  return MeasuredSteps{{std::move(decodes), context}, {std::move(prompts), context}};
}

MeasuredSteps read_steps(const std::string& path, const StepCost::Context& context) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail_load("cannot open {}", path);
  std::stringstream text;
  text << file.rdbuf();
  auto steps = parse_steps(text.view(), context);
  if (!steps) fail_load("{}: {}", path, steps.error().what);
  return std::move(*steps);
}

}  // namespace skiff::workload
