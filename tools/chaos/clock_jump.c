/* Preloaded into the server: the time of day jumps by up to a day, forwards and backwards, about
 * twice a second of real time. The steady clock is left alone, as a real jump leaves it. */
#define _GNU_SOURCE
#include <stddef.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long jump(void) {
  struct timespec now;
  syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
  unsigned long n = (unsigned long)now.tv_sec * 2 + (now.tv_nsec > 500000000);
  n = (n ^ (n >> 7)) * 0x9e3779b97f4a7c15ul;
  return (long)(n >> 32) % 172800 - 86400;
}

int clock_gettime(clockid_t id, struct timespec *out) {
  const int rc = (int)syscall(SYS_clock_gettime, id, out);
  if (rc == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) out->tv_sec += jump();
  return rc;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
  const int rc = (int)syscall(SYS_gettimeofday, out, zone);
  if (rc == 0) out->tv_sec += jump();
  return rc;
}

time_t time(time_t *out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != NULL) *out = now.tv_sec;
  return now.tv_sec;
}
