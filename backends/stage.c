/* stage.c: the inner stage. Checks what the runner promised, prepares every
 * restriction, and starts the command with them.
 *
 * Prepared here, outside the command's domain: grants are opened and the
 * ruleset is built. Applied in the command's own process, which shares our
 * memory and descriptors until its execve (a vfork that shares the table): so
 * the listener that it makes appears here without being sent, and how far it
 * got is read from memory that nobody else can write. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../src/restrict.h"
#include "launch.h"

enum { STACK = 64 * 1024, MAX_ENV = 64 * 1024, PATH_BYTES = 4096 };

/* --- descriptors and environment ----------------------------------------- */

static int compare_ints(const void *a, const void *b) {
  return *(const int *)a - *(const int *)b;
}

static void close_between(unsigned first, unsigned last) {
  unsigned fd;
  if (first > last || syscall(DSH_NR_close_range, first, last, 0) == 0)
    return;
  for (fd = first; fd <= last && fd < 65536; fd++) /* before 5.9 */
    close((int)fd);
}

void close_others(const struct launch *l, int keep) {
  int list[MAX_PASS + 2], n = 0, i;
  unsigned next = 3;
  if (FAULTY(FAULT_KEEP_FD))
    return;
  for (i = 0; i < l->n_pass; i++)
    list[n++] = l->pass[i];
  if (l->status_fd != NO_FD)
    list[n++] = l->status_fd;
  if (keep != NO_FD)
    list[n++] = keep;
  qsort(list, (size_t)n, sizeof *list, compare_ints);
  for (i = 0; i < n; i++) {
    close_between(next, (unsigned)list[i] - 1);
    next = (unsigned)list[i] + 1;
  }
  close_between(next, ~0u);
}

void check_stdio(void) {
  struct stat st;
  int fd;
  for (fd = 0; fd <= 2; fd++) {
    if (fstat(fd, &st) != 0) {
      /* Closed: the next file opened would take its number. */
      if (open("/dev/null", fd ? O_WRONLY : O_RDONLY) != fd)
        fail(DSH_STAGE_STDIO, errno, "/dev/null");
      continue;
    }
    if (S_ISDIR(st.st_mode))
      fail(DSH_STAGE_STDIO, EISDIR, fd == 0 ? "stdin" : "stdout or stderr");
  }
}

int read_environment(struct launch *l) {
  static char *env[MAX_ENV + 1];
  struct stat st;
  char *text, *p;
  size_t n = 0;
  if (l->env_fd == NO_FD)
    return 0;
  if (fstat(l->env_fd, &st) != 0)
    return -errno;
  l->env = env;
  if (st.st_size == 0)
    return close(l->env_fd);
  text = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE,
              l->env_fd, 0);
  if (text == MAP_FAILED)
    return -errno;
  close(l->env_fd);
  for (p = text; p < text + st.st_size && n < MAX_ENV; p += strlen(p) + 1)
    env[n++] = p;
  return p < text + st.st_size ? -E2BIG : 0;
}

/* --- what the runner promised -------------------------------------------- */

static bool is_read_only(const char *path) {
  struct statvfs fs;
  if (statvfs(path, &fs) != 0)
    fail(DSH_STAGE_MOUNTS, errno, path);
  return (fs.f_flag & ST_RDONLY) != 0;
}

/* Is `path` itself, not a link's target, the root of a mount? In the mount
 * table a mount's point is that of the last one stacked there. */
static bool is_mount_point(const char *path) {
  struct dsh_statx sx;
  if (syscall(SYS_statx, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, 0, &sx) != 0)
    fail(DSH_STAGE_MOUNTS, errno, path);
  return !(sx.attributes_mask & DSH_STATX_MOUNT_ROOT) ||
         (sx.attributes & DSH_STATX_MOUNT_ROOT);
}

static void check_mounts(const struct launch *l) {
  int i;
  for (i = 0; i < l->expect_ro.n; i++)
    if (!is_mount_point(l->expect_ro.at[i]) ||
        !is_read_only(l->expect_ro.at[i]))
      fail(DSH_STAGE_MOUNTS, EROFS, l->expect_ro.at[i]);
  for (i = 0; i < l->expect_rw.n; i++)
    if (!is_mount_point(l->expect_rw.at[i])) /* a host's own may be ro */
      fail(DSH_STAGE_MOUNTS, EACCES, l->expect_rw.at[i]);
}

static void check_cwd(const char *expected) {
  struct stat st;
  char text[48];
  if (stat(".", &st) != 0)
    fail(DSH_STAGE_CWD, errno, ".");
  snprintf(text, sizeof text, "%llu:%llu", (unsigned long long)st.st_dev,
           (unsigned long long)st.st_ino);
  if (strcmp(text, expected) != 0)
    fail(DSH_STAGE_CWD, ENOENT, "the caller's directory is not visible");
}

static void check_runner(const struct launch *l) {
  if (!FAULTY(FAULT_NO_CAPDROP) && dsh_capabilities_gone() != 1)
    fail(DSH_STAGE_CAPABILITIES, EPERM, "the runner left capabilities");
  if (!is_read_only("/proc"))
    fail(DSH_STAGE_MOUNTS, EROFS, "/proc");
  if (!is_read_only("/dev"))
    fail(DSH_STAGE_MOUNTS, EROFS, "/dev");
  check_mounts(l);
}

/* --- preparing ----------------------------------------------------------- */

/* A canonical path that has become a link since it was planned leads where
 * nobody granted anything. */
static int open_grant(const char *path, bool exact) {
  struct dsh_open_how how = {.flags = O_PATH | O_CLOEXEC,
                             .resolve = DSH_RESOLVE_NO_SYMLINKS};
  int fd;
  if (!exact)
    return open(path, O_PATH | O_CLOEXEC);
  fd = (int)syscall(DSH_NR_openat2, AT_FDCWD, path, &how, sizeof how);
  if (fd >= 0 || (errno != ENOSYS && errno != EPERM))
    return fd;
  return open(path, O_PATH | O_CLOEXEC | O_NOFOLLOW); /* a filter's ENOSYS */
}

static void open_grants(struct paths *list, bool exact) {
  int i;
  for (i = 0; i < list->n; i++) {
    list->fd[i] = open_grant(list->at[i], exact);
    if (list->fd[i] < 0)
      fail(DSH_STAGE_GRANT, errno, list->at[i]);
  }
}

static void allow_all(const struct run *r, const struct paths *list,
                      enum dsh_access access) {
  int i, e;
  for (i = 0; i < list->n; i++)
    if ((e = dsh_ll_allow(r->ruleset, r->abi, list->fd[i], access)) < 0)
      fail(DSH_STAGE_GRANT, -e, list->at[i]);
}

/* Is one of the directories that lead to `path` a granted root? By what they
 * are, since a root may have other names. */
static bool is_granted(const struct launch *l, const char *path) {
  char dir[PATH_BYTES];
  struct stat st, root;
  char *slash;
  int i;
  snprintf(dir, sizeof dir, "%s", path);
  while ((slash = strrchr(dir, '/')) && slash != dir) {
    *slash = '\0';
    for (i = 0; stat(dir, &st) == 0 && i < l->rw.n; i++)
      if (fstat(l->rw.fd[i], &root) == 0 && st.st_dev == root.st_dev &&
          st.st_ino == root.st_ino)
        return true;
  }
  return false;
}

/* A file that was opened before the runner's mounts were made can be reopened
 * (/proc/self/fd/0) through the mount it came by, and Landlock grants all of a
 * root: what only a read-only mount protects would be open. So such a file is
 * opened anew, as it is seen from here. */
static void see_from_here(const struct launch *l, int fd) {
  char path[PATH_BYTES], link[32];
  struct stat st, here;
  struct statvfs fs;
  int flags = fcntl(fd, F_GETFL), place, again;
  off_t at = lseek(fd, 0, SEEK_CUR);
  if (flags < 0 || (!(flags & O_PATH) && (flags & O_ACCMODE) != O_RDONLY) ||
      fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_nlink == 0 ||
      fd_path(fd, path, sizeof path) < 0 || !is_granted(l, path))
    return;
  place = open(path, O_PATH | O_CLOEXEC | O_NOFOLLOW);
  if (place < 0 || fstat(place, &here) != 0 || fstatvfs(place, &fs) != 0 ||
      here.st_dev != st.st_dev || here.st_ino != st.st_ino)
    fail(DSH_STAGE_STDIO, EACCES, path);
  if (fs.f_flag & ST_RDONLY) {
    snprintf(link, sizeof link, "/proc/self/fd/%d", place);
    again = open(link, (flags & (O_PATH | O_NONBLOCK)) | O_RDONLY | O_CLOEXEC);
    if (again < 0 || (at > 0 && lseek(again, at, SEEK_SET) < 0) ||
        dup2(again, fd) < 0)
      fail(DSH_STAGE_STDIO, errno, path);
    close(again);
  }
  close(place);
}

static void check_views(const struct launch *l) {
  int i;
  for (i = 0; l->rw.n && i <= 2; i++)
    see_from_here(l, i);
  for (i = 0; l->rw.n && i < l->n_pass; i++)
    see_from_here(l, l->pass[i]);
}

static void prepare_ruleset(struct run *r) {
  const struct launch *l = r->launch;
  int e;
  r->ruleset = dsh_ll_ruleset(r->abi, !FAULTY(FAULT_SCOPE_OFF));
  if (r->ruleset < 0)
    fail(DSH_STAGE_LANDLOCK, -r->ruleset, "ruleset");
  allow_all(r, &l->ro, DSH_ACCESS_READ);
  allow_all(r, &l->rw, DSH_ACCESS_WRITE);
  if (l->dev && (e = dsh_ll_allow_devices(r->ruleset, r->abi, l->inner)) < 0)
    fail(DSH_STAGE_GRANT, -e, "/dev");
  if (!FAULTY(FAULT_NO_STDIO) &&
      (e = dsh_ll_allow_stdio(r->ruleset, r->abi)) < 0)
    fail(DSH_STAGE_GRANT, -e, "stdout");
}

static void prepare(struct run *r, struct launch *l) {
  int e;
  if ((e = read_environment(l)) < 0)
    fail(DSH_STAGE_ENVIRONMENT, -e, "environment");
  check_stdio();
  close_others(l, NO_FD);
  if (l->expect_cwd)
    check_cwd(l->expect_cwd);
  if (l->unconfined)
    return;
  if (l->inner)
    check_runner(l);
  r->abi = dsh_ll_abi();
  if (r->abi < 0 && !l->inner)
    fail(DSH_STAGE_LANDLOCK, -r->abi, "not enforced by this kernel");
  if (r->abi < 0 || FAULTY(FAULT_NO_LANDLOCK))
    r->abi = 0;
  if (r->abi > DSH_LL_ABI_KNOWN)
    r->abi = DSH_LL_ABI_KNOWN;
  if ((e = dsh_no_new_privs()) < 0)
    fail(DSH_STAGE_CAPABILITIES, -e, "no_new_privs");
  if (!FAULTY(FAULT_NO_CAPDROP) && (e = dsh_drop_capabilities()) < 0)
    fail(DSH_STAGE_CAPABILITIES, -e, "drop");
  open_grants(&l->ro, l->exact);
  open_grants(&l->rw, l->exact);
  if (l->inner)
    check_views(l);
  if (r->abi > 0)
    prepare_ruleset(r);
}

/* --- starting the command ------------------------------------------------ */

/* How far the child got; in memory shared with it until its execve. */
static struct progress {
  struct run *run;
  volatile bool ready;
  volatile enum dsh_stage stage; /* where it failed, or NONE */
  volatile int errnum;
  volatile int listener, listener_errnum;
  sigset_t mask;              /* the command's */
  pid_t keeper;
  bool ignore_child;          /* SIGCHLD was ignored by the caller */
} progress;

static int stopped_at(enum dsh_stage stage, int errnum) {
  progress.stage = stage;
  progress.errnum = errnum;
  return EXIT_OURS;
}

static enum dsh_program pick(const struct run *r, bool listener) {
  const struct launch *l = r->launch;
  if (!listener)
    return l->read_only ? DSH_PROGRAM_RO_PLAIN : DSH_PROGRAM_WS_PLAIN;
  if (l->observe)
    return l->read_only ? DSH_PROGRAM_RO_OBSERVE : DSH_PROGRAM_WS_OBSERVE;
  return l->read_only ? DSH_PROGRAM_RO_NOTIFY : DSH_PROGRAM_WS_NOTIFY;
}

/* One listener per task tree: when it is taken, the program without one. */
static int install_filter(const struct run *r, bool listener) {
  int e = -EBUSY;
  progress.listener = NO_FD;
  if (FAULTY(FAULT_NO_SECCOMP))
    return 0;
  if (listener) {
    e = dsh_seccomp_install(pick(r, true), true);
    if (e >= 0) {
      progress.listener = e;
      return 0;
    }
    progress.listener_errnum = -e;
  }
  return dsh_seccomp_install(pick(r, false), false);
}

static int restrict_self(const struct run *r, bool listener) {
  int e;
  if (r->launch->unconfined)
    return 0;
  if (r->abi > 0 && (e = dsh_ll_restrict(r->ruleset)) < 0)
    return stopped_at(DSH_STAGE_LANDLOCK, -e);
  if ((e = install_filter(r, listener)) < 0)
    return stopped_at(DSH_STAGE_SECCOMP, -e);
  return 0;
}

static const char *search_path(char *const *env) {
  for (; *env; env++)
    if (strncmp(*env, "PATH=", 5) == 0)
      return *env + 5;
  return "/usr/local/bin:/usr/bin:/bin";
}

/* execvpe with the command's own PATH; returns an errno. */
static int execute(char *const *argv, char *const *env) {
  static char path[PATH_BYTES];
  const char *dir = search_path(env), *end;
  size_t name = strlen(argv[0]);
  int seen = ENOENT;
  if (strchr(argv[0], '/')) {
    execve(argv[0], argv, env);
    return errno;
  }
  for (; name; dir = end + 1) {
    end = strchrnul(dir, ':');
    if ((size_t)(end - dir) + name + 2 <= sizeof path) {
      memcpy(path, dir, (size_t)(end - dir));
      path[end - dir] = '/';
      strcpy(path + (end - dir) + (end > dir), argv[0]);
      execve(path, argv, env);
      if (errno == EACCES)
        seen = EACCES;
      else if (errno != ENOENT && errno != ENOTDIR)
        return errno;
    }
    if (!*end)
      break;
  }
  return seen;
}

static void restore_signals(void) {
  struct sigaction sa;
  memset(&sa, 0, sizeof sa);
  sa.sa_handler = progress.ignore_child ? SIG_IGN : SIG_DFL;
  sigaction(SIGCHLD, &sa, NULL);
  sigprocmask(SIG_SETMASK, &progress.mask, NULL);
}

/* The command's process: every restriction, then execve. */
static int child_main(void *arg) {
  struct run *r = arg;
  const struct launch *l = r->launch;
  int e;
  /* Should the keeper be killed while an execve waits (for a lease, for a
   * file system), nothing runs unwatched afterwards. */
  prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (getppid() != progress.keeper)
    return stopped_at(DSH_STAGE_FORK, ESRCH);
  if (r->own_group && setpgid(0, 0) != 0)
    return stopped_at(DSH_STAGE_FORK, errno);
  if (r->tty != NO_FD)
    tcsetpgrp(r->tty, getpid()); /* SIGTTOU is blocked here */
  if ((e = restrict_self(r, true)) != 0)
    return e;
  progress.ready = true;
  restore_signals();
  return stopped_at(DSH_STAGE_EXEC, execute(l->command, l->env));
}

/* A process made by clone with no exit signal is a "clone child" until its
 * execve, which resets the signal to SIGCHLD (execve(2)). So whether it ever
 * executed can be asked of the kernel, also after it died. */
static bool died_before_exec(pid_t pid) {
  siginfo_t info;
  memset(&info, 0, sizeof info);
  return waitid(P_PID, (id_t)pid, &info,
                WEXITED | WNOHANG | WNOWAIT | (int)__WCLONE) == 0;
}

static void start(struct run *r) {
  static char stack[STACK] __attribute__((aligned(16)));
  if (FAULTY(FAULT_NO_MEMORY))
    fail(DSH_STAGE_FORK, ENOMEM, "clone");
  progress.keeper = getpid();
  r->child = clone(child_main, stack + sizeof stack,
                   CLONE_VM | CLONE_VFORK | CLONE_FILES, r);
  if (r->child < 0)
    fail(DSH_STAGE_FORK, errno, "clone");
  r->listener = progress.listener;
  r->listener_errnum = progress.listener_errnum;
  if (progress.ready)
    report(DSH_KM_READY, DSH_STAGE_NONE, 0, 0, 0);
  if (progress.stage != DSH_STAGE_NONE)
    fail(progress.stage, progress.errnum, r->launch->command[0]);
  if (died_before_exec(r->child))
    fail(DSH_STAGE_EXEC, EINTR, "killed before it started");
  report(DSH_KM_STARTED, DSH_STAGE_NONE, 0, (int32_t)r->child, 0);
  if (r->listener == NO_FD && !r->launch->unconfined)
    report(DSH_KM_NOTICE, DSH_STAGE_LISTENER, r->listener_errnum, 0, 0);
}

/* Without a keeper: this process becomes the command. The close-on-exec
 * status descriptor tells of success by closing. */
static _Noreturn void become(struct run *r) {
  const struct launch *l = r->launch;
  if (!l->read_only && !l->unconfined)
    fail(DSH_STAGE_USAGE, 0, "--no-keeper: workspace-write needs the keeper");
  if (restrict_self(r, false) != 0)
    fail(progress.stage, progress.errnum, "restrict");
  report(DSH_KM_READY, DSH_STAGE_NONE, 0, 0, 0);
  fail(DSH_STAGE_EXEC, execute(l->command, l->env), l->command[0]);
}

static void prepare_keeper(struct run *r) {
  const struct launch *l = r->launch;
  struct sigaction sa;
  struct sigaction old;
  memset(&sa, 0, sizeof sa);
  sa.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &sa, &old);
  progress.ignore_child = old.sa_handler == SIG_IGN;
  keeper_signals(&progress.mask);
  prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
    fail(DSH_STAGE_CAPABILITIES, errno, "dumpable");
  r->scoped = getpid() == 1;
  if (!l->unconfined && !r->scoped && dsh_ll_scope_layer(r->abi) == 0)
    r->scoped = true;
  r->own_group = l->status_fd != NO_FD;
  if (l->foreground) {
    r->tty = fcntl(0, F_DUPFD_CLOEXEC, 3);
    if (r->tty >= 0 && !isatty(r->tty)) {
      close(r->tty);
      r->tty = NO_FD;
    }
  }
}

_Noreturn void stage_inner(struct launch *l) {
  static struct run run;
  struct run *r = &run;
  r->launch = l;
  r->ruleset = r->listener = r->tty = NO_FD;
  if (l->status_fd != NO_FD)
    fcntl(l->status_fd, F_SETFD, FD_CLOEXEC);
  prepare(r, l);
  /* A third party's read-only run needs nobody to stay, except under a
   * runner, where somebody must be pid 1. */
  if (l->no_keeper || (l->status_fd == NO_FD && l->read_only && !l->inner &&
                       !l->observe && !l->unconfined))
    become(r);
  prepare_keeper(r);
  start(r);
  keeper_loop(r);
}
