/* conffile.c: see conffile.h. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "conffile.h"

enum { LOCK_STEP_MS = 10 };

static int wait_for_lock(int fd) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  struct timespec step = {0, LOCK_STEP_MS * 1000000L};
  int waited;
  for (waited = 0; waited <= DSH_CONF_LOCK_MS; waited += LOCK_STEP_MS) {
    /* of the open file, not of the process: two contexts exclude too */
    if (fcntl(fd, F_OFD_SETLK, &lock) == 0)
      return 0;
    if (errno != EAGAIN && errno != EACCES)
      return -1;
    nanosleep(&step, NULL);
  }
  errno = EAGAIN;
  return -1;
}

int dsh_conf_lock(const char *path, struct dsh_error *err) {
  char name[PATH_MAX];
  int fd, errnum;
  if (snprintf(name, sizeof name, "%s.lock", path) >= (int)sizeof name)
    return dsh_fail_path(err, DSH_E_IO, ENAMETOOLONG, "lock", path,
                         "cannot lock %s", path);
  fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd >= 0 && wait_for_lock(fd) == 0)
    return fd;
  errnum = errno;
  if (fd >= 0)
    close(fd);
  return dsh_fail_path(err, DSH_E_IO, errnum, "lock", name, "cannot lock %s",
                       name);
}

static int write_all(int fd, const char *p, size_t len) {
  while (len) {
    ssize_t n = write(fd, p, len);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return -1;
    p += n;
    len -= (size_t)n;
  }
  return 0;
}

/* fsync of the directory that holds `path`; `path` is cut to do so. */
static int sync_directory(char *path) {
  char *slash = strrchr(path, '/');
  int fd, rc;
  if (slash)
    slash[slash == path] = '\0';
  fd = open(slash ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0)
    return -1;
  rc = fsync(fd);
  close(fd);
  return rc;
}

int dsh_conf_replace(const char *path, const void *data, size_t len,
                     struct dsh_error *err) {
  char target[PATH_MAX], temp[PATH_MAX + 16];
  int fd, errnum;
  if (!realpath(path, target)) {
    if (errno != ENOENT || strlen(path) >= sizeof target)
      return dsh_fail_path(err, DSH_E_IO, errno, "resolve", path,
                           "cannot write %s", path);
    strcpy(target, path);
  }
  snprintf(temp, sizeof temp, "%s.XXXXXX", target);
  fd = mkostemp(temp, O_CLOEXEC); /* 0600 by definition */
  if (fd < 0)
    return dsh_fail_path(err, DSH_E_IO, errno, "create", path,
                         "cannot write %s", path);
  if (write_all(fd, data, len) != 0 || fsync(fd) != 0) {
    errnum = errno;
    close(fd);
    unlink(temp);
    return dsh_fail_path(err, DSH_E_IO, errnum, "write", path,
                         "cannot write %s", path);
  }
  close(fd);
  if (rename(temp, target) != 0) {
    errnum = errno;
    unlink(temp);
    return dsh_fail_path(err, DSH_E_IO, errnum, "rename", path,
                         "cannot write %s", path);
  }
  if (sync_directory(target) != 0)
    return dsh_fail_path(err, DSH_E_IO, errno, "sync", path,
                         "cannot make %s durable", path);
  return 0;
}

int dsh_conf_mkdir(const char *path, struct dsh_error *err) {
  if (mkdir(path, 0700) == 0 || errno == EEXIST)
    return 0;
  return dsh_fail_path(err, DSH_E_IO, errno, "mkdir", path, "cannot make %s",
                       path);
}
