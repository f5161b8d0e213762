#include "peer/local_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>

namespace skiff::peer {
namespace {

LocalSocket made() { return std::move(*LocalSocket::open()); }

ptrdiff_t open_files() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

TEST(LocalSocket, ALetterComesWithItsSenderAndItsFile) {
  const LocalSocket one = made(), other = made();
  EXPECT_NE(one.name(), other.name());
  EXPECT_FALSE(other.take());
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const Fd in(ends[0]);
  {
    const Fd out(ends[1]);
    ASSERT_TRUE(one.send(other.name(), "text", out.get()));
  }
  const auto letter = other.take();
  ASSERT_TRUE(letter);
  EXPECT_EQ(letter->text, "text");
  EXPECT_EQ(letter->from, one.name());
  EXPECT_EQ(letter->user, geteuid());
  ASSERT_TRUE(letter->file.open());
  EXPECT_NE(fcntl(letter->file.get(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_EQ(write(letter->file.get(), "x", 1), 1);
  char byte = 0;
  EXPECT_EQ(read(in.get(), &byte, 1), 1);
  ASSERT_TRUE(other.send(letter->from, std::string(2 * LocalSocket::kMaxText, 'a')));
  const auto answer = one.take();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->text, std::string(LocalSocket::kMaxText, 'a')) << "the rest is cut off";
  EXPECT_FALSE(answer->file.open());
}

TEST(LocalSocket, WhoIsNotThereIsNotReached) {
  const LocalSocket one = made();
  std::string gone;
  { gone = made().name(); }
  EXPECT_FALSE(one.send(gone, "text"));
  EXPECT_FALSE(one.send("", "text"));
  EXPECT_FALSE(one.send(std::string(200, 'x'), "text"));
}

// Files that nobody asked for do not pile up.
TEST(LocalSocket, ManyFilesAreClosed) {
  const LocalSocket one = made();
  const Fd stranger(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un mine{}, theirs{};
  mine.sun_family = theirs.sun_family = AF_UNIX;
  std::memcpy(theirs.sun_path + 1, one.name().data(), one.name().size());
  ASSERT_EQ(bind(stranger.get(), reinterpret_cast<sockaddr*>(&mine), sizeof mine.sun_family), 0);
  std::array<int, 8> files;
  files.fill(stranger.get());
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof files)] = {};
  iovec part{control, 1};
  msghdr message{};
  message.msg_name = &theirs;
  message.msg_namelen =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + one.name().size());
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof files);
  std::memcpy(CMSG_DATA(head), files.data(), sizeof files);
  const auto before = open_files();
  for (int i = 0; i < 5; ++i) {
    ASSERT_GE(sendmsg(stranger.get(), &message, 0), 0);
    EXPECT_TRUE(one.take());
  }
  EXPECT_EQ(open_files(), before);
}

}  // namespace
}  // namespace skiff::peer
