/* dsh_probe_race.c: what decides for us may look at one thing and act on
 * another. The first bundle of a pair is the target, the second is ours: a
 * thread swaps what a path, a descriptor or a buffer means while the call
 * runs. Done when the target changed, however many tries were refused. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "dsh_probe.h"

enum { BARE_MS = 800, CONFINED_MS = 40, EXCHANGE = 2, SWAP_FD = 60 };

struct race {
  struct probe_ctx *c;
  atomic_bool stop;
  char target[PROBE_PATH_MAX + 64], own[PROBE_PATH_MAX + 64];
  char bait[PROBE_PATH_MAX + 64]; /* the name whose meaning changes */
  int target_fd, own_fd;
};

typedef void *swapper(void *race);
typedef int act_on(const struct race *r);

static int64_t now_ms(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static bool hit(const struct race *r, const struct stat *before) {
  struct stat now;
  return !stat(r->target, &now) &&
         (now.st_ctim.tv_sec != before->st_ctim.tv_sec ||
          now.st_ctim.tv_nsec != before->st_ctim.tv_nsec);
}

/* Runs act while swap turns things over, until the target is hit: bare that
 * only shows that it can be. The last errno, or 0. */
static int run(struct race *r, swapper *swap, act_on *act) {
  pthread_t t;
  bool bare = !strcmp(r->c->spec->set, "bare");
  int64_t end = now_ms() + (bare ? BARE_MS : CONFINED_MS);
  struct stat before;
  int rc = 0, failed = 0;
  if (stat(r->target, &before))
    return errno;
  r->stop = false;
  if (pthread_create(&t, NULL, swap, r))
    return EAGAIN;
  while (now_ms() < end && !hit(r, &before)) {
    rc = act(r);
    failed = rc ? rc : failed;
  }
  r->stop = true;
  pthread_join(t, NULL);
  return failed;
}

static void names(struct race *r, struct probe_ctx *c) {
  memset(r, 0, sizeof *r);
  r->c = c;
  snprintf(r->target, sizeof r->target, "%s", probe_at(c, "f"));
  snprintf(r->own, sizeof r->own, "%s", probe_other(c, "g"));
  snprintf(r->bait, sizeof r->bait, "%s", probe_other(c, "bait"));
}

static int chmod_bait(const struct race *r) {
  return probe_rc(syscall(SYS_fchmodat, AT_FDCWD, r->bait, 0600));
}

/* --- a name, turned over by exchange ------------------------------------- */

static void *swap_names(void *arg) {
  struct race *r = arg;
  char other[PROBE_PATH_MAX + 64];
  snprintf(other, sizeof other, "%s", probe_other(r->c, "g"));
  while (!r->stop)
    (void)syscall(SYS_renameat2, AT_FDCWD, r->bait, AT_FDCWD, other,
                  EXCHANGE);
  return NULL;
}

static int race_symlink_chmod(struct probe_ctx *c) {
  struct race r;
  names(&r, c);
  if (symlink(r.target, r.bait))
    return errno;
  return run(&r, swap_names, chmod_bait);
}

static int xattr_bait(const struct race *r) {
  return probe_rc(setxattr(r->bait, "user.n", "w", 1, 0));
}

static int race_symlink_setxattr(struct probe_ctx *c) {
  struct race r;
  names(&r, c);
  if (symlink(r.target, r.bait))
    return errno;
  return run(&r, swap_names, xattr_bait);
}

static int write_bait(const struct race *r) {
  return probe_write_fd(open(r->bait, O_WRONLY | O_CLOEXEC));
}

static int race_symlink_write(struct probe_ctx *c) {
  struct race r;
  names(&r, c);
  if (symlink(r.target, r.bait))
    return errno;
  return run(&r, swap_names, write_bait);
}

/* --- a directory on the way ---------------------------------------------- */

static void *swap_dirs(void *arg) {
  struct race *r = arg;
  char a[PROBE_PATH_MAX + 64], b[PROBE_PATH_MAX + 64];
  snprintf(a, sizeof a, "%s", probe_other(r->c, "way"));
  snprintf(b, sizeof b, "%s", probe_other(r->c, "t"));
  while (!r->stop)
    (void)syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, EXCHANGE);
  return NULL;
}

static int race_directory_chmod(struct probe_ctx *c) {
  char far[PROBE_PATH_MAX + 64];
  struct race r;
  names(&r, c);
  snprintf(far, sizeof far, "%s", probe_at(c, "t"));
  if (symlink(far, probe_other(c, "way")))
    return errno;
  snprintf(r.bait, sizeof r.bait, "%s", probe_other(c, "way/x"));
  snprintf(r.target, sizeof r.target, "%s", probe_at(c, "t/x"));
  return run(&r, swap_dirs, chmod_bait);
}

/* --- the bytes of the path ----------------------------------------------- */

static char shared_path[PROBE_PATH_MAX + 64];

static void *swap_bytes(void *arg) {
  struct race *r = arg;
  while (!r->stop) {
    memcpy(shared_path, r->own, strlen(r->own) + 1);
    memcpy(shared_path, r->target, strlen(r->target) + 1);
  }
  return NULL;
}

static int chmod_shared(const struct race *r) {
  (void)r;
  return probe_rc(syscall(SYS_fchmodat, AT_FDCWD, shared_path, 0600));
}

static int race_bytes_chmod(struct probe_ctx *c) {
  struct race r;
  names(&r, c);
  memcpy(shared_path, r.own, sizeof r.own);
  return run(&r, swap_bytes, chmod_shared);
}

/* --- a descriptor's number ----------------------------------------------- */

static void *swap_fds(void *arg) {
  struct race *r = arg;
  while (!r->stop) {
    (void)dup2(r->own_fd, SWAP_FD);
    (void)dup2(r->target_fd, SWAP_FD);
  }
  return NULL;
}

static int fchmod_swapped(const struct race *r) {
  (void)r;
  return probe_rc(fchmod(SWAP_FD, 0600));
}

static int futimens_swapped(const struct race *r) {
  (void)r;
  return probe_rc(futimens(SWAP_FD, NULL));
}

static int race_fds(struct probe_ctx *c, act_on *act) {
  struct race r;
  int rc;
  names(&r, c);
  r.own_fd = open(r.own, O_RDONLY | O_CLOEXEC);
  r.target_fd = open(r.target, O_RDONLY | O_CLOEXEC);
  if (r.own_fd < 0 || r.target_fd < 0 || dup2(r.own_fd, SWAP_FD) < 0)
    return errno;
  rc = run(&r, swap_fds, act);
  close(SWAP_FD);
  return rc;
}

static int race_fd_chmod(struct probe_ctx *c) {
  return race_fds(c, fchmod_swapped);
}

static int race_fd_utimens(struct probe_ctx *c) {
  return race_fds(c, futimens_swapped);
}

/* --- the kernel writes for us -------------------------------------------- */

/* A core file in the directory of a process that dies. */
static int core_dump(struct probe_ctx *c) {
  struct rlimit most = { RLIM_INFINITY, RLIM_INFINITY };
  int status;
  pid_t pid = fork();
  if (pid < 0)
    return errno;
  if (!pid) {
    (void)setrlimit(RLIMIT_CORE, &most);
    if (chdir(c->dir))
      _exit(1);
    (void)signal(SIGABRT, SIG_DFL);
    abort();
  }
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) { }
  return WIFSIGNALED(status) && WCOREDUMP(status) ? 0 : EACCES;
}

#define RACE (OP_PAIR | OP_FIRST | OP_RACE)

static const struct probe_op op[] = {
  { "race-symlink-chmod", 'F', "metadata", RACE, race_symlink_chmod, NULL },
  { "race-symlink-setxattr", 'F', "metadata", RACE, race_symlink_setxattr,
    NULL },
  { "race-symlink-write", 'F', "write", RACE, race_symlink_write, NULL },
  { "race-directory-chmod", 'F', "metadata", RACE, race_directory_chmod,
    NULL },
  { "race-path-bytes-chmod", 'F', "metadata", RACE, race_bytes_chmod, NULL },
  { "race-descriptor-fchmod", 'F', "metadata", RACE, race_fd_chmod, NULL },
  { "race-descriptor-futimens", 'F', "metadata", RACE, race_fd_utimens,
    NULL },
  { "core-dump", 'F', "create", OP_ONE, core_dump, NULL },
};

const struct probe_family probe_race = { op, PROBE_LEN(op) };
