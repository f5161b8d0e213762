#include "apps/chat/line_editor.h"

#include <histedit.h>
#include <langinfo.h>
#include <unistd.h>

#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <optional>

#include "apps/chat/history_file.h"
#include "base/load_error.h"
#include "base/utf8.h"

namespace skiff::apps {
namespace {

constexpr size_t kMaxPaste = 1 << 20;  // characters; the rest of a paste is dropped
constexpr wchar_t kPasteEnd[] = L"\x1b[201~";
constexpr size_t kPasteEndLength = 6;

// wchar_t holds code points here, whatever the locale.
std::wstring widened(std::string_view text) {
  std::wstring wide;
  for (size_t at = 0; at < text.size();) wide += static_cast<wchar_t>(utf8_next(text, &at));
  return wide;
}

std::string narrowed(std::wstring_view wide) {
  std::string text;
  for (const wchar_t c : wide) utf8_append(text, static_cast<char32_t>(c));
  return text;
}

// libedit asks the locale how wide characters are.
void need_utf8_locale() {
  std::setlocale(LC_CTYPE, "");
  if (std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
}

void print(const char* bytes) {
  std::fputs(bytes, stdout);
  std::fflush(stdout);
}

class LineEditor : public LineSource {
 public:
  LineEditor(ChatSignals& signals, const std::vector<std::string>& history, Completion completion);
  ~LineEditor() override;
  LineRead read(std::string_view prompt) override;
  void remember(const std::string& entry) override;

 private:
  static LineEditor& of(EditLine* edit);
  static wchar_t* prompt_of(EditLine* edit) { return of(edit).prompt_.data(); }
  static int next_of(EditLine* edit, wchar_t* c) { return of(edit).next(c); }
  static unsigned char paste_of(EditLine* edit, int) { return of(edit).paste(); }
  static unsigned char complete_of(EditLine* edit, int) { return of(edit).complete(); }

  int next(wchar_t* c);
  int read_character(wchar_t* c);
  bool heed(int signal);  // returns false if the line has ended
  void suspend();
  unsigned char paste();
  unsigned char complete();
  void bind_keys();

  ChatSignals& signals_;
  const Completion completion_;
  EditLine* edit_ = nullptr;
  HistoryW* history_ = nullptr;
  std::wstring prompt_;
  LineEnd why_ = LineEnd::kClosed;
};

LineEditor& LineEditor::of(EditLine* edit) {
  void* self = nullptr;
  el_wget(edit, EL_CLIENTDATA, &self);
  return *static_cast<LineEditor*>(self);
}

LineEditor::LineEditor(ChatSignals& signals, const std::vector<std::string>& history,
                       Completion completion)
    : signals_(signals), completion_(std::move(completion)) {
  need_utf8_locale();
  edit_ = el_init("skiff", stdin, stdout, stderr);
  history_ = history_winit();
  if (!edit_ || !history_) fail_load("the terminal cannot be set up (libedit); is TERM right?");
  HistEventW event;
  history_w(history_, &event, H_SETSIZE, static_cast<int>(HistoryFile::kMaxEntries));
  history_w(history_, &event, H_SETUNIQUE, 1);
  for (const std::string& entry : history) remember(entry);
  el_wset(edit_, EL_CLIENTDATA, this);
  el_wset(edit_, EL_PROMPT, prompt_of);
  el_wset(edit_, EL_GETCFN, next_of);
  el_wset(edit_, EL_HIST, history_w, history_);
  el_wset(edit_, EL_EDITOR, L"emacs");
  el_source(edit_, nullptr);
  bind_keys();
}

LineEditor::~LineEditor() {
  if (edit_) el_end(edit_);
  if (history_) history_wend(history_);
}

void LineEditor::bind_keys() {
  el_wset(edit_, EL_ADDFN, L"skiff-paste", L"insert what the terminal pastes", paste_of);
  el_wset(edit_, EL_ADDFN, L"skiff-complete", L"complete a command", complete_of);
  el_wset(edit_, EL_BIND, L"\\e[200~", L"skiff-paste", nullptr);
  el_wset(edit_, EL_BIND, L"\\t", L"skiff-complete", nullptr);
}

LineRead LineEditor::read(std::string_view prompt) {
  prompt_ = widened(prompt);
  why_ = LineEnd::kClosed;
  // Runs before the prompt is printed, so that no key comes too early for the editor.
  el_wset(edit_, EL_PREP_TERM, 1);
  print("\x1b[?2004h");
  int count = 0;
  const wchar_t* line = el_wgets(edit_, &count);
  print("\x1b[?2004l");
  if (!line || count <= 0) return {why_, ""};
  std::wstring_view text(line, static_cast<size_t>(count));
  if (text.ends_with(L'\n')) text.remove_suffix(1);
  return {LineEnd::kLine, narrowed(text)};
}

void LineEditor::remember(const std::string& entry) {
  HistEventW event;
  history_w(history_, &event, H_ENTER, widened(entry).c_str());
}

int LineEditor::next(wchar_t* c) {
  for (;;) {
    if (wait_for_either(signals_, STDIN_FILENO) == Woken::kReadable) return read_character(c);
    if (!heed(signals_.take())) return -1;
  }
}

// Reads bytes one by one, because bytes after the line's end belong to the next reader.
int LineEditor::read_character(wchar_t* c) {
  std::string bytes;
  do {
    char byte = 0;
    if (::read(STDIN_FILENO, &byte, 1) != 1) return 0;
    bytes += byte;
  } while (utf8_length(bytes) == 0);
  size_t at = 0;
  *c = static_cast<wchar_t>(utf8_next(bytes, &at));
  return 1;
}

bool LineEditor::heed(int signal) {
  switch (signal) {
    case SIGINT:
      why_ = LineEnd::kInterrupt;
      return false;
    case SIGTERM:
    case SIGHUP:
      why_ = LineEnd::kLeave;
      return false;
    case SIGTSTP:
      suspend();
      return true;
    case SIGWINCH:
      el_resize(edit_);
      el_wset(edit_, EL_REFRESH);
      return true;
    default:
      return true;
  }
}

void LineEditor::suspend() {
  print("\x1b[?2004l");
  el_wset(edit_, EL_PREP_TERM, 0);
  std::raise(SIGSTOP);
  el_wset(edit_, EL_PREP_TERM, 1);
  print("\x1b[?2004h");
  el_wset(edit_, EL_REFRESH);
}

// Called for the sequence that opens a paste; reads up to the one that closes it.
unsigned char LineEditor::paste() {
  std::wstring text;
  std::wstring tail;  // the last characters, at most as many as the closing sequence has
  wchar_t c = 0;
  while (el_wgetc(edit_, &c) == 1) {
    tail += c;
    if (tail.size() > kPasteEndLength) tail.erase(0, 1);
    if (text.size() < kMaxPaste) text += c == L'\r' ? L'\n' : c;
    if (tail == kPasteEnd) break;
  }
  if (why_ != LineEnd::kClosed) return CC_EOF;
  if (tail == kPasteEnd && text.ends_with(kPasteEnd)) text.resize(text.size() - kPasteEndLength);
  std::erase_if(text,
                [](wchar_t d) { return (d < 0x20 && d != L'\n' && d != L'\t') || d == 0x7F; });
  if (el_winsertstr(edit_, text.c_str()) != 0) return CC_ERROR;
  return CC_REFRESH;
}

unsigned char LineEditor::complete() {
  const LineInfoW* line = el_wline(edit_);
  const std::wstring_view before(line->buffer, static_cast<size_t>(line->cursor - line->buffer));
  const std::string more = completion_(narrowed(before));
  if (more.empty() || el_winsertstr(edit_, widened(more).c_str()) != 0) return CC_ERROR;
  return CC_REFRESH;
}

}  // namespace

std::unique_ptr<LineSource> make_line_editor(ChatSignals& signals,
                                             const std::vector<std::string>& history,
                                             Completion completion) {
  return std::make_unique<LineEditor>(signals, history, std::move(completion));
}

}  // namespace skiff::apps
