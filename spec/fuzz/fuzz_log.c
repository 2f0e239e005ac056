/* fuzz_log.c: any bytes as a session log. Every way of reading it must end,
 * and those that succeed must agree. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "eventlog.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const char *path) {
  struct dsh_log_info one, two;
  struct dsh_fold a, b, c;
  struct dsh_error err;
  bool full;
  int rc = dsh_log_verify(path, 1, &a, &one, &err);
  int rc2 = dsh_log_verify(path, 2, &b, &two, &err);
  int rc3 = dsh_log_fold(path, DSH_WANT_MODE, &c, &full, &err);
  if (rc != rc2)
    abort();
  if (rc == 0) {
    if (rc3 != 0 || one.events != two.events || one.lines != two.lines)
      abort();
    if (a.has_mode != b.has_mode || a.has_mode != c.has_mode ||
        (a.has_mode && (a.mode != b.mode || a.mode != c.mode)))
      abort();
    if (a.has_mode && a.mode != DSH_READ_ONLY && one.unverified == one.lines)
      abort(); /* nothing was verified, and yet it widened */
  }
  dsh_fold_free(&a);
  dsh_fold_free(&b);
  dsh_fold_free(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char path[64];
  int fd = memfd_create("log", MFD_CLOEXEC);
  if (fd < 0)
    return 0;
  if (write(fd, data, size) == (ssize_t)size) {
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    check(path);
  }
  close(fd);
  return 0;
}
