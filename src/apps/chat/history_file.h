// apps/chat/history_file.h -- what a person typed in earlier sessions: one entry per line, newlines
// and backslashes escaped. It is a convenience: whatever is wrong with it is no error of the
// program.
#pragma once
#include <string>
#include <vector>

namespace skiff {

// $XDG_STATE_HOME/skiff/history, else ~/.local/state/skiff/history; empty if neither is known.
// Relative paths do not count, as the XDG base directory specification asks.
std::string history_path(const char* xdg_state_home, const char* home);

class HistoryFile {
 public:
  static constexpr size_t kMaxEntries = 1000, kMaxBytes = 64 << 20, kMaxEntryBytes = 64 << 10;

  // An empty path keeps nothing.
  explicit HistoryFile(std::string path) : path_(std::move(path)) {}

  // The last kMaxEntries, oldest first; none if there is no file, or one above kMaxBytes. A file
  // that has grown to twice as many entries is cut to those.
  std::vector<std::string> load() const;
  // Created with mode 0600 if it is not there, its folders with 0700. Sessions that run at the same
  // time append one after the other. False if it cannot be written. Longer entries than
  // kMaxEntryBytes are left out.
  bool append(const std::string& entry) const;

 private:
  std::string path_;
};

std::string escaped_entry(std::string_view entry);
std::string unescaped_entry(std::string_view line);

}  // namespace skiff
