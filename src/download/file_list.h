// download/file_list.h -- which files a model's folder has on a mirror, and how each is checked.
// The lists come from the mirror: names that lead out of the folder are refused.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "download/digest.h"

namespace skiff::download {

struct RemoteFile {
  std::string name;  // relative, with '/' between folders
  std::optional<uint64_t> size;
  Checksum checksum;
};

// A list of at most 65,536 files. An error names the entry.
// The answer of the hub's API to /api/models/NAME/revision/REVISION?blobs=true: {"siblings":
// [{"rfilename", "size", "blobId", "lfs": {"sha256"}}]}.
Result<std::vector<RemoteFile>> read_hub_listing(std::string_view json);
// Lines FILE:MD5; blank ones are skipped.
Result<std::vector<RemoteFile>> read_md5_list(std::string_view text);
// The shards that model.safetensors.index.json names.
Result<std::vector<RemoteFile>> read_shard_index(std::string_view json);

// Returns whether a name stays in its folder on every system: no empty, "." or ".." part, no
// backslash, colon or control character, not absolute, at most 1,024 bytes.
bool is_safe_name(std::string_view name);

// Returns whether a name, or its last part, matches a pattern in which '*' stands for any text and
// '?' for one character.
bool matches(std::string_view pattern, std::string_view name);

}  // namespace skiff::download
