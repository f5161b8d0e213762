// text/rank_file.h -- reads the vocabulary files of tiktoken, which have one line "base64 rank" per
// token. The rank is the token's id and its place in the order of merges.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "text/bpe.h"

namespace skiff::text {

// Returns whether `bytes` begin like such a file; a SentencePiece model never does.
bool is_rank_file(std::string_view bytes);

// Returns the bytes of each token, by rank. Throws a LoadError that names `where` and the line for
// broken base64, ranks that repeat or leave gaps, tokens that repeat or exceed 512 bytes, and bytes
// without a token.
std::vector<std::string> read_rank_file(std::string_view bytes, const std::string& where);

// Converts the ranks into a byte-pair encoding with a table of merges: any two tokens whose joined
// bytes are a token merge, the lowest rank first, and a word that is a token is not merged.
BpeModel bpe_of_ranks(const std::vector<std::string>& tokens);

}  // namespace skiff::text
