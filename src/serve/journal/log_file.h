// serve/journal/log_file.h -- a file to which lines are appended. One thread writes; any thread may
// ask for the file to be opened again.
#pragma once
#include <atomic>
#include <string>
#include <vector>

namespace skiff::journal {

class LogFile {
 public:
  // Creates the file if need be, for its owner and group. Throws LoadError.
  explicit LogFile(std::string path);
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  // Appends the lines and returns how many were lost; the first trouble of a row is logged. A full
  // disk may take a part of a line: that line is lost and spoils no later one.
  size_t write(const std::vector<std::string>& lines);
  void reopen() { reopens_ = true; }

 private:
  size_t append(const std::string& text) const;
  const std::string path_;
  int file_ = -1;
  std::atomic<bool> reopens_{false};
  bool troubled_ = false;
  bool inside_line_ = false;  // what was written last ends inside a line
};

}  // namespace skiff::journal
