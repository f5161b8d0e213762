// serve/paddle/writer.h -- the reply objects of PaddleNLP's server: one JSON object for each token,
// or one for the whole reply.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "serve/service/service.h"

namespace skiff::paddle {

// What the objects of one reply have in common.
struct ReplyFacts {
  std::string req_id;
  int64_t seed = 0;
  bool return_all_tokens = false;
  bool last_only = false;  // nothing before the last object, which then has all tokens
  bool benchmark = false;
  // The HTTP port adds error_msg "" and error_code 0 to objects that are no errors. On the gRPC
  // port the client takes an object that has error_msg for an error.
  bool error_fields = false;
  std::chrono::system_clock::time_point received, prepared;
};

// Not thread-safe.
class ReplyWriter {
 public:
  explicit ReplyWriter(ReplyFacts facts);

  // The objects for this piece of the stream, in order of send_idx; with `reply.finish` the last of
  // them has is_end 1 and the whole text.
  std::vector<std::string> pieces(const service::Reply& reply);
  // Keeps a piece for whole().
  void gather(const service::Reply& reply);
  // The one object of an answer that is no stream (HTTP): {"result", "tokens_all", ...}.
  std::string whole(bool usage) const;

 private:
  struct Piece {
    std::string_view text;
    std::vector<Token> tokens;
    int completion = 0;  // tokens so far, the end token among them
    bool end = false;
  };
  std::string object(const Piece& piece);

  const ReplyFacts facts_;
  const std::chrono::steady_clock::time_point started_;
  int index_ = 0;  // tokens that were sent
  std::string text_;
  std::vector<Token> tokens_;  // without the end token
  service::Usage usage_;
};

// An error as an object. `code` is 200 for what the client can mend, else 500; 0 would mean that
// there is none. `result`: the answer to an HTTP request that is no stream, which has an empty one.
std::string error_object(const std::string& req_id, const std::string& why, int code, bool result);

}  // namespace skiff::paddle
