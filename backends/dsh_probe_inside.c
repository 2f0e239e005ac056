/* dsh_probe_inside.c: the half that is confined. It walks the cells and says
 * what each call answered; it decides nothing.
 *
 * Descriptor 1 is a socket to the harness. For each cell it sends
 * "R index errno\n" and waits for one byte before the next. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dsh_probe.h"

enum { RESULT_FD = 1, ACTOR_RESULT_FD = 30, DIR_FD = 31 };

int probe_rc(long result) {
  return result < 0 ? errno : 0;
}

const char *probe_at(const struct probe_ctx *c, const char *name) {
  static _Thread_local char buf[8][PROBE_PATH_MAX + 64];
  static _Thread_local unsigned turn;
  char *out = buf[turn++ & 7];
  snprintf(out, sizeof buf[0], "%s%s", c->prefix, name);
  return out;
}

const char *probe_plain(const struct probe_ctx *c, const char *name) {
  if (c->dfd != AT_FDCWD)
    (void)fchdir(c->dfd);
  return probe_at(c, name);
}

const char *probe_other(const struct probe_ctx *c, const char *name) {
  static _Thread_local char buf[2][PROBE_PATH_MAX + 64];
  static _Thread_local unsigned turn;
  char *out = buf[turn++ & 1];
  snprintf(out, sizeof buf[0], "%s/%s", c->other, name);
  return out;
}

int probe_write_fd(int fd) {
  int rc;
  if (fd < 0)
    return errno;
  rc = write(fd, "changed", 7) < 0 ? errno : 0;
  close(fd);
  return rc;
}

int probe_sync(const struct probe_ctx *c) {
  char byte;
  if (write(c->sync_fd, "S\n", 2) != 2 || read(c->sync_fd, &byte, 1) != 1)
    return EPIPE;
  return byte == 'y' ? 0 : PROBE_NO_CALL;
}

/* --- how the bundle is reached ------------------------------------------- */

static int reach(struct probe_ctx *c, enum probe_form form) {
  int fd;
  c->dfd = AT_FDCWD;
  switch (form) {
    case FORM_ABSOLUTE:
      snprintf(c->prefix, sizeof c->prefix, "%.500s/", c->dir);
      return 0;
    case FORM_RELATIVE:
      c->prefix[0] = '\0';
      return probe_rc(chdir(c->dir));
    case FORM_SYMLINK:
      snprintf(c->prefix, sizeof c->prefix, "%.500s.via/", c->dir);
      return 0;
    case FORM_DOTDOT:
      snprintf(c->prefix, sizeof c->prefix, "%.500s/d/../", c->dir);
      return 0;
    case FORM_PROC_ROOT:
      snprintf(c->prefix, sizeof c->prefix, "/proc/self/root%.480s/", c->dir);
      return 0;
    case FORM_DIRFD:
    case FORM_PROC_FD:
      fd = open(c->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
      if (fd < 0)
        return errno;
      if (dup2(fd, DIR_FD) < 0)
        return errno;
      if (fd != DIR_FD)
        close(fd);
      c->prefix[0] = '\0';
      if (form == FORM_DIRFD)
        c->dfd = DIR_FD;
      else
        snprintf(c->prefix, sizeof c->prefix, "/proc/self/fd/%d/", DIR_FD);
      return 0;
    case FORM_COUNT:
      break;
  }
  return EINVAL;
}

/* --- who acts ------------------------------------------------------------ */

/* Everything an actor needs; the light one shares our memory. */
struct act {
  const struct probe_spec *spec;
  const struct probe_cell *cell;
  struct probe_ctx ctx;
  int result;
};

static void *act_thread(void *arg) {
  struct act *a = arg;
  a->result = a->cell->op->run(&a->ctx);
  return NULL;
}

/* Goes to the bundle and runs the operation. */
static void act(struct act *a) {
  pthread_t t;
  umask(022);
  a->result = reach(&a->ctx, a->cell->form);
  if (a->result)
    return;
  if (a->cell->actor == ACTOR_THREAD &&
      !pthread_create(&t, NULL, act_thread, a))
    pthread_join(t, NULL);
  else
    a->result = a->cell->op->run(&a->ctx);
}

static void act_begin(struct act *a, const struct probe_spec *s,
                      const struct probe_cell *c, int sync_fd) {
  memset(a, 0, sizeof *a);
  a->spec = s;
  a->cell = c;
  a->result = PROBE_KILLED;
  a->ctx.spec = s;
  a->ctx.dfd = AT_FDCWD;
  a->ctx.sync_fd = sync_fd;
  probe_bundle_dir(s, c, false, a->ctx.dir);
  probe_bundle_dir(s, c, true, a->ctx.other);
}

/* Processes that share memory but neither descriptors nor directory: a tenth
 * of the cost of fork. Whoever starts one sleeps until it ends; a hang ends by
 * alarm. A grandchild is one that starts another. */
static int start_light(int (*entry)(void *), char *top, struct act *a) {
  int status;
  pid_t pid = clone(entry, top, CLONE_VM | CLONE_VFORK | SIGCHLD, a);
  if (pid < 0)
    return errno;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) { }
  if (WIFSIGNALED(status))
    return WTERMSIG(status) == SIGALRM ? ETIMEDOUT : PROBE_KILLED;
  return a->result;
}

static int light_last(void *arg) {
  (void)alarm(PROBE_CELL_MS / 1000);
  act(arg);
  _exit(0);
}

enum { STACK_BYTES = 1 << 18 };

static int light_first(void *arg) {
  static char stack[STACK_BYTES] __attribute__((aligned(16)));
  struct act *a = arg;
  if (a->cell->actor != ACTOR_GRANDCHILD) {
    if (a->cell->actor == ACTOR_SESSION)
      (void)setsid();
    return light_last(arg);
  }
  a->result = start_light(light_last, stack + sizeof stack, a);
  _exit(0);
}

static int run_light(struct act *a) {
  static char stack[STACK_BYTES] __attribute__((aligned(16)));
  return start_light(light_first, stack + sizeof stack, a);
}

/* An ordinary process: for threads, namespaces and what forks itself. */
static void heavy_main(struct act *a) {
  (void)alarm(PROBE_CELL_MS / 1000);
  act(a);
  (void)!write(ACTOR_RESULT_FD, &a->result, sizeof a->result);
  _exit(0);
}

/* The result comes through a pipe; its end without one means that the actor
 * was killed. */
static int run_heavy(struct act *a) {
  int p[2], result = PROBE_KILLED, status;
  pid_t pid;
  if (pipe2(p, O_CLOEXEC))
    return errno;
  pid = fork();
  if (!pid) {
    if (dup2(p[1], ACTOR_RESULT_FD) < 0)
      _exit(1);
    (void)fcntl(ACTOR_RESULT_FD, F_SETFD, FD_CLOEXEC);
    close(p[1]);
    close(p[0]);
    heavy_main(a);
  }
  close(p[1]);
  if (pid < 0)
    result = errno;
  else if (read(p[0], &result, sizeof result) != sizeof result)
    result = PROBE_KILLED;
  close(p[0]);
  while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) { }
  return result;
}

int probe_run_cell(const struct probe_spec *s, const struct probe_cell *c,
                   int sync_fd) {
  static struct act a;
  act_begin(&a, s, c, sync_fd);
  /* a user namespace is not for who shares memory */
  if (c->actor == ACTOR_THREAD || !strcmp(c->op->effect, "mount") ||
      (!s->hurry && c->op->flags & (OP_ONE | OP_HOST | OP_PAIR)))
    return run_heavy(&a);
  return run_light(&a);
}

int probe_inside(const char *spec_path) {
  static struct probe_cell cells[PROBE_CELLS_MAX];
  struct probe_spec s;
  char line[64], byte;
  size_t n;
  if (probe_spec_read(&s, spec_path)) {
    fprintf(stderr, "dsh-probe: %s: %s\n", spec_path, strerror(errno));
    return 2;
  }
  (void)signal(SIGPIPE, SIG_IGN);
  n = probe_cells(&s, cells);
  for (size_t i = 0; i < n; i++) {
    int len, rc = probe_run_cell(&s, &cells[i], RESULT_FD);
    len = snprintf(line, sizeof line, "R %zu %d\n", i, rc);
    if (write(RESULT_FD, line, (size_t)len) != len ||
        read(RESULT_FD, &byte, 1) != 1)
      return 2;
  }
  return 0;
}
