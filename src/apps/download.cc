// `skiff download`: a model's folder from a mirror.
#include <filesystem>
#include <fstream>

#include "apps/commands.h"
#include "base/load_error.h"
#include "base/log.h"
#include "base/progress.h"
#include "download/static_models.h"
#include "download/transfer.h"

namespace skiff::apps {
namespace {

constexpr double kGb = 1 << 30;

std::string token_of(const Args& args) {
  if (!args.given("token-file")) return {};
  const std::string path = args.text("token-file");
  std::ifstream in(path);
  std::string token;
  if (!(in >> token)) fail_load("--token-file {}: it has no token, or cannot be read", path);
  for (const char c : token)
    if (c <= 0x20 || c >= 0x7f) fail_load("--token-file {}: its token is not ASCII", path);
  return token;
}

download::MirrorConfig mirror_config(const Args& args) {
  if (args.positional().size() != 1)
    throw UsageError(
        "skiff download needs the model's name, as in skiff download org/model "
        "--mirror https://mirror.example.org");
  if (!args.given("mirror"))
    throw UsageError("skiff download needs --mirror URL: no address is built in");
  const auto base = fetch::parse_url(args.text("mirror"));
  if (!base) throw UsageError("--mirror: " + base.error().what);
  download::MirrorConfig config{.base = *base, .model = args.positional().front()};
  if (args.text("layout") == "folder") config.layout = download::MirrorConfig::Layout::kFolder;
  config.revision = args.text("revision");
  for (const std::string& name : {config.model, config.revision})
    if (!download::is_safe_name(name))
      throw UsageError(fmt::format("\"{}\" is no name of a model or a revision", escaped(name)));
  config.token = token_of(args);
  return config;
}

// A hub has no static models; a folder of one may be meant for another program.
void judge_name(const download::MirrorConfig& config) {
  const download::StaticModel* graph = download::find_static_model(config.model);
  if (!graph) return;
  if (config.layout == download::MirrorConfig::Layout::kHub)
    throw LoadError(download::advice_on(*graph));
  spdlog::warn("{}", download::advice_on(*graph));
}

std::vector<download::RemoteFile> wanted(const Args& args, download::Mirror& mirror) {
  auto files = mirror.list();
  if (!files) throw LoadError(files.error().what);
  const std::vector<std::string> patterns = args.texts("include");
  if (!patterns.empty())
    std::erase_if(*files, [&](const download::RemoteFile& file) {
      return std::ranges::none_of(patterns, [&](const std::string& pattern) {
        return download::matches(pattern, file.name);
      });
    });
  if (files->empty()) fail_load("the mirror has no such files");
  return std::move(*files);
}

// Refuses what is too large before anything is written.
void check_sizes(const std::vector<download::RemoteFile>& files, uint64_t most) {
  uint64_t total = 0;
  for (const download::RemoteFile& file : files) {
    const uint64_t size = file.size.value_or(0);
    if (size > most - total)
      fail_load(
          "the files have more than {:.1f} GB; give --max-size, or --include for some of them",
          static_cast<double>(most) / kGb);
    total += size;
  }
}

}  // namespace

int run_download(const Args& args) {
  const download::MirrorConfig config = mirror_config(args);
  judge_name(config);
  fetch::Client client({.ca_file = args.text("ca-file")});
  download::Mirror mirror(config, client);
  const std::vector<download::RemoteFile> files = wanted(args, mirror);
  const auto most = static_cast<uint64_t>(args.number("max-size") * kGb);
  check_sizes(files, most);
  std::string folder = args.text("output");
  if (folder.empty()) folder = config.model.substr(config.model.rfind('/') + 1);
  download::TransferOptions options{.retries = static_cast<int>(args.integer("retries")),
                                    .check_present = args.on("check")};
  size_t fetched = 0, failed = 0;
  uint64_t left = most;
  for (const download::RemoteFile& file : files) {
    const Progress bar = make_progress_bar(escaped(file.name, 60));
    uint64_t bytes = 0;
    options.max_bytes = left;
    const auto outcome = download::transfer(mirror, file, folder, options, [&](uint64_t done) {
      bytes = done;
      if (file.size) bar(done, *file.size);
    });
    left -= std::min(left, bytes);
    if (!outcome) fmt::print(stderr, "skiff: error: {}\n", escaped(outcome.error().what, 500));
    failed += !outcome;
    fetched += outcome && *outcome == download::Outcome::kFetched;
  }
  fmt::print("{}: {} files fetched, {} there already, {} failed\n", folder, fetched,
             files.size() - fetched - failed, failed);
  return failed > 0 ? 1 : 0;
}

}  // namespace skiff::apps
