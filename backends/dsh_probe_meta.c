/* dsh_probe_meta.c: what Landlock does not govern: modes, owners, times,
 * extended attributes, ACLs, file flags; by path and by descriptor. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>

#include <linux/fs.h>

#include "dsh_probe.h"

/* Newer than many headers; the numbers are the same on every architecture. */
enum {
  NR_fchmodat2 = 452, NR_setxattrat = 463, NR_removexattrat = 466,
  NR_file_setattr = 469
};

struct xattr_args { /* of setxattrat */
  uint64_t value;
  uint32_t size, flags;
};

struct file_attr { /* of file_setattr, first version */
  uint64_t xflags;
  uint32_t extsize, nextents, projid, cowextsize;
};

static int open_for(struct probe_ctx *c, const char *name, int flags) {
  return openat(c->dfd, probe_at(c, name), flags | O_CLOEXEC);
}

static int finish(int fd, long result) {
  int rc = probe_rc(result);
  close(fd);
  return rc;
}

/* --- modes --------------------------------------------------------------- */

static int do_chmod(struct probe_ctx *c) {
#ifdef SYS_chmod
  return probe_rc(syscall(SYS_chmod, probe_plain(c, "f"), 0600));
#else
  return probe_rc(chmod(probe_plain(c, "f"), 0600));
#endif
}

static int do_fchmodat(struct probe_ctx *c) {
  return probe_rc(syscall(SYS_fchmodat, c->dfd, probe_at(c, "f"), 0600));
}

static int do_fchmodat2(struct probe_ctx *c) {
  return probe_rc(syscall(NR_fchmodat2, c->dfd, probe_at(c, "f"), 0600, 0));
}

static int fchmodat2_empty(struct probe_ctx *c) {
  int fd = open_for(c, "f", O_PATH);
  return fd < 0 ? errno
                : finish(fd, syscall(NR_fchmodat2, fd, "", 0600,
                                     AT_EMPTY_PATH));
}

static int do_fchmod(struct probe_ctx *c) {
  int fd = open_for(c, "f", O_RDONLY);
  return fd < 0 ? errno : finish(fd, fchmod(fd, 0600));
}

static int chmod_magic(struct probe_ctx *c, int flags) {
  char path[64];
  int fd = open_for(c, "f", flags);
  if (fd < 0)
    return errno;
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  return finish(fd, syscall(SYS_fchmodat, AT_FDCWD, path, 0600));
}

static int chmod_by_fd(struct probe_ctx *c) {
  return chmod_magic(c, O_RDONLY);
}

static int chmod_by_path_fd(struct probe_ctx *c) {
  return chmod_magic(c, O_PATH);
}

static int chmod_link(struct probe_ctx *c) {
  return probe_rc(syscall(SYS_fchmodat, c->dfd, probe_at(c, "l"), 0600));
}

static int chmod_dir(struct probe_ctx *c) {
  return probe_rc(syscall(SYS_fchmodat, c->dfd, probe_at(c, "d"), 0700));
}

static int chmod_setuid(struct probe_ctx *c) {
  return probe_rc(syscall(SYS_fchmodat, c->dfd, probe_at(c, "f"), 04755));
}

static int fchmod_dir(struct probe_ctx *c) {
  int fd = open_for(c, "d", O_RDONLY | O_DIRECTORY);
  return fd < 0 ? errno : finish(fd, fchmod(fd, 0700));
}

/* --- owners: to the same ids, which still touches the file --------------- */

static int do_chown(struct probe_ctx *c) {
  return probe_rc(chown(probe_plain(c, "f"), geteuid(), getegid()));
}

static int do_lchown(struct probe_ctx *c) {
  return probe_rc(lchown(probe_plain(c, "l"), geteuid(), getegid()));
}

static int do_fchown(struct probe_ctx *c) {
  int fd = open_for(c, "f", O_RDONLY);
  return fd < 0 ? errno : finish(fd, fchown(fd, geteuid(), getegid()));
}

static int do_fchownat(struct probe_ctx *c) {
  return probe_rc(fchownat(c->dfd, probe_at(c, "f"), geteuid(), getegid(),
                           0));
}

static int fchownat_empty(struct probe_ctx *c) {
  int fd = open_for(c, "f", O_PATH);
  return fd < 0 ? errno
                : finish(fd, fchownat(fd, "", geteuid(), getegid(),
                                      AT_EMPTY_PATH));
}

/* Giving a file away needs CAP_CHOWN, which nothing confined keeps. */
static int chown_away(struct probe_ctx *c) {
  return probe_rc(fchownat(c->dfd, probe_at(c, "f"), 12345, 12345, 0));
}

/* --- times --------------------------------------------------------------- */

static int do_utimensat(struct probe_ctx *c) {
  return probe_rc(utimensat(c->dfd, probe_at(c, "f"), NULL, 0));
}

static int utimensat_set(struct probe_ctx *c) {
  struct timespec t[2] = { { 86400, 0 }, { 86400, 0 } };
  return probe_rc(utimensat(c->dfd, probe_at(c, "f"), t, 0));
}

static int utimensat_link(struct probe_ctx *c) {
  return probe_rc(utimensat(c->dfd, probe_at(c, "l"), NULL,
                            AT_SYMLINK_NOFOLLOW));
}

static int utimensat_dir(struct probe_ctx *c) {
  return probe_rc(utimensat(c->dfd, probe_at(c, "d"), NULL, 0));
}

static int do_futimens(struct probe_ctx *c) {
  int fd = open_for(c, "f", O_RDONLY);
  return fd < 0 ? errno : finish(fd, futimens(fd, NULL));
}

static int do_utime(struct probe_ctx *c) {
#ifdef SYS_utime
  return probe_rc(syscall(SYS_utime, probe_plain(c, "f"), NULL));
#else
  (void)c;
  return PROBE_NO_CALL;
#endif
}

static int do_utimes(struct probe_ctx *c) {
#ifdef SYS_utimes
  return probe_rc(syscall(SYS_utimes, probe_plain(c, "f"), NULL));
#else
  (void)c;
  return PROBE_NO_CALL;
#endif
}

static int do_futimesat(struct probe_ctx *c) {
#ifdef SYS_futimesat
  return probe_rc(syscall(SYS_futimesat, c->dfd, probe_at(c, "f"), NULL));
#else
  (void)c;
  return PROBE_NO_CALL;
#endif
}

/* --- extended attributes ------------------------------------------------- */

static int do_setxattr(struct probe_ctx *c) {
  return probe_rc(setxattr(probe_plain(c, "f"), "user.n", "w", 1, 0));
}

static int do_lsetxattr(struct probe_ctx *c) {
  return probe_rc(lsetxattr(probe_plain(c, "f"), "user.n", "w", 1, 0));
}

static int do_fsetxattr(struct probe_ctx *c) {
  int fd = open_for(c, "f", O_RDONLY);
  return fd < 0 ? errno : finish(fd, fsetxattr(fd, "user.n", "w", 1, 0));
}

static int do_setxattrat(struct probe_ctx *c) {
  struct xattr_args a = { (uint64_t)(uintptr_t)"w", 1, 0 };
  return probe_rc(syscall(NR_setxattrat, c->dfd, probe_at(c, "f"), 0,
                          "user.n", &a, sizeof a));
}

static int setxattrat_empty(struct probe_ctx *c) {
  struct xattr_args a = { (uint64_t)(uintptr_t)"w", 1, 0 };
  int fd = open_for(c, "f", O_RDONLY);
  return fd < 0 ? errno
                : finish(fd, syscall(NR_setxattrat, fd, "", AT_EMPTY_PATH,
                                     "user.n", &a, sizeof a));
}

static int do_removexattr(struct probe_ctx *c) {
  return probe_rc(removexattr(probe_plain(c, "f"), "user.k"));
}

static int do_lremovexattr(struct probe_ctx *c) {
  return probe_rc(lremovexattr(probe_plain(c, "f"), "user.k"));
}

static int do_fremovexattr(struct probe_ctx *c) {
  int fd = open_for(c, "f", O_RDONLY);
  return fd < 0 ? errno : finish(fd, fremovexattr(fd, "user.k"));
}

static int do_removexattrat(struct probe_ctx *c) {
  return probe_rc(syscall(NR_removexattrat, c->dfd, probe_at(c, "f"), 0,
                          "user.k"));
}

static int setxattr_magic(struct probe_ctx *c) {
  char path[64];
  int fd = open_for(c, "f", O_PATH);
  if (fd < 0)
    return errno;
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  return finish(fd, setxattr(path, "user.n", "w", 1, 0));
}

static int setxattr_dir(struct probe_ctx *c) {
  return probe_rc(setxattr(probe_plain(c, "d"), "user.n", "w", 1, 0));
}

static int setxattr_trusted(struct probe_ctx *c) {
  return probe_rc(setxattr(probe_plain(c, "f"), "trusted.n", "w", 1, 0));
}

/* A file capability: version 2, CAP_NET_RAW. */
static int setxattr_capability(struct probe_ctx *c) {
  const uint32_t cap[5] = { 0x02000001u, 1u << 13, 0, 0, 0 };
  return probe_rc(setxattr(probe_plain(c, "f"), "security.capability", cap,
                           sizeof cap, 0));
}

/* POSIX ACL: version 2; user::rw- user:(own):rw- group::r-- mask::rw-
 * other::r--. */
static int set_acl(struct probe_ctx *c) {
  struct { uint32_t version; struct { uint16_t tag, perm; uint32_t id; } e[5];
  } acl = { 2, { { 1, 6, ~0u }, { 2, 6, geteuid() }, { 4, 4, ~0u },
                 { 16, 6, ~0u }, { 32, 4, ~0u } } };
  return probe_rc(setxattr(probe_plain(c, "f"), "system.posix_acl_access",
                           &acl, sizeof acl, 0));
}

/* --- file flags ---------------------------------------------------------- */

static int set_flags(struct probe_ctx *c) {
  unsigned flags = 0;
  int fd = open_for(c, "f", O_RDONLY);
  if (fd < 0)
    return errno;
  if (probe_ioctl(fd, FS_IOC_GETFLAGS, &flags))
    return finish(fd, -1);
  flags |= FS_NODUMP_FL;
  return finish(fd, probe_ioctl(fd, FS_IOC_SETFLAGS, &flags));
}

/* The kernel takes 32 bits of the request: a high half must not hide it. */
static int set_flags_high_bits(struct probe_ctx *c) {
  unsigned flags = 0;
  int fd = open_for(c, "f", O_RDONLY);
  if (fd < 0)
    return errno;
  if (probe_ioctl(fd, FS_IOC_GETFLAGS, &flags))
    return finish(fd, -1);
  flags |= FS_NODUMP_FL;
  return finish(fd, syscall(SYS_ioctl, (long)fd,
                            0x700000000L | (long)FS_IOC_SETFLAGS, &flags));
}

static int set_fsxattr(struct probe_ctx *c) {
  struct fsxattr x;
  int fd = open_for(c, "f", O_RDONLY);
  if (fd < 0)
    return errno;
  if (probe_ioctl(fd, FS_IOC_FSGETXATTR, &x))
    return finish(fd, -1);
  x.fsx_xflags |= FS_XFLAG_NODUMP;
  return finish(fd, probe_ioctl(fd, FS_IOC_FSSETXATTR, &x));
}

static int set_version(struct probe_ctx *c) {
  int version = 4711, fd = open_for(c, "f", O_RDONLY);
  return fd < 0 ? errno
                : finish(fd, probe_ioctl(fd, FS_IOC_SETVERSION, &version));
}

static int do_file_setattr(struct probe_ctx *c) {
  struct file_attr a = { .xflags = FS_XFLAG_NODUMP };
  return probe_rc(syscall(NR_file_setattr, c->dfd, probe_at(c, "f"), &a,
                          sizeof a, 0));
}

/* Unprivileged users may not make a file immutable; root without
 * capabilities may not either. */
static int set_immutable(struct probe_ctx *c) {
  unsigned flags = 0;
  int fd = open_for(c, "f", O_RDONLY), rc;
  if (fd < 0)
    return errno;
  flags = FS_APPEND_FL;
  rc = probe_rc(probe_ioctl(fd, FS_IOC_SETFLAGS, &flags));
  close(fd);
  return rc;
}

static const struct probe_op op[] = {
  { "chmod", 'F', "metadata", OP_PATHS, do_chmod, NULL },
  { "fchmodat", 'F', "metadata", OP_PATHS, do_fchmodat, NULL },
  { "fchmodat2", 'F', "metadata", OP_PATHS | OP_EITHER, do_fchmodat2, NULL },
  { "fchmodat2-empty-path", 'F', "metadata", OP_PATHS | OP_EITHER,
    fchmodat2_empty, NULL },
  { "fchmod", 'F', "metadata", OP_PATHS, do_fchmod, NULL },
  { "chmod-by-fd-link", 'F', "metadata", OP_PATHS, chmod_by_fd, NULL },
  { "chmod-by-path-fd-link", 'F', "metadata", OP_PATHS, chmod_by_path_fd,
    NULL },
  { "chmod-through-link", 'F', "metadata", OP_PATHS, chmod_link, NULL },
  { "chmod-directory", 'F', "metadata", OP_PATHS, chmod_dir, NULL },
  { "chmod-setuid", 'F', "metadata", OP_PATHS | OP_EITHER, chmod_setuid,
    NULL },
  { "fchmod-directory", 'F', "metadata", OP_PATHS, fchmod_dir, NULL },
  { "chown", 'F', "metadata", OP_PATHS, do_chown, NULL },
  { "lchown", 'F', "metadata", OP_PATHS, do_lchown, NULL },
  { "fchown", 'F', "metadata", OP_PATHS, do_fchown, NULL },
  { "fchownat", 'F', "metadata", OP_PATHS, do_fchownat, NULL },
  { "fchownat-empty-path", 'F', "metadata", OP_PATHS, fchownat_empty, NULL },
  { "chown-away", 'F', "metadata", OP_PATHS | OP_NEVER, chown_away, NULL },
  { "utimensat-now", 'F', "metadata", OP_PATHS, do_utimensat, NULL },
  { "utimensat-set", 'F', "metadata", OP_PATHS, utimensat_set, NULL },
  { "utimensat-symlink", 'F', "metadata", OP_PATHS, utimensat_link, NULL },
  { "utimensat-directory", 'F', "metadata", OP_PATHS, utimensat_dir, NULL },
  { "futimens", 'F', "metadata", OP_PATHS, do_futimens, NULL },
  { "utime", 'F', "metadata", OP_PATHS, do_utime, NULL },
  { "utimes", 'F', "metadata", OP_PATHS, do_utimes, NULL },
  { "futimesat", 'F', "metadata", OP_PATHS, do_futimesat, NULL },
  { "setxattr", 'F', "metadata", OP_PATHS, do_setxattr, NULL },
  { "lsetxattr", 'F', "metadata", OP_PATHS, do_lsetxattr, NULL },
  { "fsetxattr", 'F', "metadata", OP_PATHS, do_fsetxattr, NULL },
  { "setxattrat", 'F', "metadata", OP_PATHS | OP_EITHER, do_setxattrat,
    NULL },
  { "setxattrat-empty-path", 'F', "metadata", OP_PATHS | OP_EITHER,
    setxattrat_empty, NULL },
  { "removexattr", 'F', "metadata", OP_PATHS, do_removexattr, NULL },
  { "lremovexattr", 'F', "metadata", OP_PATHS, do_lremovexattr, NULL },
  { "fremovexattr", 'F', "metadata", OP_PATHS, do_fremovexattr, NULL },
  { "removexattrat", 'F', "metadata", OP_PATHS | OP_EITHER, do_removexattrat,
    NULL },
  { "setxattr-by-fd-link", 'F', "metadata", OP_PATHS, setxattr_magic, NULL },
  { "setxattr-directory", 'F', "metadata", OP_PATHS, setxattr_dir, NULL },
  { "setxattr-trusted", 'F', "metadata", OP_PATHS | OP_NEVER,
    setxattr_trusted, NULL },
  { "setxattr-capability", 'F', "metadata", OP_PATHS | OP_NEVER,
    setxattr_capability, NULL },
  { "set-acl", 'F', "metadata", OP_PATHS, set_acl, NULL },
  { "ioctl-set-flags", 'F', "metadata", OP_PATHS | OP_EITHER, set_flags,
    NULL },
  { "ioctl-set-flags-high-bits", 'F', "metadata", OP_PATHS | OP_EITHER,
    set_flags_high_bits, NULL },
  { "ioctl-set-fsxattr", 'F', "metadata", OP_PATHS | OP_EITHER, set_fsxattr,
    NULL },
  { "ioctl-set-version", 'F', "metadata", OP_PATHS | OP_EITHER | OP_RETURN,
    set_version, NULL },
  { "file-setattr", 'F', "metadata", OP_PATHS | OP_EITHER, do_file_setattr,
    NULL },
  { "set-append-only", 'F', "metadata", OP_PATHS | OP_NEVER, set_immutable,
    NULL },
};

const struct probe_family probe_meta = { op, PROBE_LEN(op) };
