// download/transfer.h -- one file from a mirror into a folder. It is written as NAME.part, checked,
// and only then renamed to NAME. What broke off is taken up again, also by a later process where a
// checksum can tell that the parts belong together.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "download/mirror.h"

namespace skiff::download {

struct TransferOptions {
  int retries = 5;            // after trouble of the network, each after a longer pause
  double first_pause = 0.5;   // seconds; doubles each time, to at most 30
  bool check_present = true;  // a file that is there in the right size is read and checked
  uint64_t max_bytes = 0;     // the most that this file may have
};

enum class Outcome { kPresent, kFetched };

// `moved` is told how many bytes of the file are there, again and again; it may go back to 0.
// Errors name the file. A checksum that is wrong deletes what came.
Result<Outcome> transfer(Mirror& mirror, const RemoteFile& file, const std::string& folder,
                         const TransferOptions& options,
                         const std::function<void(uint64_t)>& moved);

}  // namespace skiff::download
