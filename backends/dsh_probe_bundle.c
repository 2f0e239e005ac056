/* dsh_probe_bundle.c: targets, and looking at them from outside. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <linux/fs.h>

#include "dsh_probe.h"

enum { OLD_TIME = 1000000000 }; /* 2001: any touch shows */

int probe_ioctl(int fd, unsigned long request, void *arg) {
  return (int)syscall(SYS_ioctl, (long)fd, request, arg);
}

/* --- removing ------------------------------------------------------------ */

/* An append-only file: the bare run of root made it so. */
static int remove_flagged(int dir, const char *name) {
  unsigned none = 0;
  int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return -1;
  (void)probe_ioctl(fd, FS_IOC_SETFLAGS, &none);
  close(fd);
  return unlinkat(dir, name, 0);
}

static int remove_at(int dir, const char *name) {
  struct dirent *e;
  DIR *d;
  int fd;
  if (!unlinkat(dir, name, 0) || errno == ENOENT)
    return 0;
  if (errno != EISDIR && (errno != EPERM || !remove_flagged(dir, name)))
    return errno == EPERM ? 0 : -1;
  (void)fchmodat(dir, name, 0700, 0);
  fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0)
    return -1;
  if (!(d = fdopendir(fd))) {
    close(fd);
    return -1;
  }
  while ((e = readdir(d)))
    if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
      (void)remove_at(dirfd(d), e->d_name);
  closedir(d);
  return unlinkat(dir, name, AT_REMOVEDIR);
}

/* --- making and repairing --------------------------------------------- */

static void drop_xattrs(int fd) {
  char names[1024];
  ssize_t n = flistxattr(fd, names, sizeof names);
  for (ssize_t i = 0; i < n; i += (ssize_t)strlen(names + i) + 1)
    (void)fremovexattr(fd, names + i);
}

/* Brings an open file into the state that every operation starts from. */
static int set_file(int fd, const char *text) {
  struct timespec old[2] = { { OLD_TIME, 0 }, { OLD_TIME, 0 } };
  struct stat st;
  size_t len = strlen(text);
  /* never to length 0: freeing the block waits for the disk */
  if (pwrite(fd, text, len, 0) < 0 || fstat(fd, &st) ||
      (st.st_size != (off_t)len && ftruncate(fd, (off_t)len)) ||
      fchown(fd, geteuid(), getegid()) || fchmod(fd, 0644))
    return errno;
  drop_xattrs(fd);
  (void)fsetxattr(fd, "user.k", "v", 1, 0); /* where the file system can */
  return futimens(fd, old) ? errno : 0;
}

/* Makes the file, or repairs it: making one costs fifty times as much. */
static int put_file(int dir, const char *name, const char *text) {
  unsigned none = 0;
  struct stat st;
  int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  int rc = 0;
  if (fd >= 0) {
    if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_nlink != 1)
      rc = -1;
    else
      (void)probe_ioctl(fd, FS_IOC_SETFLAGS, &none);
    (void)fchmod(fd, 0644);
    close(fd);
  }
  if (rc)
    (void)remove_at(dir, name);
  fd = openat(dir, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (fd < 0 && !remove_at(dir, name))
    fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0)
    return errno;
  rc = set_file(fd, text);
  close(fd);
  return rc;
}

static bool listed(const char *name, const char *const *keep) {
  for (; *keep; keep++)
    if (!strcmp(name, *keep))
      return true;
  return false;
}

/* A directory with nothing in it but what is to stay; opened. */
static int put_dir(int dir, const char *name, const char *const *keep) {
  struct dirent *e;
  struct stat st;
  int fd;
  DIR *d;
  if (!fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) && !S_ISDIR(st.st_mode))
    (void)remove_at(dir, name);
  if (mkdirat(dir, name, 0755) && errno != EEXIST)
    return -1;
  fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0)
    return -1;
  if (fchmod(fd, 0755) || !(d = fdopendir(dup(fd)))) {
    close(fd);
    return -1;
  }
  drop_xattrs(fd);
  while ((e = readdir(d)))
    if (!listed(e->d_name, keep))
      (void)remove_at(fd, e->d_name);
  closedir(d);
  return fd;
}

static int put_link(int dir) {
  char to[8];
  if (readlinkat(dir, "l", to, sizeof to) == 1 && to[0] == 'f')
    return 0;
  (void)remove_at(dir, "l");
  return symlinkat("f", dir, "l") ? errno : 0;
}

static int fill(int dir) {
  static const char *const none[] = { ".", "..", NULL };
  static const char *const deep[] = { ".", "..", "x", NULL };
  int rc = put_file(dir, "f", PROBE_FILE_TEXT), sub;
  if (!rc)
    rc = put_file(dir, "g", "another text\n");
  if (!rc)
    rc = put_link(dir);
  if (rc)
    return rc;
  if ((sub = put_dir(dir, "d", none)) < 0)
    return errno;
  close(sub);
  if ((sub = put_dir(dir, "t", deep)) < 0)
    return errno;
  rc = put_file(sub, "x", "deep\n");
  close(sub);
  return rc;
}

int probe_bundle_make(const char *dir) {
  static const char *const keep[] = { ".", "..", "f", "g", "d", "t", "l",
                                      NULL };
  char via[PROBE_PATH_MAX + 8];
  int fd = put_dir(AT_FDCWD, dir, keep), rc;
  if (fd < 0)
    return errno;
  snprintf(via, sizeof via, "%s.via", dir);
  rc = symlink(dir, via) && errno != EEXIST ? errno : fill(fd);
  close(fd);
  return rc;
}

/* --- looking ------------------------------------------------------------- */

static uint64_t mix(uint64_t h, const void *data, size_t n) {
  const unsigned char *p = data; /* FNV-1a */
  for (size_t i = 0; i < n; i++)
    h = (h ^ p[i]) * 1099511628211ull;
  return h;
}

static uint64_t mix_stat(uint64_t h, const struct stat *st) {
  const uint64_t facts[] = {
    (uint64_t)st->st_ino,          (uint64_t)st->st_dev,
    (uint64_t)st->st_mode,         (uint64_t)st->st_nlink,
    (uint64_t)st->st_uid,          (uint64_t)st->st_gid,
    (uint64_t)st->st_size,         (uint64_t)st->st_rdev,
    (uint64_t)st->st_mtim.tv_sec,  (uint64_t)st->st_mtim.tv_nsec,
    (uint64_t)st->st_ctim.tv_sec,  (uint64_t)st->st_ctim.tv_nsec,
  };
  return mix(h, facts, sizeof facts);
}

static uint64_t mix_content(uint64_t h, int fd) {
  char buf[4096];
  unsigned flags = 0;
  ssize_t n;
  while ((n = read(fd, buf, sizeof buf)) > 0)
    h = mix(h, buf, (size_t)n);
  if (!probe_ioctl(fd, FS_IOC_GETFLAGS, &flags))
    h = mix(h, &flags, sizeof flags);
  n = flistxattr(fd, buf, sizeof buf);
  return n > 0 ? mix(h, buf, (size_t)n) : h;
}

static uint64_t look_at(uint64_t h, int dir, const char *name, int depth);

static uint64_t look_dir(uint64_t h, int fd, int depth) {
  DIR *d = fdopendir(fd);
  struct dirent *e;
  uint64_t sum = 0; /* readdir's order does not matter */
  if (!d) {
    close(fd);
    return h;
  }
  while ((e = readdir(d)))
    if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
      sum += look_at(14695981039346656037ull, dirfd(d), e->d_name, depth + 1);
  closedir(d);
  return mix(h, &sum, sizeof sum);
}

static uint64_t look_at(uint64_t h, int dir, const char *name, int depth) {
  struct stat st;
  int fd;
  h = mix(h, name, strlen(name));
  if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW))
    return mix(h, &errno, sizeof errno);
  h = mix_stat(h, &st);
  if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
    return h;
  fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return h;
  if (S_ISDIR(st.st_mode) && depth < 4)
    return look_dir(h, fd, depth);
  h = mix_content(h, fd);
  close(fd);
  return h;
}

uint64_t probe_bundle_look(const char *dir) {
  return look_at(14695981039346656037ull, AT_FDCWD, dir, 0);
}

int probe_remove_tree(const char *path) {
  return remove_at(AT_FDCWD, path);
}
