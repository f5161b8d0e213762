#include "apps/chat/history_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>

namespace skiff::apps {
namespace {

namespace fs = std::filesystem;

// Uses one write(2), so that lines of two sessions do not mix.
bool write_file(const std::string& path, int flags, const std::string& bytes) {
  const int fd = open(path.c_str(), flags | O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return false;
  const bool whole = write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
  return close(fd) == 0 && whole;
}

bool make_private_folder(const fs::path& folder) {
  if (folder.empty() || fs::is_directory(folder)) return true;
  if (!make_private_folder(folder.parent_path())) return false;
  return mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST;
}

void rewrite(const std::string& path, const std::vector<std::string>& entries) {
  std::string bytes;
  for (const std::string& entry : entries) bytes += escaped_entry(entry) + "\n";
  const std::string fresh = path + ".new";
  if (write_file(fresh, O_TRUNC, bytes)) std::rename(fresh.c_str(), path.c_str());
}

}  // namespace

std::string history_path(const char* xdg_state_home, const char* home) {
  if (xdg_state_home && xdg_state_home[0] == '/')
    return std::string(xdg_state_home) + "/skiff/history";
  if (home && home[0] == '/') return std::string(home) + "/.local/state/skiff/history";
  return "";
}

std::string escaped_entry(std::string_view entry) {
  std::string out;
  for (const char c : entry) {
    if (c == '\\')
      out += "\\\\";
    else if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out;
}

std::string unescaped_entry(std::string_view line) {
  std::string out;
  for (size_t i = 0; i < line.size(); ++i) {
    const bool escape = line[i] == '\\' && i + 1 < line.size();
    if (escape) ++i;
    out += escape && line[i] == 'n' ? '\n' : line[i];
  }
  return out;
}

std::vector<std::string> HistoryFile::load() const {
  std::error_code error;
  if (path_.empty() || fs::file_size(path_, error) > kMaxBytes || error) return {};
  std::ifstream in(path_, std::ios::binary);
  std::vector<std::string> entries;
  for (std::string line; std::getline(in, line);)
    if (!line.empty() && line.size() <= 2 * kMaxEntryBytes)
      entries.push_back(unescaped_entry(line));
  const bool long_file = entries.size() > 2 * kMaxEntries;
  if (entries.size() > kMaxEntries)
    entries.erase(entries.begin(), entries.end() - static_cast<std::ptrdiff_t>(kMaxEntries));
  if (long_file) rewrite(path_, entries);
  return entries;
}

bool HistoryFile::append(const std::string& entry) const {
  if (path_.empty() || entry.empty() || entry.size() > kMaxEntryBytes) return true;
  return make_private_folder(fs::path(path_).parent_path()) &&
         write_file(path_, O_APPEND, escaped_entry(entry) + "\n");
}

}  // namespace skiff::apps
