#include "sched/step_cost.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"

namespace skiff::sched {
namespace {

constexpr int kTile = 128;         // rows of a tile of products
constexpr double kNoise = 0.02;    // by which two measurements of the same rate differ
constexpr double kManyRows = 1e9;  // more than any step has

double rate(const StepCost::Point& p) { return p.rows / p.seconds; }

// The time on the line through two points.
double on_line(const StepCost::Point& a, const StepCost::Point& b, double rows) {
  return a.seconds + (b.seconds - a.seconds) * (rows - a.rows) / (b.rows - a.rows);
}

}  // namespace

StepCost::StepCost(std::vector<Point> points, Context context)
    : points_(std::move(points)), context_(context) {
  std::ranges::sort(points_, {}, &Point::rows);
  for (size_t i = points_.size(); i-- > 0;) {
    SKIFF_CHECK(points_[i].rows >= 1 && points_[i].seconds > 0, "{} rows in {} s", points_[i].rows,
                points_[i].seconds);
    if (i + 1 == points_.size()) continue;
    SKIFF_CHECK(points_[i].rows < points_[i + 1].rows, "{} rows twice", points_[i].rows);
    points_[i].seconds = std::min(points_[i].seconds, points_[i + 1].seconds);
  }
  for (const Point& point : points_) best_rate_ = std::max(best_rate_, rate(point));
}

double StepCost::seconds(int rows) const {
  if (rows <= points_.front().rows) return points_.front().seconds;
  if (points_.size() == 1) return rows / best_rate_;
  const auto above = std::ranges::lower_bound(points_, rows, {}, &Point::rows);
  const auto b = above == points_.end() ? above - 1 : above;
  return on_line(*(b - 1), *b, rows);
}

double StepCost::attention(int begin, int count) const {
  const double pairs = count * (begin + 0.5 * count);
  const double arithmetic = context_.doubling > 0 ? pairs / context_.doubling / best_rate_ : 0;
  return arithmetic + context_.seconds * (begin + count);
}

int StepCost::rows_within(double limit) const {
  if (limit < points_.front().seconds) return 0;
  if (points_.size() == 1)
    return static_cast<int>(std::clamp(limit * best_rate_, 1. * points_.front().rows, kManyRows));
  const auto above = std::ranges::upper_bound(points_, limit, {}, &Point::seconds);
  const auto b = above == points_.end() ? above - 1 : above;
  const Point &from = *(b - 1), &to = *b;
  const double rise = to.seconds - from.seconds;
  if (rise <= 0) return above == points_.end() ? static_cast<int>(kManyRows) : to.rows;
  const double rows = from.rows + (limit - from.seconds) / rise * (to.rows - from.rows);
  return static_cast<int>(std::min(rows + 1e-6, kManyRows));
}

double StepCost::time_at_rate(double share, int decodes, double attention, double most) const {
  const auto rate_beside = [&](const Point& point) {
    return (point.rows - decodes) / (point.seconds + attention);
  };
  double best = 0;
  for (const Point& point : points_)
    if (point.seconds + attention <= most) best = std::max(best, rate_beside(point));
  for (const Point& point : points_)
    if (point.rows > decodes && rate_beside(point) >= share * best)
      return point.seconds + attention;
  return seconds(decodes + 1) + attention;
}

double StepCost::seconds(const StepPlan& plan) const {
  double sum = seconds(static_cast<int>(plan.tokens.size()));
  for (const Span& span : plan.spans) sum += attention(span.begin, span.count);
  return sum;
}

int StepCost::best_end(int rows) const {
  if (rows < 2) return rows;
  const int tile = std::min<int>(kTile, static_cast<int>(std::bit_floor(unsigned(rows)) / 2));
  const int filled = rows / tile * tile;
  Point best{filled, seconds(filled)};
  for (const Point& point : points_)
    if (point.rows <= rows && rate(point) > rate(best)) best = point;
  const bool as_good = filled / seconds(filled) >= (1 - kNoise) * rate(best);
  return as_good ? filled : best.rows;
}

StepCost::Point prompt_point(int rows, double seconds, int doubling) {
  const double attention = doubling > 0 ? 0.5 * rows / doubling : 0;
  return {rows, seconds / (1 + attention)};
}

}  // namespace skiff::sched
