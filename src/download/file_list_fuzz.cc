// Any answer of a mirror is read or refused; no name that was read leads out of the folder.
#include "download/file_list.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace skiff::download;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const auto& files : {read_hub_listing(text), read_md5_list(text), read_shard_index(text)}) {
    if (!files) continue;
    for (const RemoteFile& file : *files) {
      SKIFF_CHECK(!file.name.starts_with('/') &&
                  ("/" + file.name + "/").find("/../") == std::string::npos);
    }
  }
  matches(text.substr(0, size / 2), text.substr(size / 2));
  return 0;
}
