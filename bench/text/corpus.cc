#include "corpus.h"

#include <stdlib.h>
#include <zlib.h>

#include <algorithm>
#include <fstream>

namespace skiff::bench {
namespace fs = std::filesystem;
namespace {

// Returns all sources below `folder` in the order of their names.
std::string read_sources(const fs::path& folder) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.path().extension() == ".cc") paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::string out;
  for (const fs::path& path : paths) out += read_text(path);
  return out;
}

}  // namespace

std::string read_text(const fs::path& path) {
  gzFile file = gzopen(path.c_str(), "rb");  // also reads files that are not compressed
  std::string out, chunk(1 << 20, '\0');
  if (!file) return out;
  for (int got; (got = gzread(file, chunk.data(), static_cast<unsigned>(chunk.size()))) > 0;)
    out.append(chunk, 0, static_cast<size_t>(got));
  gzclose(file);
  return out;
}

std::vector<Text> read_corpus(const fs::path& data, const fs::path& sources) {
  std::vector<Text> texts;
  for (const char* name : {"tinyshakespeare.txt", "botchan.txt", "xiyouji.txt.gz"})
    if (std::string bytes = read_text(data / "text" / name); !bytes.empty())
      texts.push_back({fs::path(name).stem().stem().string(), std::move(bytes)});
  texts.push_back({"source code", read_sources(sources)});
  return texts;
}

UnpackedFolder::UnpackedFolder(const fs::path& from) {
  std::string name = (fs::temp_directory_path() / "bench-tokenizer-XXXXXX").string();
  path_ = mkdtemp(name.data());
  for (const auto& entry : fs::directory_iterator(from)) {
    const fs::path& path = entry.path();
    const fs::path file = path.extension() == ".gz" ? path.stem() : path.filename();
    std::ofstream(path_ / file, std::ios::binary) << read_text(path);
  }
}

UnpackedFolder::~UnpackedFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace skiff::bench
