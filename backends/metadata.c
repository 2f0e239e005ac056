/* metadata.c: metadata changes, which Landlock does not govern, decided by
 * the keeper. The kernel never goes on with the caller's own call: the
 * keeper opens the object (O_PATH), finds it again beneath a granted root,
 * and acts on that descriptor itself. So no name that changes meanwhile can
 * lead the change elsewhere. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "../src/syscalls.h"
#include "launch.h"

#ifndef AT_EMPTY_PATH
#define AT_EMPTY_PATH 0x1000
#endif

enum { PATH_BYTES = 4096, NAME_BYTES = 256, VALUE_BYTES = 65536 };

enum op {
#define OP(name, x86, arm, class) OP_##name,
  DSH_SYSCALLS(OP)
#undef OP
  OP_COUNT
};

static enum op op_of(int nr) {
#define IS(name, x86, arm, class)                                            \
  if (DSH_NR_HERE(x86, arm) == nr)                                           \
    return OP_##name;
  DSH_SYSCALLS(IS)
#undef IS
  return OP_COUNT;
}

bool is_meta_call(int nr) {
#define IS(name, x86, arm, class)                                            \
  if (DSH_NR_HERE(x86, arm) == nr)                                           \
    return DSH_CALL_##class == DSH_CALL_META ||                              \
           DSH_CALL_##class == DSH_CALL_IOCTL;
  DSH_SYSCALLS(IS)
#undef IS
  return false;
}

void answer(const struct run *r, uint64_t id, int error, uint32_t flags) {
  struct dsh_notif_resp resp = {id, 0, error, flags};
  ioctl(r->listener, DSH_NOTIF_SEND, &resp);
}

/* What the caller names, and with which of its arguments. */
struct target {
  int dirfd;
  int path_arg;   /* index of the path argument, or -1: dirfd alone */
  int first;      /* index of the first argument after dirfd and path */
  int flags_arg;  /* index of the AT_ flags, or -1 */
  bool follow;
  const char *name; /* for the record */
};

static struct target target_of(enum op op, const struct dsh_seccomp_data *d) {
  struct target t = {AT_FDCWD, 0, 1, -1, true, "metadata"};
  switch ((int)op) {
  case OP_fchmod:
  case OP_fchown:
  case OP_fsetxattr:
  case OP_fremovexattr:
  case OP_ioctl:
    t.dirfd = (int)d->args[0];
    t.path_arg = -1;
    break;
  case OP_lchown:
  case OP_lsetxattr:
  case OP_lremovexattr:
    t.follow = false;
    break;
  case OP_fchmodat:
  case OP_futimesat:
  case OP_fchmodat2:
  case OP_utimensat:
  case OP_fchownat:
    t.dirfd = (int)d->args[0];
    t.path_arg = 1;
    t.first = 2;
    if (op == OP_fchmodat2 || op == OP_utimensat)
      t.flags_arg = 3;
    if (op == OP_fchownat)
      t.flags_arg = 4;
    break;
  default:
    break;
  }
  if (t.flags_arg >= 0 && (d->args[t.flags_arg] & AT_SYMLINK_NOFOLLOW))
    t.follow = false;
  return t;
}

static const char *record_name(enum op op) {
  switch ((int)op) {
  case OP_chmod:
  case OP_fchmod:
  case OP_fchmodat:
  case OP_fchmodat2:
    return "chmod";
  case OP_chown:
  case OP_fchown:
  case OP_lchown:
  case OP_fchownat:
    return "chown";
  case OP_utime:
  case OP_utimes:
  case OP_futimesat:
  case OP_utimensat:
    return "utime";
  case OP_setxattr:
  case OP_lsetxattr:
  case OP_fsetxattr:
    return "setxattr";
  case OP_ioctl:
    return "ioctl";
  default:
    return "removexattr";
  }
}

/* The caller's object as an O_PATH descriptor, or -errno. */
static int open_target(pid_t pid, const struct target *t,
                       const struct dsh_seccomp_data *d) {
  static char path[PATH_BYTES];
  int n;
  if (t->path_arg < 0)
    return t->dirfd < 0 ? -EBADF : remote_open(pid, t->dirfd, "", true);
  if (d->args[t->path_arg] == 0) /* utimensat(fd, NULL, …): the descriptor */
    return t->dirfd < 0 ? -EFAULT : remote_open(pid, t->dirfd, "", true);
  n = remote_string(pid, d->args[t->path_arg], path, sizeof path);
  if (n < 0)
    return n;
  if (n == 0 && (t->flags_arg < 0 || !(d->args[t->flags_arg] & AT_EMPTY_PATH)))
    return -ENOENT;
  return remote_open(pid, t->dirfd, path, t->follow);
}

/* --- acting -------------------------------------------------------------- */

static int result(long r) {
  return r < 0 ? -errno : 0;
}

static int act_chmod(int fd, const char *link, uint32_t mode) {
  long r = syscall(DSH_NR_fchmodat2, fd, "", mode & 07777, AT_EMPTY_PATH);
  if (r < 0 && errno == ENOSYS) /* before 6.6 */
    r = chmod(link, mode & 07777);
  return result(r);
}

static int act_times(pid_t pid, enum op op, int fd, uint64_t address) {
  struct timespec ts[2];
  long words[4];
  int e;
  if (address == 0)
    return result(utimensat(fd, "", NULL, AT_EMPTY_PATH));
  e = remote_bytes(pid, address, words,
                   (op == OP_utime ? 2 : 4) * sizeof *words);
  if (e < 0)
    return e;
  if (op == OP_utime) {
    ts[0] = (struct timespec){words[0], 0};
    ts[1] = (struct timespec){words[1], 0};
  } else {
    long scale = op == OP_utimensat ? 1 : 1000;
    if (scale == 1000 && (words[1] < 0 || words[1] >= 1000000 || words[3] < 0 ||
                          words[3] >= 1000000))
      return -EINVAL;
    ts[0] = (struct timespec){words[0], words[1] * scale};
    ts[1] = (struct timespec){words[2], words[3] * scale};
  }
  return result(utimensat(fd, "", ts, AT_EMPTY_PATH));
}

static int act_setxattr(pid_t pid, const char *link,
                        const struct dsh_seccomp_data *d) {
  static char value[VALUE_BYTES];
  char name[NAME_BYTES];
  uint64_t size = d->args[3];
  int e = remote_string(pid, d->args[1], name, sizeof name);
  if (e < 0)
    return e == -ENAMETOOLONG ? -ERANGE : e;
  if (size > sizeof value)
    return -E2BIG;
  if (size && (e = remote_bytes(pid, d->args[2], value, (size_t)size)) < 0)
    return e;
  return result(setxattr(link, name, value, (size_t)size, (int)d->args[4]));
}

static int act_removexattr(pid_t pid, const char *link, uint64_t address) {
  char name[NAME_BYTES];
  int e = remote_string(pid, address, name, sizeof name);
  if (e < 0)
    return e == -ENAMETOOLONG ? -ERANGE : e;
  return result(removexattr(link, name));
}

/* FS_IOC_SETFLAGS and FSSETXATTR: an int and a record of 28 bytes. */
static int act_ioctl(pid_t pid, const char *link,
                     const struct dsh_seccomp_data *d) {
  char arg[28] = {0};
  uint32_t request = (uint32_t)d->args[1];
  size_t size = request == 0x401c5820u ? 28 : 4;
  int e, fd;
  if ((e = remote_bytes(pid, d->args[2], arg, size)) < 0)
    return e;
  fd = open(link, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0)
    return -errno;
  e = result(ioctl(fd, (int)request, arg));
  close(fd);
  return e;
}

/* Does to `fd`, an object beneath a root, what the caller asked for. */
static int act(pid_t pid, enum op op, const struct target *t, int fd,
               const struct dsh_seccomp_data *d) {
  char link[32];
  const uint64_t *arg = d->args + t->first;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  switch ((int)op) {
  case OP_chmod:
  case OP_fchmod:
  case OP_fchmodat:
  case OP_fchmodat2:
    return act_chmod(fd, link, (uint32_t)arg[0]);
  case OP_chown:
  case OP_fchown:
  case OP_lchown:
  case OP_fchownat:
    return result(fchownat(fd, "", (uid_t)arg[0], (gid_t)arg[1],
                           AT_EMPTY_PATH));
  case OP_utime:
  case OP_utimes:
  case OP_futimesat:
  case OP_utimensat:
    return act_times(pid, op, fd, arg[0]);
  case OP_setxattr:
  case OP_lsetxattr:
  case OP_fsetxattr:
    return act_setxattr(pid, link, d);
  case OP_removexattr:
  case OP_lremovexattr:
  case OP_fremovexattr:
    return act_removexattr(pid, link, d->args[1]);
  case OP_ioctl:
    return act_ioctl(pid, link, d);
  default:
    return -ENOSYS;
  }
}

static void refused(const struct run *r, pid_t pid, enum op op, int fd) {
  char path[PATH_BYTES], comm[16];
  if (!r->launch->observe || fd_path(fd, path, sizeof path) < 0)
    return;
  remote_comm(pid, comm);
  report_denied(record_name(op), EROFS, pid, comm, path, NULL,
                DSH_DENIED_CONFIRMED);
}

void metadata_answer(const struct run *r, const struct dsh_notif *n) {
  enum op op = op_of(n->data.nr);
  struct target t = target_of(op, &n->data);
  pid_t pid = (pid_t)n->pid;
  int e, fd, again;
  if (op == OP_ioctl && (uint32_t)n->data.args[1] == DSH_IOCTL_TIOCGPTPEER) {
    terminal_peer(r, n);
    return;
  }
  fd = open_target(pid, &t, &n->data);
  /* Is it still the same caller whose /proc entries we looked at? */
  if (ioctl(r->listener, DSH_NOTIF_ID_VALID, &n->id) != 0) {
    if (fd >= 0)
      close(fd);
    return;
  }
  if (fd < 0) {
    answer(r, n->id, fd == -EACCES ? -EPERM : fd, 0);
    return;
  }
  again = r->launch->read_only ? -EROFS : granted_open(r, fd);
  if (again >= 0) {
    e = act(pid, op, &t, again, &n->data);
    close(again);
  } else {
    e = again;
    refused(r, pid, op, fd);
  }
  close(fd);
  answer(r, n->id, e, 0);
}
