/* dsh_probe_open.c: opening for writing, creating, truncating. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/openat2.h>

#include "dsh_probe.h"

static int open_as(struct probe_ctx *c, const char *name, int flags) {
  return openat(c->dfd, probe_at(c, name), flags | O_CLOEXEC, 0644);
}

static int open_write(struct probe_ctx *c) {
  return probe_write_fd(open_as(c, "f", O_WRONLY));
}

static int open_rdwr(struct probe_ctx *c) {
  return probe_write_fd(open_as(c, "f", O_RDWR));
}

static int open_append(struct probe_ctx *c) {
  return probe_write_fd(open_as(c, "f", O_WRONLY | O_APPEND));
}

static int open_trunc(struct probe_ctx *c) {
  return probe_write_fd(open_as(c, "f", O_WRONLY | O_TRUNC));
}

static int open_rdonly_trunc(struct probe_ctx *c) {
  int fd = open_as(c, "f", O_RDONLY | O_TRUNC);
  int rc = probe_rc(fd);
  if (fd >= 0)
    close(fd);
  return rc;
}

/* Access mode 3: checked as read and write, usable for ioctl only; with
 * O_TRUNC it still empties the file. */
static int open_mode3_trunc(struct probe_ctx *c) {
  int fd = open_as(c, "f", 3 | O_TRUNC);
  int rc = probe_rc(fd);
  if (fd >= 0)
    close(fd);
  return rc;
}

static int open_create(struct probe_ctx *c) {
  return probe_write_fd(open_as(c, "new", O_WRONLY | O_CREAT | O_EXCL));
}

static int open_create_rdonly(struct probe_ctx *c) {
  int fd = open_as(c, "new", O_RDONLY | O_CREAT);
  int rc = probe_rc(fd);
  if (fd >= 0)
    close(fd);
  return rc;
}

static int open_create_existing(struct probe_ctx *c) {
  return probe_write_fd(open_as(c, "f", O_WRONLY | O_CREAT));
}

static int open_creat(struct probe_ctx *c) {
#ifdef SYS_creat
  return probe_write_fd((int)syscall(SYS_creat, probe_plain(c, "new"), 0644));
#else
  return probe_write_fd(creat(probe_plain(c, "new"), 0644));
#endif
}

static int open_legacy(struct probe_ctx *c) {
#ifdef SYS_open
  return probe_write_fd((int)syscall(SYS_open, probe_plain(c, "f"), O_WRONLY,
                                     0));
#else
  (void)c;
  return PROBE_NO_CALL;
#endif
}

static int open_through_link(struct probe_ctx *c) {
  return probe_write_fd(open_as(c, "l", O_WRONLY));
}

static int how_write(struct probe_ctx *c, const char *name, uint64_t resolve,
                     int dfd, uint64_t flags) {
  struct open_how how = { .flags = O_WRONLY | O_CLOEXEC | flags,
                          .mode = flags & O_CREAT ? 0644u : 0u,
                          .resolve = resolve };
  (void)c;
  return probe_write_fd((int)syscall(SYS_openat2, dfd, name, &how,
                                     sizeof how));
}

static int open_openat2(struct probe_ctx *c) {
  return how_write(c, probe_at(c, "f"), 0, c->dfd, 0);
}

static int open_openat2_create(struct probe_ctx *c) {
  return how_write(c, probe_at(c, "new"), 0, c->dfd, O_CREAT | O_EXCL);
}

static int dir_of(struct probe_ctx *c) {
  return openat(c->dfd, probe_at(c, "."), O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static int open_beneath(struct probe_ctx *c) {
  int fd = dir_of(c);
  return fd < 0 ? errno : how_write(c, "f", RESOLVE_BENEATH, fd, 0);
}

static int open_in_root(struct probe_ctx *c) {
  int fd = dir_of(c);
  return fd < 0 ? errno : how_write(c, "/f", RESOLVE_IN_ROOT, fd, 0);
}

/* A directory opened for reading, then the file from it. */
static int open_from_readonly_dir(struct probe_ctx *c) {
  int fd = openat(c->dfd, probe_at(c, "."), O_RDONLY | O_DIRECTORY |
                  O_CLOEXEC);
  return fd < 0 ? errno
                : probe_write_fd(openat(fd, "f", O_WRONLY | O_CLOEXEC));
}

/* --- opened for less, opened again for more ------------------------------ */

static int reopen(struct probe_ctx *c, int flags, const char *where) {
  char path[96];
  int fd = open_as(c, "f", flags), rc;
  if (fd < 0)
    return errno;
  snprintf(path, sizeof path, "%s/%d", where, fd);
  rc = probe_write_fd(open(path, O_WRONLY | O_CLOEXEC));
  close(fd);
  return rc;
}

static int reopen_rdonly(struct probe_ctx *c) {
  return reopen(c, O_RDONLY, "/proc/self/fd");
}

static int reopen_path_only(struct probe_ctx *c) {
  return reopen(c, O_PATH, "/proc/self/fd");
}

static int reopen_thread_self(struct probe_ctx *c) {
  return reopen(c, O_RDONLY, "/proc/thread-self/fd");
}

static int reopen_dev_fd(struct probe_ctx *c) {
  return reopen(c, O_RDONLY, "/dev/fd");
}

static int reopen_truncate(struct probe_ctx *c) {
  char path[64];
  int fd = open_as(c, "f", O_RDONLY), rc;
  if (fd < 0)
    return errno;
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  rc = probe_rc(truncate(path, 3));
  close(fd);
  return rc;
}

/* --- files without a name ------------------------------------------------ */

static int tmpfile_in(struct probe_ctx *c) {
  return openat(c->dfd, probe_at(c, "."), O_TMPFILE | O_RDWR | O_CLOEXEC,
                0600);
}

static int open_tmpfile_link_fd(struct probe_ctx *c) {
  char path[64];
  int fd = tmpfile_in(c), rc;
  if (fd < 0)
    return errno;
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  rc = probe_rc(linkat(AT_FDCWD, path, c->dfd, probe_at(c, "new"),
                       AT_SYMLINK_FOLLOW));
  close(fd);
  return rc;
}

static int open_tmpfile_link_empty(struct probe_ctx *c) {
  int fd = tmpfile_in(c), rc;
  if (fd < 0)
    return errno;
  rc = probe_rc(linkat(fd, "", c->dfd, probe_at(c, "new"), AT_EMPTY_PATH));
  close(fd);
  return rc;
}

static int open_tmpfile_write(struct probe_ctx *c) {
  return probe_write_fd(tmpfile_in(c));
}

/* --- truncation ---------------------------------------------------------- */

static int open_truncate(struct probe_ctx *c) {
  return probe_rc(truncate(probe_plain(c, "f"), 3));
}

static int open_truncate_longer(struct probe_ctx *c) {
  return probe_rc(truncate(probe_plain(c, "f"), 4096));
}

static int open_ftruncate(struct probe_ctx *c) {
  int fd = open_as(c, "f", O_WRONLY), rc;
  if (fd < 0)
    return errno;
  rc = probe_rc(ftruncate(fd, 0));
  close(fd);
  return rc;
}

/* Refused by every kernel: the bare run fails too, so the cell is listed as
 * impossible. Kept to show that nothing changed that. */
static int open_ftruncate_rdonly(struct probe_ctx *c) {
  int fd = open_as(c, "f", O_RDONLY), rc;
  if (fd < 0)
    return errno;
  rc = probe_rc(ftruncate(fd, 0));
  close(fd);
  return rc;
}

static int open_fallocate(struct probe_ctx *c) {
  int fd = open_as(c, "f", O_RDWR), rc;
  if (fd < 0)
    return errno;
  rc = probe_rc(fallocate(fd, 0, 0, 8192));
  close(fd);
  return rc;
}

static int open_punch_hole(struct probe_ctx *c) {
  int fd = open_as(c, "f", O_RDWR), rc;
  if (fd < 0)
    return errno;
  rc = probe_rc(fallocate(fd, 1 | 2, 0, 4)); /* KEEP_SIZE | PUNCH_HOLE */
  close(fd);
  return rc;
}

static const struct probe_op op[] = {
  { "open-write", 'F', "write", OP_PATHS, open_write, NULL },
  { "open-rdwr", 'F', "write", OP_PATHS, open_rdwr, NULL },
  { "open-append", 'F', "write", OP_PATHS, open_append, NULL },
  { "open-trunc", 'F', "truncate", OP_PATHS, open_trunc, NULL },
  { "open-rdonly-trunc", 'F', "truncate", OP_PATHS, open_rdonly_trunc, NULL },
  { "open-mode3-trunc", 'F', "truncate", OP_PATHS, open_mode3_trunc, NULL },
  { "open-create", 'F', "create", OP_PATHS, open_create, NULL },
  { "open-create-rdonly", 'F', "create", OP_PATHS, open_create_rdonly, NULL },
  { "open-create-existing", 'F', "write", OP_PATHS, open_create_existing,
    NULL },
  { "open-legacy", 'F', "write", OP_PATHS, open_legacy, NULL },
  { "creat", 'F', "create", OP_PATHS, open_creat, NULL },
  { "open-through-link", 'F', "write", OP_PATHS, open_through_link, NULL },
  { "openat2-write", 'F', "write", OP_PATHS, open_openat2, NULL },
  { "openat2-create", 'F', "create", OP_PATHS, open_openat2_create, NULL },
  { "openat2-beneath", 'F', "write", OP_PATHS, open_beneath, NULL },
  { "openat2-in-root", 'F', "write", OP_PATHS, open_in_root, NULL },
  { "open-from-readonly-dir", 'F', "write", OP_PATHS, open_from_readonly_dir,
    NULL },
  { "reopen-rdonly", 'F', "descriptor", OP_PATHS, reopen_rdonly, NULL },
  { "reopen-path-only", 'F', "descriptor", OP_PATHS, reopen_path_only, NULL },
  { "reopen-thread-self", 'F', "descriptor", OP_PATHS, reopen_thread_self,
    NULL },
  { "reopen-dev-fd", 'F', "descriptor", OP_PATHS, reopen_dev_fd, NULL },
  { "reopen-truncate", 'F', "truncate", OP_PATHS, reopen_truncate, NULL },
  { "tmpfile-link-fd", 'F', "create", OP_PATHS, open_tmpfile_link_fd, NULL },
  { "tmpfile-link-empty-path", 'F', "create", OP_PATHS,
    open_tmpfile_link_empty, NULL },
  { "tmpfile-write", 'F', "create", OP_PATHS | OP_RETURN, open_tmpfile_write,
    NULL },
  { "truncate", 'F', "truncate", OP_PATHS, open_truncate, NULL },
  { "truncate-longer", 'F', "truncate", OP_PATHS, open_truncate_longer, NULL },
  { "ftruncate", 'F', "truncate", OP_PATHS, open_ftruncate, NULL },
  { "ftruncate-rdonly", 'F', "truncate", OP_PATHS, open_ftruncate_rdonly,
    NULL },
  { "fallocate", 'F', "write", OP_PATHS, open_fallocate, NULL },
  { "punch-hole", 'F', "write", OP_PATHS, open_punch_hole, NULL },
};

const struct probe_family probe_open = { op, PROBE_LEN(op) };
