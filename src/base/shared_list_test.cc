#include "base/shared_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace skiff {
namespace {

using testing::ElementsAre;

TEST(SharedList, CopiesShareOneVector) {
  const SharedList<int> list{3, 1, 2};
  const SharedList<int> copy = list;  // NOLINT(performance-unnecessary-copy-initialization)
  EXPECT_EQ(&copy[0], &list[0]);
  EXPECT_THAT(copy, ElementsAre(3, 1, 2));
  const std::vector<int>& as_vector = copy;
  EXPECT_EQ(as_vector.data(), &list[0]);
}

TEST(SharedList, ComparesByWhatItHolds) {
  EXPECT_EQ((SharedList<int>{1, 2}), (std::vector<int>{1, 2}));
  EXPECT_FALSE((SharedList<int>{1, 2}) == (SharedList<int>{2, 1}));
  EXPECT_EQ(SharedList<int>(), SharedList<int>(std::vector<int>()));
  EXPECT_TRUE(SharedList<int>().empty());
  EXPECT_THAT(SharedList<int>(), ElementsAre());
}

TEST(SharedList, AListOfLists) {
  SharedList<std::vector<int>> words;
  words = {{0}, {1, 2}};
  EXPECT_THAT(words, ElementsAre(ElementsAre(0), ElementsAre(1, 2)));
}

}  // namespace
}  // namespace skiff
