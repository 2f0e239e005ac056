/* dsh_probe_stdio.c: descriptors that come from outside: 0 and 2 are files
 * there (0 read-only, 2 write and append), a file and a directory are left
 * open by whoever started us, a file arrives over a socket. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <linux/fs.h>

#include "dsh_probe.h"

static int reopen(const char *path, int flags) {
  return probe_write_fd(open(path, flags | O_CLOEXEC, 0644));
}

static int stdin_proc(struct probe_ctx *c) {
  (void)c;
  return reopen("/proc/self/fd/0", O_WRONLY);
}

static int stdin_dev(struct probe_ctx *c) {
  (void)c;
  return reopen("/dev/stdin", O_WRONLY);
}

static int stdin_dev_fd(struct probe_ctx *c) {
  (void)c;
  return reopen("/dev/fd/0", O_RDWR);
}

static int stdin_truncate(struct probe_ctx *c) {
  (void)c;
  return reopen("/proc/self/fd/0", O_WRONLY | O_TRUNC);
}

static int stdin_truncate_path(struct probe_ctx *c) {
  struct stat st;
  (void)c;
  if (fstat(0, &st))
    return errno;
  return probe_rc(truncate("/proc/self/fd/0", st.st_size + 1));
}

static int stdin_by_name(struct probe_ctx *c) {
  return reopen(probe_at(c, "f"), O_WRONLY);
}

/* Alternates, so that it changes something each time. */
static mode_t other_mode(int fd) {
  struct stat st;
  return !fstat(fd, &st) && (st.st_mode & 0777) == 0640 ? 0600 : 0640;
}

static int stdin_fchmod(struct probe_ctx *c) {
  (void)c;
  return probe_rc(fchmod(0, other_mode(0)));
}

static int stdin_chmod_link(struct probe_ctx *c) {
  (void)c;
  return probe_rc(chmod("/proc/self/fd/0", other_mode(0)));
}

static int stdin_fchown(struct probe_ctx *c) {
  (void)c;
  return probe_rc(fchown(0, geteuid(), getegid()));
}

static int stdin_futimens(struct probe_ctx *c) {
  (void)c;
  return probe_rc(futimens(0, NULL));
}

static int stdin_fsetxattr(struct probe_ctx *c) {
  (void)c;
  return probe_rc(fsetxattr(0, "user.n", "w", 1, 0));
}

static int stdin_set_flags(struct probe_ctx *c) {
  unsigned flags = 0;
  (void)c;
  if (probe_ioctl(0, FS_IOC_GETFLAGS, &flags))
    return errno;
  flags ^= FS_NODUMP_FL;
  return probe_rc(probe_ioctl(0, FS_IOC_SETFLAGS, &flags));
}

static int stdin_link(struct probe_ctx *c) {
  char name[PROBE_PATH_MAX + 64];
  snprintf(name, sizeof name, "%s-stdin-link", probe_at(c, "new"));
  return probe_rc(linkat(AT_FDCWD, "/proc/self/fd/0", AT_FDCWD, name,
                         AT_SYMLINK_FOLLOW));
}

static int stderr_rdwr(struct probe_ctx *c) {
  (void)c;
  return reopen("/proc/self/fd/2", O_RDWR);
}

static int stderr_fchmod(struct probe_ctx *c) {
  (void)c;
  return probe_rc(fchmod(2, other_mode(2)));
}

static int stderr_futimens(struct probe_ctx *c) {
  (void)c;
  return probe_rc(futimens(2, NULL));
}

/* What the caller gave may be used as given. */
static int stderr_write(struct probe_ctx *c) {
  (void)c;
  return probe_rc(write(2, "said\n", 5));
}

static int stderr_redirect(struct probe_ctx *c) {
  (void)c;
  return reopen("/dev/stderr", O_WRONLY | O_CREAT | O_APPEND);
}

/* --- stdin is a directory ------------------------------------------------ */

static int dirin_write(struct probe_ctx *c) {
  (void)c;
  return probe_write_fd(openat(0, "f", O_WRONLY | O_CLOEXEC));
}

static int dirin_mkdir(struct probe_ctx *c) {
  char name[32];
  (void)c;
  snprintf(name, sizeof name, "n%d", (int)getpid());
  return probe_rc(mkdirat(0, name, 0755));
}

static int dirin_fchmod(struct probe_ctx *c) {
  (void)c;
  return probe_rc(fchmod(0, 0700));
}

/* --- left open by the caller --------------------------------------------- */

static int inherited_write(struct probe_ctx *c) {
  (void)c;
  return probe_rc(write(PROBE_FD_FILE, "changed", 7));
}

static int inherited_ftruncate(struct probe_ctx *c) {
  struct stat st;
  (void)c;
  if (fstat(PROBE_FD_FILE, &st))
    return errno;
  return probe_rc(ftruncate(PROBE_FD_FILE, st.st_size + 3));
}

static int inherited_fchmod(struct probe_ctx *c) {
  (void)c;
  return probe_rc(fchmod(PROBE_FD_FILE, other_mode(PROBE_FD_FILE)));
}

static int inherited_dir_write(struct probe_ctx *c) {
  (void)c;
  return probe_write_fd(openat(PROBE_FD_DIR, "f", O_WRONLY | O_CLOEXEC));
}

static int inherited_dir_mkdir(struct probe_ctx *c) {
  char name[32];
  (void)c;
  snprintf(name, sizeof name, "n%d", (int)getpid());
  return probe_rc(mkdirat(PROBE_FD_DIR, name, 0755));
}

/* --- given by an outside process over a socket --------------------------- */

static int connect_peer(struct probe_ctx *c) {
  struct sockaddr_un a = { .sun_family = AF_UNIX };
  int fd;
  if (chdir(c->spec->outside))
    return -1;
  snprintf(a.sun_path, sizeof a.sun_path, "peer.sock");
  fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a)) {
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
  }
  return fd;
}

static int receive(struct probe_ctx *c) {
  union { struct cmsghdr h; char room[CMSG_SPACE(sizeof(int))]; } u;
  char byte;
  struct iovec v = { &byte, 1 };
  struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = &u,
                      .msg_controllen = sizeof u };
  struct cmsghdr *h;
  int s = connect_peer(c), fd = -1;
  if (s < 0)
    return -1;
  if (recvmsg(s, &m, MSG_CMSG_CLOEXEC) == 1 && (h = CMSG_FIRSTHDR(&m)) &&
      h->cmsg_type == SCM_RIGHTS)
    memcpy(&fd, CMSG_DATA(h), sizeof fd);
  else
    errno = EPIPE;
  close(s);
  return fd;
}

static int received_write(struct probe_ctx *c) {
  return probe_write_fd(receive(c));
}

static int received_fchmod(struct probe_ctx *c) {
  int fd = receive(c), rc;
  if (fd < 0)
    return errno;
  rc = probe_rc(fchmod(fd, other_mode(fd)));
  close(fd);
  return rc;
}

static int received_futimens(struct probe_ctx *c) {
  int fd = receive(c), rc;
  if (fd < 0)
    return errno;
  rc = probe_rc(futimens(fd, NULL));
  close(fd);
  return rc;
}

static int received_reopen(struct probe_ctx *c) {
  char path[64];
  int fd = receive(c);
  if (fd < 0)
    return errno;
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  return reopen(path, O_WRONLY);
}

static int connect_only(struct probe_ctx *c) {
  int fd = connect_peer(c);
  if (fd < 0)
    return errno;
  close(fd);
  return 0;
}

#define STDIO (OP_STDIO)
#define GIVEN (OP_ONE | OP_PEER)

static const struct probe_op op[] = {
  { "stdin-reopen", 'F', "stdio", STDIO, stdin_proc, NULL },
  { "stdin-reopen-dev-stdin", 'F', "stdio", STDIO, stdin_dev, NULL },
  { "stdin-reopen-dev-fd", 'F', "stdio", STDIO, stdin_dev_fd, NULL },
  { "stdin-reopen-truncate", 'F', "stdio", STDIO, stdin_truncate, NULL },
  { "stdin-truncate-by-link", 'F', "stdio", STDIO, stdin_truncate_path,
    NULL },
  { "stdin-by-name", 'F', "stdio", STDIO, stdin_by_name, NULL },
  { "stdin-fchmod", 'F', "metadata", STDIO, stdin_fchmod, NULL },
  { "stdin-chmod-by-link", 'F', "metadata", STDIO, stdin_chmod_link, NULL },
  { "stdin-fchown", 'F', "metadata", STDIO, stdin_fchown, NULL },
  { "stdin-futimens", 'F', "metadata", STDIO, stdin_futimens, NULL },
  { "stdin-fsetxattr", 'F', "metadata", STDIO, stdin_fsetxattr, NULL },
  { "stdin-set-flags", 'F', "metadata", STDIO, stdin_set_flags, NULL },
  { "stdin-link", 'F', "stdio", STDIO, stdin_link, NULL },
  { "stderr-reopen-rdwr", 'F', "stdio", STDIO | OP_NOTE, stderr_rdwr,
    "adds reading to a file that was given for writing: no file effect" },
  { "stderr-fchmod", 'F', "metadata", STDIO, stderr_fchmod, NULL },
  { "stderr-futimens", 'F', "metadata", STDIO, stderr_futimens, NULL },
  { "stderr-write", 'F', "stdio", STDIO | OP_ALLOWED, stderr_write, NULL },
  { "stderr-redirect", 'F', "stdio", STDIO | OP_ALLOWED, stderr_redirect,
    NULL },
  { "stdin-directory-write", 'F', "stdio", OP_STDIN_DIR, dirin_write, NULL },
  { "stdin-directory-mkdir", 'F', "stdio", OP_STDIN_DIR, dirin_mkdir, NULL },
  { "stdin-directory-fchmod", 'F', "stdio", OP_STDIN_DIR, dirin_fchmod,
    NULL },
  { "inherited-write", 'F', "inherited", GIVEN, inherited_write, NULL },
  { "inherited-ftruncate", 'F', "inherited", GIVEN, inherited_ftruncate,
    NULL },
  { "inherited-fchmod", 'F', "inherited", GIVEN, inherited_fchmod, NULL },
  { "inherited-directory-write", 'F', "inherited", GIVEN,
    inherited_dir_write, NULL },
  { "inherited-directory-mkdir", 'F', "inherited", GIVEN,
    inherited_dir_mkdir, NULL },
  { "received-fchmod", 'F', "metadata", GIVEN, received_fchmod, NULL },
  { "received-futimens", 'F', "metadata", GIVEN, received_futimens, NULL },
  { "received-reopen", 'F', "stdio", GIVEN, received_reopen, NULL },
  { "received-write", 'N', "outside-help", GIVEN | OP_NOTE, received_write,
    "a limit: an outside process that hands over an open file has decided "
    "to; what it hands over can be written, not its metadata" },
  { "connect-path-socket", 'N', "outside-help", OP_HOST | OP_COUNTER | OP_NOTE,
    connect_only,
    "a limit: sockets of outside daemons can be reached, and a daemon does "
    "what it does for anyone" },
};

const struct probe_family probe_stdio = { op, PROBE_LEN(op) };
