// draft/drafter.h -- the interface of a method that drafts tokens from the text of one sequence.
#pragma once
#include <span>
#include <vector>

#include "message/request.h"

namespace skiff::draft {

// Stands in a text where one part ends and another begins; it is never drafted.
constexpr Token kBreak = -2;

// Drafts are guesses of the tokens that follow a text. The model checks them, several in one step
// (speculative decoding, Leviathan et al. 2023), so a wrong one costs time and never changes the
// text. One Drafter serves one sequence.
class Drafter {
 public:
  virtual ~Drafter() = default;
  // Reads the text on to its end. It begins with the text of the call before. Takes time in
  // proportion to the tokens that are new, on average, so a caller bounds the time of a call by
  // handing over a long text in pieces.
  virtual void read(std::span<const Token> text) = 0;
  // Returns at most `most` drafts of what follows `text`, which begins with the one that was read
  // last; tokens behind that are guesses. Takes a time that does not grow with what was read.
  virtual std::vector<Token> propose(std::span<const Token> text, int most) const = 0;
};

// Copies what follows the first `begin` tokens of `text`, at most `most` of them and none behind a
// kBreak. Where the text ends, the copy goes on in what it has copied (as LZ77 does), so that a
// text with a short period is continued for as long as is asked. CHECKs 0 < begin < text.size().
std::vector<Token> continuation(std::span<const Token> text, int begin, int most);

}  // namespace skiff::draft
