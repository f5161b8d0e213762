// gguf/gguf_files.h -- the files of a GGUF model: one, or the parts into which llama.cpp's
// gguf-split cuts it. Parts are named BASE-00001-of-00003.gguf and so on and lie beside each other;
// the keys split.no (from 0), split.count and split.tensors.count (of all parts) are in each, all
// other metadata in the first.
#pragma once
#include <string>
#include <vector>

#include "gguf/gguf.h"

namespace skiff {

// Returns the GGUF file that `path` names: itself, or that of a folder without config.json: its
// only one, or the first part where all are parts of one model. Empty if there is none. Throws a
// LoadError if there are several.
std::string gguf_file_of(const std::string& path);

struct GgufModel {
  GgufHeader header;               // the first file's metadata and the tensors of all files
  std::vector<std::string> files;  // where GgufTensor::file points; the first one is `path`
};

// Reads the headers of a file and of the parts beside it. Throws a LoadError that names the file:
// one that is broken, is not the first part, or lacks others; numbers, counts and names that
// contradict each other; and a tensor that two parts have.
GgufModel read_gguf(const std::string& path);

}  // namespace skiff
