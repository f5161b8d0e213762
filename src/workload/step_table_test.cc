#include "workload/step_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace skiff::workload {
namespace {

using sched::StepCost;

const std::string kHead = "kind,rows,ms,above_percent,rows_per_second,context\n";
const std::string kTwoOfEach =
    "decode,1,5,0.00,200,1000\ndecode,10,7,0.00,1428.6,1000\n"
    "prompt,100,10,0.00,10000,0\nprompt,1000,60,0.00,16666.7,0\n";

TEST(StepTable, ReadsWhatBenchStepsWrites) {
  const StepCost::Context context{.doubling = 2500, .seconds = 1e-7};
  const auto steps = parse_steps(kHead + kTwoOfEach + "mixed,40,9,0.00,4444.4,1000\n", context);
  ASSERT_TRUE(steps) << steps.error().what;
  EXPECT_EQ(steps->decodes.context(), context);
  ASSERT_EQ(steps->decodes.points().size(), 2u);
  EXPECT_NEAR(steps->decodes.points()[1].seconds, 6e-3, 1e-9) << "less the attention of 10 rows";
  ASSERT_EQ(steps->prompts.points().size(), 2u);
  EXPECT_NEAR(steps->prompts.points()[1].seconds, 50e-3, 1e-9) << "less a fifth";
}

TEST(StepTable, SaysWhatIsWrong) {
  for (const char* bad :
       {"decode,0,5,0,200,1000", "decode,2,-5,0,200,1000", "decode,2,5,0,200",
        "decode,2,nan,0,200,1000", "decode,2,5,0,200,1000,1", "decode,10,7,0,1,1000",
        "DECODE,2,5,0,200,1000", "decode,2,5,0,200,-1", "decode,99999999999,5,0,200,1"})
    EXPECT_FALSE(parse_steps(kHead + kTwoOfEach + bad + "\n", {})) << bad;
  for (const std::string few : {"", "decode,1,5,0,200,1000\ndecode,2,6,0,200,1000\n"})
    EXPECT_FALSE(parse_steps(kHead + few, {})) << few;
  const auto line = parse_steps(kHead + kTwoOfEach + "prompt,x\n", {});
  ASSERT_FALSE(line);
  EXPECT_THAT(line.error().what, testing::HasSubstr("line 6 is \"prompt,x\""));
}

}  // namespace
}  // namespace skiff::workload
