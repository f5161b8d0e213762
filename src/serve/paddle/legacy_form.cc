#include "serve/paddle/legacy_form.h"

#include "serve/paddle/generation.h"

namespace skiff::paddle {
namespace {

// PaddleNLP's server announces its JSON lines so, and its clients do not look.
constexpr const char* kLines = "text/event-stream; charset=utf-8";

void send_error(http::HttpReply& reply, std::string object, bool streams,
                const http::ApiError& error) {
  if (streams) object += '\n';
  reply.send({.status = 200,
              .body = std::move(object),
              .content_type = streams ? kLines : "application/json",
              .headers = error.headers});
}

class LineOutlet : public Outlet {
 public:
  LineOutlet(std::shared_ptr<http::HttpReply> reply, bool streams)
      : reply_(std::move(reply)), streams_(streams) {}

  void write(std::string object, bool last) override {
    if (!streams_) return reply_->send({.status = 200, .body = std::move(object)});
    open();
    reply_->write(object += '\n');
    if (last) reply_->end_stream();
  }

  void fail(std::string object, const http::ApiError& error) override {
    if (!opened_) return send_error(*reply_, std::move(object), streams_, error);
    reply_->write(object += '\n');
    reply_->end_stream();
  }

 private:
  void open() {
    if (std::exchange(opened_, true)) return;
    reply_->begin_stream({.status = 200,
                          .body = "",
                          .content_type = kLines,
                          .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}});
  }

  const std::shared_ptr<http::HttpReply> reply_;
  const bool streams_;
  bool opened_ = false;
};

class LegacyForm : public openai::OtherForm {
 public:
  LegacyForm(service::ProtocolContext& context, const http::ApiKeys& keys,
             const PaddleConfig& config)
      : context_(context), keys_(keys), config_(config) {}

  bool claims(const OrderedJson& body) const override { return is_paddle_request(body); }

  void answer(const OrderedJson& body, const http::HttpRequest& request,
              std::shared_ptr<http::HttpReply> reply, service::Ticket ticket) const override {
    Carrier carrier{.request_id = request.request_id,
                    .cache_salt = {},
                    .replica = request.replica,
                    .http = true};
    if (!context_.config.policy.shared_cache) carrier.cache_salt = keys_.cache_salt(request);
    constexpr size_t kMaxTraceparent = 256;
    carrier.route = request.path;
    carrier.serial = request.serial;
    carrier.traceparent = request.header("traceparent").substr(0, kMaxTraceparent);
    auto prepared = prepare_generation(context_, config_, body, carrier, std::move(ticket));
    if (const auto* refused = std::get_if<Refused>(&prepared)) {
      const bool streams = body.contains("stream") && body.at("stream") == true;
      const auto object = error_object(refused->req_id, refused->error.message,
                                       error_code(refused->error), !streams);
      return send_error(*reply, object, streams, refused->error);
    }
    const auto& generation = std::get<std::shared_ptr<Generation>>(prepared);
    generation->start(std::make_shared<LineOutlet>(reply, generation->streams()));
    reply->on_close([weak = std::weak_ptr(generation)] {
      if (const auto alive = weak.lock()) alive->cancel();
    });
  }

 private:
  service::ProtocolContext& context_;
  const http::ApiKeys& keys_;
  const PaddleConfig config_;
};

}  // namespace

std::shared_ptr<const openai::OtherForm> legacy_form(service::ProtocolContext& context,
                                                     const http::ApiKeys& keys,
                                                     const PaddleConfig& config) {
  return std::make_shared<LegacyForm>(context, keys, config);
}

}  // namespace skiff::paddle
