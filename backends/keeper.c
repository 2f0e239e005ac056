/* keeper.c: the resident half. One loop over three descriptors: the status
 * socket (the host's wishes, and its end closing is the lifeline), signals,
 * and the listener. It ends only when nothing of the tree is left. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "launch.h"

enum {
  KILL_LIMIT_MS = 10000, /* a tree that does not die (D state) is given up */
  PAUSE_US_MIN = 50,
  PAUSE_US_MAX = 2000
};

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

void keeper_signals(void *old_mask) {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, old_mask);
}

/* --- the tree ------------------------------------------------------------ */

/* Signals what descends from `pid`, as /proc lists it. Only where kill(-1)
 * would reach further than the tree: a process that keeps forking can outrun
 * one walk, so callers repeat it. Parents come before their children, as with
 * kill(-1): a shell should hear of SIGTERM before it hears of its child's
 * end. Who its children are is read before it can die of it. */
static void walk(pid_t pid, int signum, int depth) {
  char path[64], text[4096];
  ssize_t n;
  char *p;
  int fd;
  snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
  if (depth > 64 || (fd = open(path, O_RDONLY | O_CLOEXEC)) < 0) {
    if (depth)
      kill(pid, signum);
    return;
  }
  n = read(fd, text, sizeof text - 1);
  close(fd);
  if (depth)
    kill(pid, signum);
  if (n <= 0)
    return;
  text[n] = '\0';
  for (p = text; *p;) {
    pid_t child = (pid_t)strtol(p, &p, 10);
    if (child <= 0)
      break;
    walk(child, signum, depth + 1);
    while (*p == ' ')
      p++;
  }
}

static void signal_tree(const struct run *r, int signum) {
  if (r->scoped)
    kill(-1, signum); /* in one step: no fork gets by (kernel: tasklist) */
  else
    walk(getpid(), signum, 0);
}

/* Kills and reaps everything; false if something would not die in time. */
static bool end_tree(const struct run *r) {
  int64_t limit = now_ms() + KILL_LIMIT_MS;
  long pause_us = PAUSE_US_MIN;
  for (;;) {
    struct timespec t = {0, pause_us * 1000};
    pid_t pid;
    signal_tree(r, SIGKILL);
    do
      pid = waitpid(-1, NULL, WNOHANG | __WALL);
    while (pid > 0);
    if (pid < 0 && errno == ECHILD)
      return true;
    if (now_ms() > limit)
      return false;
    nanosleep(&t, NULL);
    if (pause_us < PAUSE_US_MAX)
      pause_us *= 2;
  }
}

/* --- ends ---------------------------------------------------------------- */

/* For a caller who knows nothing of packets: the same end as the command's. */
static _Noreturn void mirror(int status) {
  struct rlimit none = {0, 0};
  sigset_t empty;
  int signum;
  if (WIFEXITED(status))
    _exit(WEXITSTATUS(status));
  signum = WTERMSIG(status);
  setrlimit(RLIMIT_CORE, &none);
  signal(signum, SIG_DFL);
  sigemptyset(&empty);
  sigprocmask(SIG_SETMASK, &empty, NULL);
  kill(getpid(), signum);
  _exit(128 + signum); /* pid 1 of a namespace does not die of it */
}

static _Noreturn void finish(const struct run *r, int status) {
  report_exited(status);
  if (r->listener != NO_FD)
    close(r->listener); /* nobody of a dying tree waits for an answer */
  if (!end_tree(r))
    report(DSH_KM_NOTICE, DSH_STAGE_NONE, EBUSY, 0, 0);
  report(DSH_KM_GONE, DSH_STAGE_NONE, 0, 0, 0);
  mirror(status);
}

static _Noreturn void host_gone(const struct run *r) {
  end_tree(r);
  _exit(EXIT_OURS);
}

/* --- events -------------------------------------------------------------- */

/* The command stopped (Ctrl-Z). Our host takes the terminal back itself; a
 * shell that started us sees us stop, as it would the command. */
static void child_stopped(const struct run *r, int signum) {
  report(DSH_KM_STOPPED, DSH_STAGE_NONE, 0, signum, 0);
  if (r->launch->status_fd == NO_FD && getpid() != 1)
    kill(getpid(), SIGSTOP);
}

static void reap(const struct run *r) {
  int status;
  pid_t pid;
  while ((pid = waitpid(-1, &status,
                        WNOHANG | WUNTRACED | WCONTINUED | __WALL)) > 0) {
    if (pid != r->child)
      continue;
    if (WIFSTOPPED(status))
      child_stopped(r, WSTOPSIG(status));
    else if (WIFCONTINUED(status))
      report(DSH_KM_CONTINUED, DSH_STAGE_NONE, 0, 0, 0);
    else
      finish(r, status);
  }
}

static void to_command(const struct run *r, int signum) {
  if (signum == SIGCONT && r->tty != NO_FD)
    tcsetpgrp(r->tty, r->child);
  kill(r->own_group ? -r->child : r->child, signum);
}

/* What a person sends to our pid is meant for the command. What a terminal
 * sends (SI_KERNEL) has reached the command by itself. */
static void forward(const struct run *r, const struct signalfd_siginfo *s) {
  int signum = (int)s->ssi_signo;
  if (signum == SIGCHLD) {
    reap(r);
    return;
  }
  if (s->ssi_code == SI_KERNEL || s->ssi_pid == (uint32_t)getpid())
    return;
  to_command(r, signum);
}

static void read_signals(const struct run *r, int fd) {
  struct signalfd_siginfo s[16];
  ssize_t i, n = read(fd, s, sizeof s);
  for (i = 0; i < n / (ssize_t)sizeof *s; i++)
    forward(r, &s[i]);
}

static void read_wish(const struct run *r, int64_t *kill_at) {
  struct dsh_km km;
  ssize_t n = recv(r->launch->status_fd, &km, sizeof km, MSG_DONTWAIT);
  if (n == 0)
    host_gone(r);
  if (n != (ssize_t)sizeof km || km.version != DSH_KEEPER_VERSION)
    return;
  if (km.type == DSH_KM_SIGNAL) {
    to_command(r, km.value);
  } else if (km.type == DSH_KM_END && *kill_at < 0) {
    signal_tree(r, SIGTERM);
    signal_tree(r, SIGCONT); /* a stopped process can end as well */
    *kill_at = now_ms() + (km.value > 0 ? km.value : 0);
  }
}

static void read_listener(struct run *r) {
  static union {
    struct dsh_notif n;
    char room[512]; /* a newer kernel may write a longer record */
  } u;
  memset(&u, 0, sizeof u);
  if (ioctl(r->listener, DSH_NOTIF_RECV, &u) != 0)
    return; /* ENOENT: the caller died meanwhile */
  if (is_meta_call(u.n.data.nr))
    metadata_answer(r, &u.n);
  else
    observe_call(r, &u.n);
}

/* The command's 0, 1 and 2 are its own: nobody waiting for their end should
 * wait for us. */
static void leave_stdio(void) {
  int fd, null = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (fd = 0; fd <= 2; fd++)
    if (null < 0 || dup2(null, fd) < 0)
      close(fd);
  if (null > 2)
    close(null);
}

_Noreturn void keeper_loop(struct run *r) {
  enum { SIGNALS, STATUS, LISTENER, COUNT };
  struct pollfd p[COUNT];
  int64_t kill_at = -1;
  sigset_t all;
  sigfillset(&all);
  p[SIGNALS] = (struct pollfd){signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK),
                               POLLIN, 0};
  p[STATUS] = (struct pollfd){r->launch->status_fd, POLLIN, 0};
  p[LISTENER] = (struct pollfd){r->listener, POLLIN, 0};
  if (p[SIGNALS].fd < 0)
    host_gone(r);
  leave_stdio();
  if (r->listener != NO_FD)
    ioctl(r->listener, DSH_NOTIF_SET_FLAGS, DSH_NOTIF_SYNC_WAKE_UP);
  for (;;) {
    int64_t left = kill_at < 0 ? -1 : kill_at - now_ms();
    if (kill_at >= 0 && left <= 0) {
      signal_tree(r, SIGKILL);
      left = 1;
    }
    if (poll(p, COUNT, (int)left) < 0 && errno != EINTR)
      host_gone(r);
    if (p[LISTENER].revents & POLLIN)
      read_listener(r);
    else if (p[LISTENER].revents)
      p[LISTENER].fd = NO_FD; /* nobody under the filter is left */
    if (p[SIGNALS].revents)
      read_signals(r, p[SIGNALS].fd);
    if (p[STATUS].revents & POLLIN)
      read_wish(r, &kill_at);
    else if (p[STATUS].revents)
      host_gone(r);
  }
}
