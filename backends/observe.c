/* observe.c: typed records of refused file operations.
 *
 * The kernel still decides every call looked at here (the answer is always
 * "continue"), so a race costs a wrong record, never safety. Where a check
 * without side effects exists, it is made by a short-lived process under the
 * command's own ruleset and in its mounts, and the record is `confirmed`:
 * open a regular file without creating or truncating, make a file without a
 * name (O_TMPFILE) for creation, rmdir of what is no directory for unlink.
 * Else it is predicted from the grants. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../src/restrict.h"
#include "launch.h"

enum { PATH_BYTES = 4096, STACK = 16 * 1024 };

enum nr {
#define NR(name, x86, arm, class) NR_##name = DSH_NR_HERE(x86, arm),
  DSH_SYSCALLS(NR)
#undef NR
};

enum kind { OPEN, MAKE, REMOVE, REMOVE_DIR, RENAME, LINK, TRUNCATE, NOTHING };

/* A path call, reduced to what it does to which names. */
struct call {
  enum kind kind;
  const char *op;
  int dirfd, dirfd2;       /* second name: rename's new, link's new */
  uint64_t path, path2;    /* addresses in the caller; path2 0: none */
  uint64_t flags;          /* open's */
};

/* How the calls with a number only on some architectures are told apart. */
static bool is(const struct dsh_notif *n, int nr) {
  return nr >= 0 && n->data.nr == nr;
}

static struct call one(enum kind kind, const char *op, int dirfd,
                       uint64_t path, uint64_t flags) {
  return (struct call){kind, op, dirfd, AT_FDCWD, path, 0, flags};
}

static struct call open_how(const struct dsh_notif *n) {
  struct dsh_open_how how = {0, 0, 0};
  const uint64_t *a = n->data.args;
  if (remote_bytes((pid_t)n->pid, a[2], &how, sizeof how) < 0)
    how.flags = 0;
  return one(OPEN, "open", (int)a[0], a[1], how.flags);
}

static struct call parse_one(const struct dsh_notif *n) {
  const uint64_t *a = n->data.args;
  int at = (int)a[0];
  if (is(n, NR_open))
    return one(OPEN, "open", AT_FDCWD, a[0], a[1]);
  if (is(n, NR_openat))
    return one(OPEN, "open", at, a[1], a[2]);
  if (is(n, NR_openat2))
    return open_how(n);
  if (is(n, NR_creat))
    return one(OPEN, "open", AT_FDCWD, a[0], O_CREAT | O_WRONLY | O_TRUNC);
  if (is(n, NR_mkdir))
    return one(MAKE, "mkdir", AT_FDCWD, a[0], 0);
  if (is(n, NR_mkdirat))
    return one(MAKE, "mkdir", at, a[1], 0);
  if (is(n, NR_mknod))
    return one(MAKE, "mknod", AT_FDCWD, a[0], 0);
  if (is(n, NR_mknodat))
    return one(MAKE, "mknod", at, a[1], 0);
  if (is(n, NR_symlink))
    return one(MAKE, "symlink", AT_FDCWD, a[1], 0);
  if (is(n, NR_symlinkat))
    return one(MAKE, "symlink", (int)a[1], a[2], 0);
  if (is(n, NR_unlink))
    return one(REMOVE, "unlink", AT_FDCWD, a[0], 0);
  if (is(n, NR_rmdir))
    return one(REMOVE_DIR, "rmdir", AT_FDCWD, a[0], 0);
  if (is(n, NR_unlinkat))
    return a[2] & AT_REMOVEDIR ? one(REMOVE_DIR, "rmdir", at, a[1], 0)
                               : one(REMOVE, "unlink", at, a[1], 0);
  if (is(n, NR_truncate))
    return one(TRUNCATE, "truncate", AT_FDCWD, a[0], 0);
  return one(NOTHING, "", AT_FDCWD, 0, 0);
}

static struct call parse(const struct dsh_notif *n) {
  const uint64_t *a = n->data.args;
  if (is(n, NR_rename))
    return (struct call){RENAME, "rename", AT_FDCWD, AT_FDCWD, a[0], a[1], 0};
  if (is(n, NR_renameat) || is(n, NR_renameat2))
    return (struct call){RENAME, "rename", (int)a[0], (int)a[2],
                         a[1],   a[3],     0};
  if (is(n, NR_link))
    return (struct call){LINK, "link", AT_FDCWD, AT_FDCWD, a[0], a[1], 0};
  if (is(n, NR_linkat))
    return (struct call){LINK, "link", (int)a[0], (int)a[2], a[1], a[3], 0};
  return parse_one(n);
}

/* --- names --------------------------------------------------------------- */

/* A name in the caller's world: its parent directory and the object itself,
 * as O_PATH descriptors (or -errno), and how to print it. */
struct name {
  int parent, object;
  char last[256];
  char shown[PATH_BYTES];
};

/* Cuts "a/b/c//" into directory "a/b" (or ".", "/") and name "c". */
static void cut(char *path, const char **dir, char *last, size_t size) {
  char *slash, *end = path + strlen(path);
  while (end > path + 1 && end[-1] == '/')
    *--end = '\0';
  slash = strrchr(path, '/');
  snprintf(last, size, "%.255s", slash ? slash + 1 : path);
  *dir = !slash ? "." : slash == path ? "/" : path;
  if (slash && slash != path)
    *slash = '\0';
}

static void look_up(pid_t pid, int dirfd, uint64_t address, bool follow,
                    struct name *out) {
  static char path[PATH_BYTES];
  const char *dir;
  int n = remote_string(pid, address, path, sizeof path);
  out->parent = out->object = n < 0 ? n : -ENOENT;
  out->shown[0] = out->last[0] = '\0';
  if (n <= 0)
    return;
  out->object = remote_open(pid, dirfd, path, follow);
  if (out->object >= 0)
    fd_path(out->object, out->shown, sizeof out->shown);
  cut(path, &dir, out->last, sizeof out->last);
  out->parent = remote_open(pid, dirfd, dir, true);
  if (out->object < 0 && out->parent >= 0) {
    n = fd_path(out->parent, out->shown, sizeof out->shown);
    if (n >= 0)
      snprintf(out->shown + n, sizeof out->shown - (size_t)n, "%s%s",
               n == 1 ? "" : "/", out->last);
  }
}

static void forget(struct name *name) {
  if (name->parent >= 0)
    close(name->parent);
  if (name->object >= 0)
    close(name->object);
}

/* --- the verdict --------------------------------------------------------- */

struct verdict {
  int errnum; /* 0: will not be refused by the sandbox */
  bool confirmed;
};

static const struct verdict fine = {0, false};

/* A check inside the command's domain, in a child that shares our memory. */
static struct check {
  const struct run *run;
  enum kind kind;
  int fd;
  const char *last;
  int flags;
  volatile int errnum;
} check;

static int check_main(void *arg) {
  char link[32];
  int fd = 0;
  (void)arg;
  if (check.run->ruleset != NO_FD && dsh_ll_restrict(check.run->ruleset) < 0) {
    check.errnum = ENOSYS;
    return 0;
  }
  snprintf(link, sizeof link, "/proc/self/fd/%d", check.fd);
  if (check.kind == OPEN)
    fd = open(link, check.flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  else if (check.kind == MAKE)
    fd = open(link, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  else
    fd = unlinkat(check.fd, check.last, AT_REMOVEDIR);
  check.errnum = fd < 0 ? errno : 0;
  return 0;
}

/* The errno that the operation gets in the domain; 0: it is allowed. */
static int try_inside(const struct run *r, enum kind kind, int fd,
                      const char *last, int flags) {
  static char stack[STACK] __attribute__((aligned(16)));
  pid_t pid;
  check = (struct check){r, kind, fd, last, flags, ENOSYS};
  pid = clone(check_main, stack + sizeof stack, CLONE_VM | CLONE_VFORK, NULL);
  if (pid < 0)
    return ENOSYS;
  while (waitpid(pid, NULL, __WALL) < 0 && errno == EINTR)
    ;
  return check.errnum;
}

static bool is_refusal(int errnum) {
  return errnum == EACCES || errnum == EROFS || errnum == EPERM;
}

static int dialect(const struct run *r) {
  return r->launch->inner ? EROFS : EACCES;
}

static struct verdict predict(const struct run *r, int fd) {
  int again = granted_open(r, fd);
  if (again < 0)
    return (struct verdict){dialect(r), false};
  close(again);
  return fine;
}

static bool on_device_list(const struct stat *st) {
  unsigned a = major(st->st_rdev), b = minor(st->st_rdev);
  return (a == 1 && (b == 3 || b == 5 || b == 7 || b == 8 || b == 9)) ||
         (a == 5 && (b == 0 || b == 2)) || (a >= 136 && a <= 143);
}

static struct verdict judge_object(const struct run *r, int fd, int flags) {
  struct stat st;
  int e;
  if (fstat(fd, &st) != 0 || S_ISDIR(st.st_mode) || S_ISLNK(st.st_mode))
    return fine; /* another error than a refusal */
  if (S_ISCHR(st.st_mode) && on_device_list(&st))
    return fine;
  if (!S_ISREG(st.st_mode))
    return predict(r, fd);
  e = try_inside(r, OPEN, fd, NULL,
                 (flags & O_ACCMODE) == O_RDONLY ? O_WRONLY
                                                 : flags & O_ACCMODE);
  return (struct verdict){is_refusal(e) ? e : 0, true};
}

static struct verdict judge_make(const struct run *r, int parent, bool file) {
  int e = file ? try_inside(r, MAKE, parent, NULL, 0) : EOPNOTSUPP;
  if (e == 0 || is_refusal(e))
    return (struct verdict){e, true};
  return predict(r, parent);
}

static struct verdict judge_remove(const struct run *r, enum kind kind,
                                   const struct name *name) {
  struct stat st;
  int e;
  if (name->object < 0 || name->parent < 0)
    return fine;
  if (kind == REMOVE_DIR || fstat(name->object, &st) != 0 ||
      S_ISDIR(st.st_mode))
    return predict(r, name->parent);
  e = try_inside(r, REMOVE, name->parent, name->last, 0);
  return (struct verdict){is_refusal(e) ? e : 0, true};
}

static struct verdict judge(const struct run *r, const struct call *c,
                            const struct name *a, const struct name *b) {
  struct verdict v;
  switch (c->kind) {
  case OPEN:
    if ((c->flags & O_TMPFILE) == O_TMPFILE)
      return a->object < 0 ? fine : judge_make(r, a->object, true);
    if (a->object >= 0)
      return (c->flags & O_CREAT) && (c->flags & O_EXCL)
                 ? fine
                 : judge_object(r, a->object, (int)c->flags);
    return c->flags & O_CREAT && a->parent >= 0 && a->object == -ENOENT
               ? judge_make(r, a->parent, true)
               : fine;
  case TRUNCATE:
    return a->object < 0 ? fine : judge_object(r, a->object, O_WRONLY);
  case MAKE:
    return a->object >= 0 || a->parent < 0 ? fine
                                           : judge_make(r, a->parent, false);
  case REMOVE:
  case REMOVE_DIR:
    return judge_remove(r, c->kind, a);
  case RENAME:
    if (a->object < 0 || a->parent < 0 || b->parent < 0)
      return fine;
    v = predict(r, a->parent);
    return v.errnum ? v : predict(r, b->parent);
  case LINK:
    return a->object < 0 || b->parent < 0 || b->object >= 0
               ? fine
               : predict(r, b->parent);
  case NOTHING:
    break;
  }
  return fine;
}

/* Would file permissions alone refuse, sandbox or not? */
static bool permissions_refuse(const struct call *c, const struct name *a) {
  char link[32];
  bool object = a->object >= 0 && (c->kind == OPEN || c->kind == TRUNCATE);
  int fd = object ? a->object : a->parent;
  if (fd < 0)
    return false;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  return faccessat(AT_FDCWD, link, W_OK, 0) != 0 && errno == EACCES;
}

static bool follows(const struct call *c) {
  if (c->kind == OPEN)
    return !(c->flags & O_NOFOLLOW);
  return c->kind == TRUNCATE;
}

static bool asks_for_writing(const struct call *c) {
  return c->kind != OPEN || (c->flags & (O_ACCMODE | O_CREAT | O_TRUNC)) != 0;
}

static void observe(const struct run *r, const struct dsh_notif *n,
                    const struct call *c) {
  static struct name a, b;
  struct verdict v;
  char comm[16];
  uint32_t flags = 0;
  pid_t pid = (pid_t)n->pid;
  a.parent = a.object = b.parent = b.object = -ENOENT;
  look_up(pid, c->dirfd, c->path, follows(c), &a);
  if (c->path2)
    look_up(pid, c->dirfd2, c->path2, false, &b);
  v = judge(r, c, &a, &b);
  if (v.errnum && ioctl(r->listener, DSH_NOTIF_ID_VALID, &n->id) == 0) {
    if (v.confirmed)
      flags |= DSH_DENIED_CONFIRMED;
    if (permissions_refuse(c, &a))
      flags |= DSH_DENIED_ALSO_PERMISSIONS;
    remote_comm(pid, comm);
    report_denied(c->op, v.errnum, pid, comm, a.shown,
                  c->path2 ? b.shown : NULL, flags);
  }
  forget(&a);
  forget(&b);
}

void observe_call(const struct run *r, const struct dsh_notif *n) {
  struct call c = parse(n);
  if (c.kind == OPEN && terminal_open(r, n, c.dirfd, c.path, (int)c.flags))
    return;
  if (r->launch->observe && c.kind != NOTHING && asks_for_writing(&c))
    observe(r, n, &c);
  answer(r, n->id, 0, DSH_NOTIF_CONTINUE);
}
