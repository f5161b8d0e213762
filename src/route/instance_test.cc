// Registrations, good and bad, and what pairs are told of each other.
#include "route/instance.h"

#include <gtest/gtest.h>

#include "route/prober.h"

namespace skiff::route {
namespace {

TEST(Instance, ReadsFastDeploysFields) {
  const auto made = parse_instance(
      R"({"role": "DECODE", "host_ip": "10.0.0.2", "port": "8000", "metrics_port": "0",
          "connector_port": "2334", "engine_worker_queue_port": "8002", "tp_size": 2,
          "transfer_protocol": ["ipc", "rdma"], "rdma_ports": ["7671"], "device_ids": ["0", "1"],
          "is_paused": true, "version": "7", "connected_decodes": []})");
  ASSERT_TRUE(made);
  EXPECT_EQ(made->role, Role::kDecode);
  EXPECT_EQ(made->url(), "http://10.0.0.2:8000");
  EXPECT_TRUE(made->paused);
  EXPECT_EQ(made->device_ids, Json({"0", "1"}));
  EXPECT_EQ(parse_instance(R"({"role": "mixed", "host_ip": "::1", "port": 9})")->url(),
            "http://[::1]:9");
}

TEST(Instance, MetricsMayHaveAPortOfTheirOwn) {
  const auto metrics_port = [](const std::string& value) {
    const auto made =
        parse_instance(R"({"role": "mixed", "host_ip": "a", "port": 1)" + value + "}");
    return made ? made->metrics_port : -1;
  };
  EXPECT_EQ(metrics_port(R"(, "metrics_port": 8001)"), 8001);
  EXPECT_EQ(metrics_port(R"(, "metrics_port": "8001")"), 8001);
  for (const char* none :
       {"", R"(, "metrics_port": 0)", R"(, "metrics_port": "0")", R"(, "metrics_port": null)"})
    EXPECT_EQ(metrics_port(none), 0) << none;
}

TEST(Instance, RefusesByTheFieldsName) {
  for (const auto& [body, field] :
       {std::pair{R"({"host_ip": "a", "port": 1})", "role"},
        {R"({"role": "master", "host_ip": "a", "port": 1})", "role"},
        {R"({"role": "mixed", "port": 1})", "host_ip"},
        {R"({"role": "mixed", "host_ip": "a b", "port": 1})", "host_ip"},
        {R"({"role": "mixed", "host_ip": "a/../", "port": 1})", "host_ip"},
        {R"({"role": "mixed", "host_ip": "a\r\nX: y", "port": 1})", "host_ip"},
        {R"({"role": "mixed", "host_ip": "a", "port": 0})", "port"},
        {R"({"role": "mixed", "host_ip": "a", "port": "80x"})", "port"},
        {R"({"role": "mixed", "host_ip": "a", "port": 70000})", "port"},
        {R"({"role": "mixed", "host_ip": "a", "port": 1, "metrics_port": 70000})", "metrics_port"},
        {R"({"role": "mixed", "host_ip": "a", "port": 1, "metrics_port": "x"})", "metrics_port"}}) {
    const auto made = parse_instance(body);
    ASSERT_FALSE(made) << body;
    EXPECT_EQ(made.error().field, field) << body;
  }
  EXPECT_FALSE(parse_instance("[]"));
  EXPECT_FALSE(parse_instance("{"));
}

TEST(Instance, ReadsUrlsOfBackends) {
  EXPECT_EQ(parse_backend_url("http://a.example:81")->url(), "http://a.example:81");
  EXPECT_EQ(parse_backend_url("127.0.0.1:8000")->url(), "http://127.0.0.1:8000");
  EXPECT_EQ(parse_backend_url("https://[::1]:81")->url(), "https://[::1]:81");
  for (const char* bad : {"http://a:1/path", "http://:1", "ftp://a:1", ""})
    EXPECT_FALSE(parse_backend_url(bad)) << bad;
}

TEST(Instance, PairsAgreeOnATransport) {
  Instance prefill, decode;
  prefill.host = decode.host = "10.0.0.1";
  prefill.transfer_protocol = decode.transfer_protocol = {"ipc", "rdma"};
  decode.connector_port = "2335";
  Json info = disaggregate_info(prefill, decode);
  EXPECT_EQ(info["transfer_protocol"], "ipc");
  EXPECT_EQ(info["decode_connector_port"], "2335");
  decode.tp_size = 2;
  EXPECT_EQ(disaggregate_info(prefill, decode)["transfer_protocol"], "rdma");
  prefill.transfer_protocol = decode.transfer_protocol = {"tcp"};
  EXPECT_EQ(disaggregate_info(prefill, decode)["transfer_protocol"], "tcp");
}

TEST(LoadScore, ReadsGaugesOfAllLabels) {
  EXPECT_EQ(load_score("# HELP x\nfastdeploy:num_requests_running{a=\"b c\"} 2\n"
                       "fastdeploy:num_requests_running{a=\"d\"} 1\n"
                       "fastdeploy:num_requests_waiting 4\n"),
            43);
  EXPECT_LT(load_score("other 1\n"), 0);
}

}  // namespace
}  // namespace skiff::route
