// serve/paddle/request.h -- the request object of PaddleNLP's server, as its HTTP port and its gRPC
// port take it: fields, other names for them, defaults and checks.
//
// Source: PaddleNLP llm/server (deploy_usage_tutorial; checker, triton_server). Its faults are not
// repeated: temperature 0 is greedy, and a prompt that is too long is refused unless the request
// says enable_text_truncate.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "serve/service/service.h"

namespace skiff::paddle {

struct PaddleCall {
  std::string req_id;
  std::string model;
  service::Request request;
  bool stream = false;             // HTTP: one object for each token
  bool return_all_tokens = false;  // a stream has its last object only
  bool return_usage = false;       // HTTP without stream: the answer has the numbers of tokens
  bool benchmark = false;          // objects carry times of day
  double token_seconds = 300;      // longest wait for the next token
  // Names of fields that the protocol does not have (the first few, shortened).
  std::vector<std::string> unknown_fields;
};

// How the server serves this protocol.
struct PaddleConfig {
  int max_dec_len = 0;             // bound and default; 0: what the context leaves
  bool chat_template = true;       // `text` becomes a user's message; else it is a raw prompt
  bool disable_streaming = false;  // streams have nothing but their last object
};

// True if the object has a field that only this protocol has, by which it is told from a request of
// OpenAI's API on the same path.
bool is_paddle_request(const OrderedJson& body);

// null means absent. Error::what lists all that is wrong, in the words of PaddleNLP's server where
// it has any. `body` is of any kind; `req_id` is for a request that brings none.
Result<PaddleCall> parse_paddle_call(const OrderedJson& body, const std::string& req_id,
                                     const PaddleConfig& config);

}  // namespace skiff::paddle
