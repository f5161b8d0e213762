// bench/text/corpus.h -- the texts and tokenizers that the tokenizer benchmark runs on.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace skiff::bench {

struct Text {
  std::string name, bytes;
};

// English prose of two kinds, Chinese prose and this repository's C++, each once. Empty, with a
// message, if `data` (a folder with text/) is not there.
std::vector<Text> read_corpus(const std::filesystem::path& data,
                              const std::filesystem::path& sources);

// The files of `from` in a new temporary folder, those that end in .gz unpacked; removed again by
// the destructor.
class UnpackedFolder {
 public:
  explicit UnpackedFolder(const std::filesystem::path& from);
  ~UnpackedFolder();
  UnpackedFolder(const UnpackedFolder&) = delete;
  UnpackedFolder& operator=(const UnpackedFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

std::string read_text(const std::filesystem::path& path);

}  // namespace skiff::bench
