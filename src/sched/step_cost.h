// sched/step_cost.h -- how long a step takes, by what was measured. A value; it reads no clock.
#pragma once
#include <vector>

#include "message/step.h"

namespace skiff::sched {

// The time of a step is a curve over its rows, linear between measured points and beyond the last
// two, plus what attention takes for the positions before them.
class StepCost {
 public:
  struct Point {
    int rows = 0;
    double seconds = 0;
    bool operator==(const Point&) const = default;
  };
  struct Context {
    // The number of positions before it at which a row of a prompt costs twice as much as at
    // position 0; 0: attention costs nothing.
    int doubling = 0;
    double seconds = 0;  // reading keys and values of one position
    bool operator==(const Context&) const = default;
  };

  StepCost() = default;  // nothing is known
  // `points` in any order, each number of rows once. More rows never take less time: a point above
  // a later one counts as that one's time. CHECKs that rows and seconds are positive.
  StepCost(std::vector<Point> points, Context context);

  bool known() const { return !points_.empty(); }
  // Returns the seconds that a step takes. All functions from here on require known().
  double seconds(int rows) const;
  double seconds(const StepPlan& plan) const;
  // Returns the seconds that attention adds for `count` rows of one sequence behind `begin`
  // positions.
  double attention(int begin, int count) const;
  // Returns the most rows that take no longer than that; 0 if one row does.
  int rows_within(double seconds) const;
  double best_rate() const { return best_rate_; }  // the most rows per second of all points
  // Returns the seconds of the shortest measured step that computes prompts at `share` of the best
  // rate beside `decodes` rows, whose attention takes `attention`. Steps of more than `most`
  // seconds are left out, but not the shortest one with any rows of prompts.
  double time_at_rate(double share, int decodes, double attention, double most) const;
  // Returns where a step of at most `rows` rows is best cut: rows that fill the device's tiles, and
  // not more of them than are computed at as good a rate as fewer are.
  int best_end(int rows) const;

  const std::vector<Point>& points() const { return points_; }
  const Context& context() const { return context_; }
  bool operator==(const StepCost&) const = default;

 private:
  std::vector<Point> points_;  // rising in rows, and not falling in seconds
  Context context_;
  double best_rate_ = 0;
};

// Returns the point of a step that computed one prompt of `rows` rows from position 0: its time
// less what attention took of it.
StepCost::Point prompt_point(int rows, double seconds, int doubling);

}  // namespace skiff::sched
