/* spawn.c: starts a plan. A child that shares our memory until its execve
 * (as posix_spawn's does) sets up descriptors, directory, group and signals;
 * why it failed is read from that memory. For our launcher it gets one more
 * descriptor, the status socket; the command never has it. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "direct.h"
#include "run.h"
#include "uapi.h"

extern char **environ;

enum {
  STACK = 64 * 1024,
  PIPE_BYTES = 1 << 20,
  PASS_MAX = 64,
  EXTRA_WORDS = 16 + 2 * PASS_MAX
};

/* What the child needs, prepared so that it only makes system calls. */
struct start {
  const struct dsh_spawn_opts *opts;
  char **argv;
  char *const *env;
  int io[3];           /* becomes 0, 1, 2 */
  int status, status_to; /* socket and the number it gets; -1: none */
  int cwd;             /* directory descriptor, or -1 */
  char *const *paths;  /* where argv[0] may be, NULL terminated */
  int pidfd;
  bool is_direct;      /* restrictions are applied by the child itself */
  struct dsh_direct direct;
  const char *stage;   /* where it failed */
  int errnum;
};

/* --- the child ----------------------------------------------------------- */

static int give_up(struct start *s, const char *stage) {
  s->errnum = errno;
  s->stage = stage;
  _exit(127);
}

static void default_signals(void) {
  /* The kernel's record, all zero: default action, no flags, empty mask. By
   * the system call, since a libc keeps two signals to itself, which a caller
   * may have been started with ignored all the same. */
  static const unsigned char dfl[64];
  sigset_t none;
  int sig;
  for (sig = 1; sig < NSIG; sig++)
    if (sig != SIGKILL && sig != SIGSTOP)
      syscall(SYS_rt_sigaction, sig, dfl, NULL, (size_t)(NSIG - 1) / 8);
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Everything above 2 closes at execve, but for what is passed on. */
static void close_rest(const struct start *s) {
  size_t i;
  if (syscall(DSH_NR_close_range, 3u, ~0u, 4u /* CLOEXEC */) != 0) {
    int fd, max = (int)sysconf(_SC_OPEN_MAX);
    for (fd = 3; fd < max && fd < 65536; fd++)
      fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
  for (i = 0; i < s->opts->n_pass_fds; i++)
    fcntl(s->opts->pass_fds[i], F_SETFD, 0);
  if (s->status >= 0)
    fcntl(s->status_to, F_SETFD, 0);
}

/* As execvpe with the command's own PATH. */
static int execute(struct start *s) {
  char *const *path;
  int seen = ENOENT;
  for (path = s->paths; *path; path++) {
    execve(*path, s->argv, s->env);
    if (*path == s->argv[0])
      return give_up(s, "exec");
    if (errno == EACCES)
      seen = EACCES;
    else if (errno != ENOENT && errno != ENOTDIR)
      return give_up(s, "exec");
  }
  errno = seen;
  return give_up(s, "exec");
}

static int child_main(void *arg) {
  struct start *s = arg;
  const char *stage;
  int i;
  if (s->opts->pty) {
    if (setsid() < 0 || ioctl(s->io[0], TIOCSCTTY, 0) != 0)
      return give_up(s, "terminal");
  } else if (setpgid(0, 0) != 0) {
    return give_up(s, "group");
  }
  if (s->cwd >= 0 && fchdir(s->cwd) != 0)
    return give_up(s, "cwd");
  for (i = 0; i < 3; i++)
    if (dup2(s->io[i], i) < 0)
      return give_up(s, "stdio");
  if (s->status >= 0 && dup2(s->status, s->status_to) < 0)
    return give_up(s, "status");
  close_rest(s);
  if (s->is_direct && (stage = dsh_direct_apply(&s->direct)))
    return give_up(s, stage);
  default_signals();
  return execute(s);
}

/* --- preparing ----------------------------------------------------------- */

/* The number that the launcher gets the status socket under. Descriptors of
 * our own that the child overwrites are kept above it. */
static int free_number(const struct dsh_spawn_opts *o) {
  int n = DSH_KEEPER_FD;
  size_t i;
  for (i = 0; i < o->n_pass_fds;)
    if (o->pass_fds[i] == n) {
      n++;
      i = 0;
    } else {
      i++;
    }
  return n;
}

static int check_opts(const struct dsh_spawn_opts *o, struct dsh_error *err) {
  size_t i;
  if (o->n_pass_fds > PASS_MAX)
    return dsh_fail(err, DSH_E_MISUSE, 0, "spawn",
                    "pass_fds: %zu descriptors, at most %d", o->n_pass_fds,
                    PASS_MAX);
  for (i = 0; i < o->n_pass_fds; i++)
    if (o->pass_fds[i] < 3 || fcntl(o->pass_fds[i], F_GETFD) < 0)
      return dsh_fail(err, DSH_E_MISUSE, o->pass_fds[i] < 3 ? 0 : EBADF,
                      "spawn", "pass_fds[%zu]: descriptor %d", i + 1,
                      o->pass_fds[i]);
  if (o->cwd && o->cwd[0] != '/')
    return dsh_fail(err, DSH_E_MISUSE, 0, "spawn",
                    "cwd: expected an absolute path, got \"%s\"", o->cwd);
  if (o->timeout_ms < 0 || o->grace_ms < 0)
    return dsh_fail(err, DSH_E_MISUSE, 0, "spawn",
                    "timeout and grace: expected positive numbers");
  return 0;
}

/* One of 0-2: ours[0] is the run's end (-1: none), returns the child's. */
static int open_stdio(enum dsh_stdio kind, int number, int given, int above,
                      int *ours) {
  int p[2], fd;
  *ours = -1;
  switch (kind) {
  case DSH_STDIO_NULL:
    break;
  case DSH_STDIO_INHERIT:
    fd = fcntl(number, F_DUPFD_CLOEXEC, above);
    if (fd >= 0 || errno != EBADF)
      return fd;
    break; /* closed in the caller: nothing to inherit */
  case DSH_STDIO_FD:
    return fcntl(given, F_DUPFD_CLOEXEC, above);
  case DSH_STDIO_PIPE:
    if (pipe2(p, O_CLOEXEC) != 0)
      return -1;
    fd = number == 0 ? p[0] : p[1];
    *ours = raise_fd(number == 0 ? p[1] : p[0], above);
    if (*ours < 0) {
      close(fd);
      return -1;
    }
    fcntl(*ours, F_SETFL, O_NONBLOCK | (number == 0 ? O_WRONLY : O_RDONLY));
    if (number)
      fcntl(*ours, F_SETPIPE_SZ, PIPE_BYTES); /* or what it may be */
    return raise_fd(fd, above);
  }
  fd = open("/dev/null", (number ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
  return fd < 0 ? fd : raise_fd(fd, above);
}

static int open_terminal(struct dsh_run *r, const struct dsh_spawn_opts *o,
                         struct start *s, int above) {
  if (pty_open(o->rows, o->cols, above, &r->source[SOURCE_OUT].fd, s->io) != 0)
    return -1;
  r->source[SOURCE_IN].fd =
      fcntl(r->source[SOURCE_OUT].fd, F_DUPFD_CLOEXEC, above);
  return r->source[SOURCE_IN].fd < 0 ? -1 : 0;
}

static int open_all(struct dsh_run *r, const struct dsh_spawn_opts *o,
                    struct start *s, struct dsh_error *err) {
  int above = (s->status_to = free_number(o)) + 1, sv[2];
  if (o->cwd) {
    s->cwd = open(o->cwd, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (s->cwd < 0)
      return dsh_fail_path(err, DSH_E_SPAWN_FAILED, errno, "cwd", o->cwd,
                           "working directory \"%s\"", o->cwd);
    s->cwd = raise_fd(s->cwd, above);
    if (s->cwd < 0)
      return dsh_fail(err, DSH_E_SPAWN_FAILED, errno, "cwd", "descriptor");
  }
  if (o->pty) {
    if (open_terminal(r, o, s, above) != 0)
      return dsh_fail(err, DSH_E_SPAWN_FAILED, errno, "terminal", "terminal");
  } else {
    s->io[0] = open_stdio(o->in, 0, o->in_fd, above,
                          &r->source[SOURCE_IN].fd);
    s->io[1] = open_stdio(o->out, 1, o->out_fd, above,
                          &r->source[SOURCE_OUT].fd);
    s->io[2] = open_stdio(o->err, 2, o->err_fd, above,
                          &r->source[SOURCE_ERR].fd);
    if (s->io[0] < 0 || s->io[1] < 0 || s->io[2] < 0)
      return dsh_fail(err, DSH_E_SPAWN_FAILED, errno, "stdio",
                      "standard descriptors");
  }
  if (!r->has_keeper)
    return 0;
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) != 0)
    return dsh_fail(err, DSH_E_SPAWN_FAILED, errno, "status", "status socket");
  s->status = raise_fd(sv[1], above);
  r->source[SOURCE_STATUS].fd = raise_fd(sv[0], above);
  return s->status < 0 || r->source[SOURCE_STATUS].fd < 0
             ? dsh_fail(err, DSH_E_SPAWN_FAILED, errno, "status",
                        "status socket")
             : 0;
}

/* A directory would let the command walk from it (openat), whatever the
 * sandbox shows it. The launcher refuses it too, for third parties. */
static int check_stdin(const struct start *s, struct dsh_error *err) {
  struct stat st;
  int i;
  for (i = 0; i < 3; i++)
    if (fstat(s->io[i], &st) == 0 && S_ISDIR(st.st_mode))
      return dsh_fail(err, DSH_E_SPAWN_FAILED, EISDIR, "stdio",
                      "descriptor %d", i);
  return 0;
}

/* The launcher's argv with our words after its first; what has no launcher
 * of its own goes behind that of `keeper`, which restricts nothing. */
static char **make_argv(struct dsh_run *r, const struct dsh_plan *plan,
                        const struct dsh_spawn_opts *o,
                        const struct start *s) {
  struct dsh_strv v = {NULL, 0, 0};
  struct dsh_arena *a = &r->arena;
  size_t i = s->is_direct ? plan->argv_at : 0;
  if (r->has_keeper) {
    dsh_strv_add(a, &v, plan->launcher ? plan->argv.v[i++] : o->keeper);
    dsh_strv_add(a, &v, "--status-fd");
    dsh_strv_add(a, &v, dsh_format(a, "%d", s->status_to));
    if (o->observe && plan->confined)
      dsh_strv_add(a, &v, "--observe");
    if (o->foreground || o->pty)
      dsh_strv_add(a, &v, "--foreground");
    if (o->no_keeper)
      dsh_strv_add(a, &v, "--no-keeper");
    for (size_t k = 0; k < o->n_pass_fds; k++) {
      dsh_strv_add(a, &v, "--pass-fd");
      dsh_strv_add(a, &v, dsh_format(a, "%d", o->pass_fds[k]));
    }
    if (!plan->launcher) {
      dsh_strv_add(a, &v, "--unconfined");
      dsh_strv_add(a, &v, "--");
    }
  }
  for (; i < plan->argv.n; i++)
    dsh_strv_add(a, &v, plan->argv.v[i]);
  return a->failed ? NULL : (char **)(uintptr_t)v.v;
}

/* Where argv[0] may be, by the command's own PATH. */
static char **make_paths(struct dsh_run *r, const struct start *s) {
  const char *dirs = "/usr/local/bin:/usr/bin:/bin", *end;
  struct dsh_strv v = {NULL, 0, 0};
  struct dsh_arena *a = &r->arena;
  char *const *e;
  if (strchr(s->argv[0], '/')) {
    dsh_strv_add(a, &v, s->argv[0]);
    return a->failed ? NULL : (char **)(uintptr_t)v.v;
  }
  for (e = s->env; *e; e++)
    if (strncmp(*e, "PATH=", 5) == 0)
      dirs = *e + 5;
  for (; s->argv[0][0]; dirs = end + 1) {
    end = strchrnul(dirs, ':');
    dsh_strv_add(a, &v, dsh_format(a, "%.*s%s%s", (int)(end - dirs), dirs,
                                   end > dirs ? "/" : "", s->argv[0]));
    if (!*end)
      break;
  }
  if (!v.n) {
    dsh_strv_add(a, &v, "");
    v.v[0] = NULL;
  }
  return a->failed ? NULL : (char **)(uintptr_t)v.v;
}

/* --- starting ------------------------------------------------------------ */

static pid_t start_child(struct start *s) {
  sigset_t all, old;
  pid_t pid;
  int cancel;
  void *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (stack == MAP_FAILED)
    return -1;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  pid = clone(child_main, (char *)stack + STACK,
              CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, s, &s->pidfd);
  if (pid < 0)
    s->errnum = errno;
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  pthread_setcancelstate(cancel, NULL);
  munmap(stack, STACK);
  return pid;
}

static bool is_restriction(const char *stage) {
  return strcmp(stage, "capabilities") == 0 || strcmp(stage, "grant") == 0 ||
         strcmp(stage, "landlock") == 0 || strcmp(stage, "seccomp") == 0;
}

/* A start that failed before execve: the caller's error, by whose it is. */
static int start_failed(struct dsh_run *r, const struct dsh_plan *plan,
                        const struct start *s, struct dsh_error *err) {
  const char *stage = s->stage ? s->stage : "fork";
  bool own = (!plan->confined || s->is_direct) && !r->has_keeper;
  if (strcmp(stage, "exec") == 0 && (own || s->errnum == E2BIG)) {
    /* No runner between, or its argv is the command's and too long: the
     * command itself cannot be executed. */
    r->has_keeper = false; /* it says nothing */
    r->outcome.started = DSH_STARTED_NO;
    r->outcome.stage = "exec";
    r->outcome.errnum = s->errnum;
    return 0;
  }
  if (strcmp(stage, "exec") == 0 && plan->confined)
    return dsh_fail_path(err, DSH_E_SANDBOX_UNAVAILABLE, s->errnum, "runner",
                         plan->argv.v[0], "cannot execute the runner \"%s\"",
                         plan->argv.v[0]);
  if (is_restriction(stage))
    return dsh_fail(err, DSH_E_SANDBOX_UNAVAILABLE, s->errnum, stage,
                    "stage %s", stage);
  return dsh_fail(err, DSH_E_SPAWN_FAILED, s->errnum, stage,
                  "cannot start \"%s\"", plan->argv.v[plan->argv_at]);
}

static void remember_terminal(struct dsh_run *r,
                              const struct dsh_spawn_opts *o) {
  int fd;
  for (fd = 0; o->foreground && !o->pty && fd < 3 && r->tty < 0; fd++)
    if (isatty(fd)) {
      r->tty = fcntl(fd, F_DUPFD_CLOEXEC, 10);
      r->tty_group = tcgetpgrp(fd);
    }
}

static struct dsh_run *new_run(const struct dsh_plan *plan,
                               const struct dsh_spawn_opts *o) {
  struct dsh_run *r = calloc(1, sizeof *r);
  size_t tail = o->tail_bytes ? o->tail_bytes : DSH_TAIL_BYTES;
  size_t n;
  int i;
  if (!r)
    return NULL;
  dsh_arena_init(&r->arena);
  for (i = 0; i < SOURCE_COUNT; i++)
    r->source[i] = (struct source){r, (enum source_kind)i, -1};
  r->tty = -1;
  r->has_keeper = plan->launcher || (o->keeper && !o->no_keeper);
  r->no_keeper = o->no_keeper && plan->launcher;
  r->foreign = plan->confined && !plan->launcher;
  for (n = 1; plan->launcher && n < plan->argv_at; n++)
    r->apart = r->apart || strcmp(plan->argv.v[n], "--runner") == 0;
  r->keep_input = o->pty || (o->in == DSH_STDIO_PIPE && !o->input);
  r->confined = plan->confined;
  r->pty = o->pty;
  r->grace_ms = o->grace_ms ? o->grace_ms : DSH_GRACE_MS;
  r->last_stage = DSH_STAGE_LAUNCHER;
  r->outcome.started = DSH_STARTED_UNKNOWN;
  r->outcome.denials_known = r->has_keeper && o->observe && plan->confined;
  if (stream_open(&r->out, tail) != 0 || stream_open(&r->err, tail) != 0)
    goto fail;
  if (o->spill_dir && !(r->spill_dir = strdup(o->spill_dir)))
    goto fail;
  if (o->input_len) {
    r->input = malloc(o->input_len);
    if (!r->input)
      goto fail;
    memcpy(r->input, o->input, o->input_len);
    r->input_len = o->input_len;
  }
  return r;
fail:
  dsh_run_free(r);
  return NULL;
}

static void close_start(struct start *s) {
  int i;
  for (i = 0; i < 3; i++)
    if (s->io[i] >= 0)
      close(s->io[i]);
  if (s->status >= 0)
    close(s->status);
  if (s->cwd >= 0)
    close(s->cwd);
  dsh_direct_close(&s->direct);
}

/* The run never came to be: nothing of it is with the thread. */
static void discard(struct dsh_run *r) {
  int i;
  for (i = 0; i < SOURCE_COUNT; i++)
    if (r->source[i].fd >= 0)
      close(r->source[i].fd);
  r->finished = true;
  dsh_run_free(r);
}

static int launch(struct dsh_run *r, const struct dsh_plan *plan,
                  const struct dsh_spawn_opts *o, struct start *s,
                  struct dsh_error *err) {
  int direct = 0;
  if (o->no_keeper && plan->launcher)
    direct = dsh_direct_prepare(plan, &s->direct, err);
  if (direct < 0)
    return -1;
  if (direct > 0) {
    s->is_direct = true;
    r->has_keeper = r->no_keeper = false;
    r->outcome.denials_known = false;
  }
  if (open_all(r, o, s, err) != 0 || check_stdin(s, err) != 0)
    return -1;
  s->argv = make_argv(r, plan, o, s);
  if (!s->argv)
    return dsh_fail(err, DSH_E_NO_MEMORY, ENOMEM, "spawn", "arguments");
  s->env = o->env ? (char *const *)(uintptr_t)o->env : environ;
  s->paths = make_paths(r, s);
  if (!s->paths)
    return dsh_fail(err, DSH_E_NO_MEMORY, ENOMEM, "spawn", "arguments");
  remember_terminal(r, o);
  r->started_ms = loop_now_ms();
  r->deadline_ms = o->timeout_ms ? r->started_ms + o->timeout_ms : 0;
  r->pid = start_child(s);
  if (r->pid > 0 && s->stage) {
    close(s->pidfd);
    while (waitpid(r->pid, NULL, 0) < 0 && errno == EINTR)
      ;
    r->reaped = true;
  }
  if (r->pid < 0 || s->stage) {
    r->reaped = true;
    return start_failed(r, plan, s, err);
  }
  if (plan->confined && !r->has_keeper && !s->is_direct)
    r->outcome.started = DSH_STARTED_UNKNOWN; /* the runner's start only */
  else if (!r->has_keeper)
    r->outcome.started = DSH_STARTED_YES;
  r->source[SOURCE_PROCESS].fd = s->pidfd;
  return 0;
}

struct dsh_run *dsh_run_start(const struct dsh_plan *plan,
                              const struct dsh_spawn_opts *o,
                              struct dsh_error *err) {
  struct start s = {
      .opts = o, .io = {-1, -1, -1}, .status = -1, .cwd = -1, .pidfd = -1,
      .direct = {-1, 0}};
  struct dsh_run *r;
  int e;
  if (check_opts(o, err) != 0)
    return NULL;
  r = new_run(plan, o);
  if (!r) {
    dsh_fail(err, DSH_E_NO_MEMORY, ENOMEM, "spawn", "run");
    return NULL;
  }
  e = launch(r, plan, o, &s, err);
  close_start(&s);
  if (e == 0 && (e = loop_add(r)) != 0) {
    dsh_fail(err, DSH_E_SPAWN_FAILED, e, "thread", "background thread");
    if (!r->reaped) {
      kill(-r->pid, SIGKILL);
      waitpid(r->pid, NULL, 0);
    }
  }
  if (e != 0) {
    discard(r);
    return NULL;
  }
  return r;
}
