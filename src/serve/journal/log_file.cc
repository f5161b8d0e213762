#include "serve/journal/log_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/load_error.h"
#include "base/log.h"

namespace skiff::journal {
namespace {

int open_to_append(const std::string& path) {
  constexpr int kMode = 0640;
  return open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, kMode);
}

}  // namespace

LogFile::LogFile(std::string path) : path_(std::move(path)), file_(open_to_append(path_)) {
  if (file_ < 0) fail_load("--request-log {}: {}", path_, std::strerror(errno));
}

LogFile::~LogFile() {
  if (file_ >= 0) close(file_);
}

bool LogFile::append(const std::string& text) const {
  for (size_t done = 0; done < text.size();) {
    const ssize_t count = ::write(file_, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    done += static_cast<size_t>(count);
  }
  return true;
}

size_t LogFile::write(const std::vector<std::string>& lines) {
  if (reopens_.exchange(false)) {
    const int opened = open_to_append(path_);
    if (opened < 0)
      spdlog::error("--request-log {}: {}; the old file stays in use", path_, std::strerror(errno));
    else
      close(std::exchange(file_, opened));
  }
  std::string text;
  for (const std::string& line : lines) (text += line) += '\n';
  const bool good = append(text);
  if (!good && !troubled_)
    spdlog::error("--request-log {}: {}; lines are lost", path_, std::strerror(errno));
  troubled_ = !good;
  return good ? 0 : lines.size();
}

}  // namespace skiff::journal
