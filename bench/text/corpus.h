// bench/text/corpus.h -- the texts and tokenizers of the tokenizer benchmark.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace skiff::bench {

struct Text {
  std::string name, bytes;
};

// Returns two English texts, a Chinese one and this repository's C++. Prints a message and returns
// nothing if `data` (a folder with text/) is not there.
std::vector<Text> read_corpus(const std::filesystem::path& data,
                              const std::filesystem::path& sources);

// Copies the files of `from` into a new temporary folder and decompresses those that end in .gz;
// the destructor removes the folder.
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
