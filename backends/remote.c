/* remote.c: what another process meant, looked up from the keeper: its
 * strings, the objects its descriptors and paths name. Nothing here trusts
 * what it read to stay the same: callers decide on the opened object. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "launch.h"

enum { PAGE = 4096, PATH_BYTES = 4096 };

int remote_bytes(pid_t pid, uint64_t address, void *out, size_t size) {
  struct iovec local = {out, size};
  struct iovec remote = {(void *)(uintptr_t)address, size};
  ssize_t n = process_vm_readv(pid, &local, 1, &remote, 1, 0);
  if (n < 0)
    return -errno;
  return (size_t)n == size ? 0 : -EFAULT;
}

int remote_string(pid_t pid, uint64_t address, char *out, int size) {
  int have = 0;
  while (have < size) {
    /* Never across a page: the next one may not be mapped. */
    size_t chunk = PAGE - (address + (uint64_t)have) % PAGE;
    struct iovec local = {out + have, chunk};
    struct iovec remote = {(void *)(uintptr_t)(address + (uint64_t)have),
                           chunk};
    ssize_t n;
    char *end;
    if (chunk > (size_t)(size - have))
      local.iov_len = remote.iov_len = (size_t)(size - have);
    n = process_vm_readv(pid, &local, 1, &remote, 1, 0);
    if (n <= 0)
      return n < 0 ? -errno : -EFAULT;
    end = memchr(out + have, '\0', (size_t)n);
    if (end)
      return (int)(end - out);
    have += (int)n;
  }
  return -ENAMETOOLONG;
}

/* The process that a thread belongs to; 0 if it is gone. */
pid_t remote_leader(pid_t tid) {
  char path[48], text[512];
  const char *p;
  ssize_t n;
  int fd;
  snprintf(path, sizeof path, "/proc/%d/status", (int)tid);
  fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return 0;
  n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0)
    return 0;
  text[n] = '\0';
  p = strstr(text, "\nTgid:");
  return p ? (pid_t)atoi(p + 6) : 0;
}

void remote_comm(pid_t pid, char out[16]) {
  char path[48];
  ssize_t n;
  int fd;
  snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
  out[0] = '\0';
  fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return;
  n = read(fd, out, 15);
  close(fd);
  out[n > 0 ? n : 0] = '\0';
  out[strcspn(out, "\n")] = '\0';
}

/* Paths that mean the caller's own process are given its number; our own
 * "self" is somebody else. Links that lead there from elsewhere end at our
 * own descriptors, of which none is a granted object that the caller could
 * not reach anyway. */
static const char *not_our_self(pid_t pid, const char *path, char *room) {
  static const struct {
    const char *prefix, *to;
  } known[] = {{"/proc/self", ""},     {"/proc/thread-self", ""},
               {"/dev/fd", "/fd"},     {"/dev/stdin", "/fd/0"},
               {"/dev/stdout", "/fd/1"}, {"/dev/stderr", "/fd/2"}};
  size_t i;
  for (i = 0; i < sizeof known / sizeof *known; i++) {
    size_t n = strlen(known[i].prefix);
    if (strncmp(path, known[i].prefix, n) == 0 &&
        (path[n] == '/' || path[n] == '\0')) {
      snprintf(room, PATH_BYTES, "/proc/%d%s%s", (int)pid, known[i].to,
               path + n);
      return room;
    }
  }
  return path;
}

/* A command that changed its root (in a user namespace of its own) names
 * other things than we would open: not served. */
static bool same_root(pid_t pid) {
  char path[48];
  struct stat a, b;
  snprintf(path, sizeof path, "/proc/%d/root", (int)pid);
  return stat(path, &a) == 0 && stat("/", &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino;
}

static int open_base(pid_t pid, int dirfd) {
  char path[48];
  int fd;
  if (dirfd == AT_FDCWD)
    snprintf(path, sizeof path, "/proc/%d/cwd", (int)pid);
  else
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, dirfd);
  fd = open(path, O_PATH | O_CLOEXEC);
  if (fd < 0)
    return errno == ENOENT && dirfd != AT_FDCWD ? -EBADF : -errno;
  return fd;
}

int remote_open(pid_t pid, int dirfd, const char *path, bool follow) {
  static char room[PATH_BYTES];
  int base = AT_FDCWD, fd;
  int flags = O_PATH | O_CLOEXEC | (follow ? 0 : O_NOFOLLOW);
  if (!*path)
    return open_base(pid, dirfd);
  if (!same_root(pid))
    return -EPERM;
  if (*path == '/')
    path = not_our_self(pid, path, room);
  else if ((base = open_base(pid, dirfd)) < 0)
    return base;
  fd = openat(base, path, flags);
  if (fd < 0)
    fd = -errno;
  if (base != AT_FDCWD)
    close(base);
  return fd;
}

int fd_path(int fd, char *out, int size) {
  char link[32];
  ssize_t n;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  n = readlink(link, out, (size_t)size - 1);
  if (n < 0)
    return -errno;
  out[n] = '\0';
  return (int)n;
}

static bool same_object(int a, int b) {
  struct stat sa, sb;
  return fstat(a, &sa) == 0 && fstat(b, &sb) == 0 && sa.st_dev == sb.st_dev &&
         sa.st_ino == sb.st_ino;
}

/* What of `path` lies below root `i`: "" for the root itself, NULL when it is
 * elsewhere. A hint only. */
static const char *below(const struct run *r, int i, const char *path) {
  char root[PATH_BYTES];
  int n = fd_path(r->launch->rw.fd[i], root, sizeof root);
  if (n < 0 || strncmp(path, root, (size_t)n) != 0)
    return NULL;
  if (n > 1 && path[n] && path[n] != '/')
    return NULL;
  path += n;
  while (*path == '/')
    path++;
  return path;
}

/* Opened again from the root down, without following any link, and compared:
 * the name is a hint, the object decides. */
static int beneath(const struct run *r, int i, int fd, const char *path) {
  static const struct dsh_open_how how = {
      O_PATH | O_CLOEXEC | O_NOFOLLOW, 0,
      DSH_RESOLVE_BENEATH | DSH_RESOLVE_NO_SYMLINKS |
          DSH_RESOLVE_NO_MAGICLINKS};
  const char *rest = below(r, i, path);
  int again;
  if (!rest)
    return -EROFS;
  if (*rest)
    again = (int)syscall(DSH_NR_openat2, r->launch->rw.fd[i], rest, &how,
                         sizeof how);
  else
    again = fcntl(r->launch->rw.fd[i], F_DUPFD_CLOEXEC, 0);
  if (again < 0)
    return -EROFS;
  if (same_object(again, fd))
    return again;
  close(again);
  return -EROFS;
}

/* A pipe, a socket, a memory file, a file of a granted root that has no name
 * any more: nothing that outlives the run can be reached by its metadata. */
static bool is_nameless(const struct run *r, const char *path,
                        const struct stat *st) {
  int i;
  if (path[0] != '/')
    return true;
  if (st->st_nlink != 0 || S_ISDIR(st->st_mode))
    return false;
  if (strncmp(path, "/memfd:", 7) == 0)
    return true;
  for (i = 0; i < r->launch->rw.n; i++)
    if (below(r, i, path))
      return true;
  return false;
}

int granted_open(const struct run *r, int fd) {
  char path[PATH_BYTES];
  struct stat st;
  int i, n = fd_path(fd, path, sizeof path);
  if (n < 0)
    return n;
  if (fstat(fd, &st) != 0)
    return -errno;
  if (is_nameless(r, path, &st))
    return fcntl(fd, F_DUPFD_CLOEXEC, 0);
  for (i = 0; i < r->launch->rw.n; i++) {
    int again = beneath(r, i, fd, path);
    if (again >= 0)
      return again;
  }
  return -EROFS;
}
