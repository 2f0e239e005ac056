/* dsh_probe_names.c: making, moving, linking and removing names. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include "dsh_probe.h"

enum { NOREPLACE = 1, EXCHANGE = 2, WHITEOUT = 4 }; /* of renameat2 */

static int do_mkdir(struct probe_ctx *c) {
  return probe_rc(mkdirat(c->dfd, probe_at(c, "new"), 0755));
}

static int do_mknod(struct probe_ctx *c, mode_t type, dev_t dev) {
  return probe_rc(mknodat(c->dfd, probe_at(c, "new"), type | 0644, dev));
}

static int mknod_file(struct probe_ctx *c) {
  return do_mknod(c, S_IFREG, 0);
}

static int mknod_fifo(struct probe_ctx *c) {
  return do_mknod(c, S_IFIFO, 0);
}

static int mknod_socket(struct probe_ctx *c) {
  return do_mknod(c, S_IFSOCK, 0);
}

static int mknod_char(struct probe_ctx *c) {
  return do_mknod(c, S_IFCHR, makedev(1, 3)); /* null */
}

/* Numbers that belong to no driver: never opened. */
static int mknod_block(struct probe_ctx *c) {
  return do_mknod(c, S_IFBLK, makedev(240, 77));
}

static int mknod_plain_fifo(struct probe_ctx *c) {
#ifdef SYS_mknod
  return probe_rc(syscall(SYS_mknod, probe_plain(c, "new"), S_IFIFO | 0644,
                          0));
#else
  return probe_rc(mknod(probe_plain(c, "new"), S_IFIFO | 0644, 0));
#endif
}

static int bind_socket(struct probe_ctx *c) {
  struct sockaddr_un a = { .sun_family = AF_UNIX };
  int fd, rc;
  /* 108 bytes hold few paths: go there first. */
  if (c->dfd == AT_FDCWD && chdir(c->prefix[0] ? c->prefix : "."))
    return errno;
  if (c->dfd != AT_FDCWD && fchdir(c->dfd))
    return errno;
  snprintf(a.sun_path, sizeof a.sun_path, "new");
  fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0)
    return errno;
  rc = probe_rc(bind(fd, (struct sockaddr *)&a, sizeof a));
  close(fd);
  return rc;
}

static int do_symlink(struct probe_ctx *c) {
  return probe_rc(symlinkat("f", c->dfd, probe_at(c, "new")));
}

static int do_link(struct probe_ctx *c) {
  return probe_rc(linkat(c->dfd, probe_at(c, "f"), c->dfd,
                         probe_at(c, "new"), 0));
}

static int link_by_fd(struct probe_ctx *c) {
  char path[64];
  int fd = openat(c->dfd, probe_at(c, "f"), O_RDONLY | O_CLOEXEC), rc;
  if (fd < 0)
    return errno;
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  rc = probe_rc(linkat(AT_FDCWD, path, c->dfd, probe_at(c, "new"),
                       AT_SYMLINK_FOLLOW));
  close(fd);
  return rc;
}

static int link_empty_path(struct probe_ctx *c) {
  int fd = openat(c->dfd, probe_at(c, "f"), O_PATH | O_CLOEXEC), rc;
  if (fd < 0)
    return errno;
  rc = probe_rc(linkat(fd, "", c->dfd, probe_at(c, "new"), AT_EMPTY_PATH));
  close(fd);
  return rc;
}

/* --- removing ------------------------------------------------------------ */

static int do_unlink(struct probe_ctx *c) {
  return probe_rc(unlink(probe_plain(c, "f")));
}

static int do_unlinkat(struct probe_ctx *c) {
  return probe_rc(unlinkat(c->dfd, probe_at(c, "f"), 0));
}

static int unlink_link(struct probe_ctx *c) {
  return probe_rc(unlinkat(c->dfd, probe_at(c, "l"), 0));
}

static int do_rmdir(struct probe_ctx *c) {
  return probe_rc(rmdir(probe_plain(c, "d")));
}

static int unlinkat_dir(struct probe_ctx *c) {
  return probe_rc(unlinkat(c->dfd, probe_at(c, "d"), AT_REMOVEDIR));
}

/* --- renaming ------------------------------------------------------------ */

static int rename2(struct probe_ctx *c, const char *from, const char *to,
                   unsigned flags) {
  return probe_rc(syscall(SYS_renameat2, c->dfd, probe_at(c, from), c->dfd,
                          probe_at(c, to), flags));
}

static int do_rename(struct probe_ctx *c) {
  const char *from = probe_plain(c, "f");
  return probe_rc(rename(from, probe_at(c, "new")));
}

static int do_renameat(struct probe_ctx *c) {
  return probe_rc(renameat(c->dfd, probe_at(c, "f"), c->dfd,
                           probe_at(c, "new")));
}

static int rename_over(struct probe_ctx *c) {
  return rename2(c, "g", "f", 0);
}

static int rename_exchange(struct probe_ctx *c) {
  return rename2(c, "f", "g", EXCHANGE);
}

static int rename_noreplace(struct probe_ctx *c) {
  return rename2(c, "f", "new", NOREPLACE);
}

static int rename_whiteout(struct probe_ctx *c) {
  return rename2(c, "f", "new", WHITEOUT);
}

static int rename_dir(struct probe_ctx *c) {
  return rename2(c, "t", "new", 0);
}

static int rename_into_dir(struct probe_ctx *c) {
  return rename2(c, "f", "d/f", 0);
}

static int rename_out_of_dir(struct probe_ctx *c) {
  return rename2(c, "t/x", "new", 0);
}

static int rename_over_dir(struct probe_ctx *c) {
  return rename2(c, "t", "d", 0);
}

static int exchange_dir_file(struct probe_ctx *c) {
  return rename2(c, "t", "f", EXCHANGE);
}

/* --- between two places -------------------------------------------------- */

static int pair_rename(struct probe_ctx *c) {
  return probe_rc(rename(probe_at(c, "f"), probe_other(c, "new")));
}

static int pair_rename_over(struct probe_ctx *c) {
  return probe_rc(rename(probe_at(c, "f"), probe_other(c, "f")));
}

static int pair_rename_dir(struct probe_ctx *c) {
  return probe_rc(rename(probe_at(c, "t"), probe_other(c, "new")));
}

static int pair_exchange(struct probe_ctx *c) {
  return probe_rc(syscall(SYS_renameat2, AT_FDCWD, probe_at(c, "f"), AT_FDCWD,
                          probe_other(c, "f"), EXCHANGE));
}

static int pair_link(struct probe_ctx *c) {
  return probe_rc(linkat(AT_FDCWD, probe_at(c, "f"), AT_FDCWD,
                         probe_other(c, "new"), 0));
}

static int pair_link_by_fd(struct probe_ctx *c) {
  char path[64];
  int fd = open(probe_at(c, "f"), O_RDONLY | O_CLOEXEC), rc;
  if (fd < 0)
    return errno;
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  rc = probe_rc(linkat(AT_FDCWD, path, AT_FDCWD, probe_other(c, "new"),
                       AT_SYMLINK_FOLLOW));
  close(fd);
  return rc;
}

/* Links planted inside that lead outside: what acts on our behalf must not
 * follow them. The target is the first place, the link lies in the second. */
static int planted_link_write(struct probe_ctx *c) {
  if (symlink(probe_at(c, "f"), probe_other(c, "planted")))
    return errno;
  return probe_write_fd(open(probe_other(c, "planted"),
                             O_WRONLY | O_CLOEXEC));
}

static int planted_link_chmod(struct probe_ctx *c) {
  if (symlink(probe_at(c, "f"), probe_other(c, "planted")))
    return errno;
  return probe_rc(chmod(probe_other(c, "planted"), 0600));
}

static int planted_dir_link_chmod(struct probe_ctx *c) {
  char path[PROBE_PATH_MAX + 64];
  if (symlink(probe_at(c, "."), probe_other(c, "planted")))
    return errno;
  snprintf(path, sizeof path, "%s", probe_other(c, "planted/f"));
  return probe_rc(chmod(path, 0600));
}

static int planted_dotdot_chmod(struct probe_ctx *c) {
  if (symlink(probe_at(c, "d"), probe_other(c, "planted")))
    return errno;
  return probe_rc(chmod(probe_other(c, "planted/../f"), 0600));
}

static const struct probe_op op[] = {
  { "mkdir", 'F', "create", OP_PATHS, do_mkdir, NULL },
  { "mknod-file", 'F', "create", OP_PATHS, mknod_file, NULL },
  { "mknod-fifo", 'F', "create", OP_PATHS, mknod_fifo, NULL },
  { "mknod-plain-fifo", 'F', "create", OP_PATHS, mknod_plain_fifo, NULL },
  { "mknod-socket", 'F', "create", OP_PATHS, mknod_socket, NULL },
  { "mknod-char-device", 'F', "create", OP_PATHS | OP_NEVER, mknod_char,
    NULL },
  { "mknod-block-device", 'F', "create", OP_PATHS | OP_NEVER, mknod_block,
    NULL },
  { "bind-socket", 'F', "create", OP_PATHS, bind_socket, NULL },
  { "symlink", 'F', "create", OP_PATHS, do_symlink, NULL },
  { "link", 'F', "link", OP_PATHS, do_link, NULL },
  { "link-by-fd", 'F', "link", OP_PATHS, link_by_fd, NULL },
  { "link-empty-path", 'F', "link", OP_PATHS | OP_EITHER, link_empty_path,
    NULL },
  { "unlink", 'F', "remove", OP_PATHS, do_unlink, NULL },
  { "unlinkat", 'F', "remove", OP_PATHS, do_unlinkat, NULL },
  { "unlink-symlink", 'F', "remove", OP_PATHS, unlink_link, NULL },
  { "rmdir", 'F', "remove", OP_PATHS, do_rmdir, NULL },
  { "unlinkat-dir", 'F', "remove", OP_PATHS, unlinkat_dir, NULL },
  { "rename", 'F', "rename", OP_PATHS, do_rename, NULL },
  { "renameat", 'F', "rename", OP_PATHS, do_renameat, NULL },
  { "rename-over", 'F', "rename", OP_PATHS, rename_over, NULL },
  { "rename-exchange", 'F', "rename", OP_PATHS, rename_exchange, NULL },
  { "rename-noreplace", 'F', "rename", OP_PATHS, rename_noreplace, NULL },
  { "rename-whiteout", 'F', "rename", OP_PATHS | OP_EITHER, rename_whiteout,
    NULL },
  { "rename-directory", 'F', "rename", OP_PATHS, rename_dir, NULL },
  { "rename-into-directory", 'F', "rename", OP_PATHS, rename_into_dir, NULL },
  { "rename-out-of-directory", 'F', "rename", OP_PATHS, rename_out_of_dir,
    NULL },
  { "rename-over-directory", 'F', "rename", OP_PATHS, rename_over_dir, NULL },
  { "exchange-directory-file", 'F', "rename", OP_PATHS, exchange_dir_file,
    NULL },
  { "pair-rename", 'F', "rename", OP_PAIR, pair_rename, NULL },
  { "pair-rename-over", 'F', "rename", OP_PAIR, pair_rename_over, NULL },
  { "pair-rename-directory", 'F', "rename", OP_PAIR, pair_rename_dir, NULL },
  { "pair-exchange", 'F', "rename", OP_PAIR, pair_exchange, NULL },
  { "pair-link", 'F', "link", OP_PAIR, pair_link, NULL },
  { "pair-link-by-fd", 'F', "link", OP_PAIR, pair_link_by_fd, NULL },
  { "planted-link-write", 'F', "write", OP_PAIR | OP_FIRST,
    planted_link_write, NULL },
  { "planted-link-chmod", 'F', "metadata", OP_PAIR | OP_FIRST,
    planted_link_chmod, NULL },
  { "planted-directory-link-chmod", 'F', "metadata", OP_PAIR | OP_FIRST,
    planted_dir_link_chmod, NULL },
  { "planted-dotdot-chmod", 'F', "metadata", OP_PAIR | OP_FIRST,
    planted_dotdot_chmod, NULL },
};

const struct probe_family probe_names = { op, PROBE_LEN(op) };
