// apps/chat/history_file.h -- what a person typed in earlier sessions: one entry per line, newlines
// and backslashes escaped. A history that cannot be read or written never fails the program.
#pragma once
#include <string>
#include <vector>

namespace skiff::apps {

// Returns $XDG_STATE_HOME/skiff/history, else ~/.local/state/skiff/history; empty if neither is
// known. Relative paths are ignored, as the XDG base directory specification asks.
std::string history_path(const char* xdg_state_home, const char* home);

class HistoryFile {
 public:
  static constexpr size_t kMaxEntries = 1000, kMaxBytes = 64 << 20, kMaxEntryBytes = 64 << 10;

  // An empty path keeps nothing.
  explicit HistoryFile(std::string path) : path_(std::move(path)) {}

  // Returns the last kMaxEntries entries, oldest first; none if there is no file, or one above
  // kMaxBytes. A file that has grown to twice kMaxEntries is cut to those entries.
  std::vector<std::string> load() const;
  // Appends an entry. Creates the file with mode 0600 and its folders with 0700. Sessions that run
  // at the same time append one after the other. Returns false if the file cannot be written.
  // Entries longer than kMaxEntryBytes are left out.
  bool append(const std::string& entry) const;

 private:
  std::string path_;
};

std::string escaped_entry(std::string_view entry);
std::string unescaped_entry(std::string_view line);

}  // namespace skiff::apps
