// text/rank_file.h -- the vocabulary files of tiktoken: one line "base64 rank" per token. The
// rank is the token's id and the order in which neighbours merge.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "text/bpe.h"

namespace skiff {

// Whether `bytes` begin like such a file; a SentencePiece model never does.
bool is_rank_file(std::string_view bytes);

// The bytes of each token, by rank. Throws LoadError naming `where` and the line: broken base64,
// ranks that repeat or leave holes, tokens that repeat or exceed 512 bytes, a byte without token.
std::vector<std::string> read_rank_file(std::string_view bytes, const std::string& where);

// The same byte-pair encoding as a table of merges: any two tokens whose bytes together are a
// token merge, the lowest rank first, and a word that is a token is that token.
BpeModel bpe_of_ranks(const std::vector<std::string>& tokens);

}  // namespace skiff
