/* loop.c: the one background thread. It drains outputs, feeds input, listens
 * to keepers and keeps deadlines for all runs of the process.
 *
 * One mutex guards the state of all runs; the thread holds it while it works
 * through what epoll reported and never while it waits. It blocks every
 * signal. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "run.h"

enum {
  EVENTS = 64,
  CHUNK = 256 * 1024,
  CHUNKS_A_TURN = 8,  /* of one stream, before the others get theirs */
  TTY_LEFT = 1 << 20,     /* of a terminal, after the end */
  KILL_SLACK_MS = 2000,   /* after the keeper should have killed */
  KEEPER_LIMIT_MS = 12000 /* it gives up on a tree before that */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_cond_t changed;
static int epoll_fd = -1, wake_fd = -1, start_errno;
static struct dsh_run *runs;
/* When the thread looks up by itself. It may be earlier than need be: to wake
 * it for every new run costs more than to look up once for nothing. */
static int64_t look_up = INT64_MAX;

int64_t loop_now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

static void wake(void) {
  uint64_t one = 1;
  if (write(wake_fd, &one, sizeof one) < 0) {
    /* full: it is awake already */
  }
}

static void drop(struct source *s) {
  if (s->fd < 0)
    return;
  epoll_ctl(epoll_fd, EPOLL_CTL_DEL, s->fd, NULL);
  close(s->fd);
  s->fd = -1;
}

/* --- ending a run -------------------------------------------------------- */

static void tell_keeper(struct dsh_run *r, enum dsh_km_type type, int32_t v) {
  struct dsh_km km = {DSH_KEEPER_VERSION, (uint8_t)type, 0, 0, v, 0};
  if (r->source[SOURCE_STATUS].fd >= 0)
    send(r->source[SOURCE_STATUS].fd, &km, sizeof km,
         MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void signal_group(const struct dsh_run *r, int signum) {
  if (!r->reaped)
    kill(-r->pid, signum);
}

/* Does a keeper of its own mind the tree by now? */
static bool is_kept(const struct dsh_run *r) {
  return r->heard_ready && !r->no_keeper;
}

/* TERM to the tree now, KILL after the grace. */
static void begin_end(struct dsh_run *r, int64_t grace_ms) {
  if (r->ending || r->finished)
    return;
  r->ending = true;
  r->kill_ms = loop_now_ms() + grace_ms;
  if (r->has_keeper)
    tell_keeper(r, DSH_KM_END, (int32_t)grace_ms);
  if (is_kept(r)) {
    r->kill_ms += KILL_SLACK_MS;
  } else { /* nobody is there to listen, or not yet */
    signal_group(r, SIGTERM);
    signal_group(r, SIGCONT);
  }
}

/* The grace is over. A keeper should have killed by now: the lifeline's end
 * tells it once more, and only one that is not heard of after that is killed
 * itself, since its tree might outlive it. */
static void kill_now(struct dsh_run *r) {
  r->kill_ms = 0;
  if (is_kept(r) && !r->cut) {
    r->cut = true;
    r->kill_ms = loop_now_ms() + KEEPER_LIMIT_MS;
    if (r->source[SOURCE_STATUS].fd >= 0)
      shutdown(r->source[SOURCE_STATUS].fd, SHUT_WR);
    signal_group(r, SIGCONT);
    if (!r->apart) /* a namespace dies with its first process */
      kill_below(r->pid); /* the keeper may wait for one of them */
    return;
  }
  if (is_kept(r) && !r->apart && !r->reaped)
    kill_below(r->pid);
  drop(&r->source[SOURCE_STATUS]);
  signal_group(r, SIGKILL);
}

static void take_terminal(const struct dsh_run *r) {
  if (r->tty >= 0 && r->tty_group > 0)
    tcsetpgrp(r->tty, r->tty_group); /* SIGTTOU is blocked here */
}

static void finish(struct dsh_run *r) {
  struct dsh_run **p;
  int i;
  for (i = 0; i < SOURCE_COUNT; i++)
    drop(&r->source[i]);
  take_terminal(r);
  r->outcome.wall_ms = loop_now_ms() - r->started_ms;
  status_conclude(r);
  r->finished = true;
  for (p = &runs; *p; p = &(*p)->next)
    if (*p == r) {
      *p = r->next;
      break;
    }
  pthread_cond_broadcast(&changed);
}

/* --- events -------------------------------------------------------------- */

/* Takes in at most `limit` bytes. */
static void on_output(struct dsh_run *r, struct source *s, size_t limit) {
  static unsigned char chunk[CHUNK];
  struct stream *stream = s->kind == SOURCE_OUT ? &r->out : &r->err;
  while (limit && s->fd >= 0) {
    ssize_t n = read(s->fd, chunk, limit < CHUNK ? limit : CHUNK);
    if (n > 0) {
      limit -= (size_t)n;
      stream_put(stream, r->spill_dir, chunk, (size_t)n);
    } else if (n < 0 && errno == EINTR) {
      continue;
    } else if (n < 0 && errno == EAGAIN) {
      return;
    } else {
      drop(s); /* end, or EIO: a terminal without its other side */
    }
  }
}

static void on_input(struct dsh_run *r, struct source *s) {
  while (r->input_at < r->input_len) {
    ssize_t n = write(s->fd, r->input + r->input_at,
                      r->input_len - r->input_at);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0 && errno == EAGAIN)
      return;
    if (n < 0)
      break; /* EPIPE: the command does not want the rest */
    r->input_at += (size_t)n;
  }
  if (r->keep_input)
    epoll_ctl(epoll_fd, EPOLL_CTL_DEL, s->fd, NULL);
  else
    drop(s);
}

static void on_status(struct dsh_run *r, struct source *s) {
  static char packet[DSH_KEEPER_PACKET];
  while (s->fd >= 0) {
    bool was_stopped = r->stopped;
    ssize_t n = recv(s->fd, packet, sizeof packet, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0 && errno == EAGAIN)
      return;
    if (n <= 0) {
      drop(s);
      return;
    }
    status_packet(r, packet, (size_t)n);
    if (r->stopped && !was_stopped) {
      take_terminal(r);
      pthread_cond_broadcast(&changed);
    }
  }
}

static void on_process(struct dsh_run *r, struct source *s) {
  int status = 0;
  siginfo_t info;
  memset(&info, 0, sizeof info);
  if (waitid(P_PID, (id_t)r->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
      info.si_pid == 0)
    return;
  /* What is left of its group, while its number cannot be another's yet. */
  if (!r->has_keeper || r->no_keeper)
    kill(-r->pid, SIGKILL);
  if (waitpid(r->pid, &status, 0) < 0)
    r->status_lost = true; /* the caller ignores SIGCHLD: the keeper knows */
  r->wait_status = status;
  r->reaped = true;
  drop(s);
}

/* Everything has ended that can: the process is reaped, the keeper's last
 * word heard. Whoever still holds a pipe is not of this run's tree: what it
 * writes from now on is not taken, or it could keep us here. */
static void settle(struct dsh_run *r) {
  int i;
  on_status(r, &r->source[SOURCE_STATUS]);
  for (i = SOURCE_OUT; i <= SOURCE_ERR; i++) {
    int left = 0;
    if (r->source[i].fd >= 0 && !r->pty)
      ioctl(r->source[i].fd, FIONREAD, &left);
    on_output(r, &r->source[i], r->pty ? TTY_LEFT : (size_t)left);
  }
  finish(r);
}

static void handle(struct source *s) {
  struct dsh_run *r = s->run;
  if (r->finished || s->fd < 0)
    return;
  switch (s->kind) {
  case SOURCE_STATUS:
    on_status(r, s);
    break;
  case SOURCE_OUT:
  case SOURCE_ERR:
    on_output(r, s, CHUNKS_A_TURN * CHUNK);
    break;
  case SOURCE_IN:
    on_input(r, s);
    break;
  case SOURCE_PROCESS:
    on_process(r, s);
    break;
  case SOURCE_COUNT:
    break;
  }
}

static int64_t due_of(const struct dsh_run *r) {
  int64_t due = r->kill_ms ? r->kill_ms : r->deadline_ms;
  return r->reaped ? 0 : due ? due : INT64_MAX;
}

/* Acts on what is due and returns the time until the next, -1 for none. */
static int keep_deadlines(void) {
  int64_t now = loop_now_ms(), left;
  struct dsh_run *r, *after;
  if (look_up <= now)
    look_up = INT64_MAX;
  for (r = runs; r; r = after) {
    after = r->next;
    if (r->deadline_ms && now >= r->deadline_ms) {
      r->deadline_ms = 0;
      r->outcome.timed_out = !r->ending && !r->reaped && !r->heard_exited;
      begin_end(r, r->grace_ms);
    }
    if (r->kill_ms && now >= r->kill_ms)
      kill_now(r);
    if (r->reaped) {
      settle(r);
      continue;
    }
    if (due_of(r) < look_up)
      look_up = due_of(r);
  }
  if (look_up == INT64_MAX)
    return -1;
  left = look_up > now ? look_up - now : 0;
  return left > 1 << 30 ? 1 << 30 : (int)left;
}

static void *loop_main(void *arg) {
  struct epoll_event events[EVENTS];
  int timeout = -1;
  (void)arg;
  for (;;) {
    int i, n = epoll_wait(epoll_fd, events, EVENTS, timeout);
    pthread_mutex_lock(&mutex);
    for (i = 0; i < n; i++) {
      uint64_t count;
      if (events[i].data.ptr)
        handle(events[i].data.ptr);
      else if (read(wake_fd, &count, sizeof count) < 0)
        continue;
    }
    timeout = keep_deadlines();
    pthread_mutex_unlock(&mutex);
  }
  return NULL;
}

static void start_thread(void) {
  struct epoll_event e = {EPOLLIN, {NULL}};
  pthread_condattr_t attr;
  pthread_t thread;
  sigset_t all, old;
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(&changed, &attr);
  pthread_condattr_destroy(&attr);
  epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (epoll_fd < 0 || wake_fd < 0 ||
      epoll_ctl(epoll_fd, EPOLL_CTL_ADD, wake_fd, &e) != 0) {
    start_errno = errno;
    return;
  }
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  start_errno = pthread_create(&thread, NULL, loop_main, NULL);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (start_errno == 0)
    pthread_detach(thread);
}

int loop_add(struct dsh_run *r) {
  int i;
  pthread_once(&once, start_thread);
  if (start_errno)
    return start_errno;
  pthread_mutex_lock(&mutex);
  r->next = runs;
  runs = r;
  for (i = 0; i < SOURCE_COUNT; i++) {
    struct source *s = &r->source[i];
    struct epoll_event e = {i == SOURCE_IN ? EPOLLOUT : EPOLLIN, {NULL}};
    e.data.ptr = s;
    if (s->fd >= 0 && (i != SOURCE_IN || r->input_len || !r->keep_input))
      epoll_ctl(epoll_fd, EPOLL_CTL_ADD, s->fd, &e);
  }
  if (due_of(r) < look_up)
    wake();
  pthread_mutex_unlock(&mutex);
  return 0;
}

/* --- the caller's side --------------------------------------------------- */

static int state_of(const struct dsh_run *r) {
  return r->finished ? 1 : r->stopped ? 2 : 0;
}

int dsh_run_wait(struct dsh_run *r, int64_t timeout_ms) {
  struct timespec until;
  int state;
  clock_gettime(CLOCK_MONOTONIC, &until);
  if (timeout_ms >= 0) {
    until.tv_sec += (time_t)(timeout_ms / 1000);
    until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
      until.tv_sec++;
      until.tv_nsec -= 1000000000;
    }
  }
  pthread_mutex_lock(&mutex);
  while ((state = state_of(r)) == 0 && timeout_ms != 0) {
    if (timeout_ms < 0)
      pthread_cond_wait(&changed, &mutex);
    else if (pthread_cond_timedwait(&changed, &mutex, &until) == ETIMEDOUT)
      break;
  }
  state = state_of(r);
  pthread_mutex_unlock(&mutex);
  return state;
}

const struct dsh_outcome *dsh_run_outcome(struct dsh_run *r) {
  bool finished;
  pthread_mutex_lock(&mutex);
  finished = r->finished;
  pthread_mutex_unlock(&mutex);
  return finished ? &r->outcome : NULL;
}

static void end(struct dsh_run *r, int64_t grace_ms) {
  pthread_mutex_lock(&mutex);
  if (!r->finished && !r->ending && !r->heard_exited)
    r->outcome.aborted = true;
  begin_end(r, grace_ms);
  wake();
  pthread_mutex_unlock(&mutex);
}

void dsh_run_abort(struct dsh_run *r) {
  end(r, r->grace_ms);
}

int dsh_run_signal(struct dsh_run *r, int signum) {
  int e = 0;
  pthread_mutex_lock(&mutex);
  if (r->finished)
    e = ESRCH;
  else if (r->has_keeper)
    tell_keeper(r, DSH_KM_SIGNAL, signum);
  else if (kill(-r->pid, signum) != 0)
    e = errno;
  if (signum == SIGCONT)
    r->stopped = false;
  pthread_mutex_unlock(&mutex);
  errno = e;
  return e ? -1 : 0;
}

size_t dsh_run_take_denials(struct dsh_run *r, struct dsh_arena *a,
                            struct dsh_denial *out, size_t max) {
  size_t i, n;
  pthread_mutex_lock(&mutex);
  if (!r->finished && r->source[SOURCE_STATUS].fd >= 0)
    on_status(r, &r->source[SOURCE_STATUS]); /* what is under way, too */
  n = r->finished ? 0 : r->n_denials < max ? r->n_denials : max;
  for (i = 0; i < n; i++) {
    out[i] = r->denial[i];
    out[i].op = dsh_strdup(a, out[i].op);
    out[i].path = dsh_strdup(a, out[i].path);
    out[i].path2 = out[i].path2 ? dsh_strdup(a, out[i].path2) : NULL;
    out[i].comm = dsh_strdup(a, out[i].comm);
  }
  if (n && n == r->n_denials) {
    r->n_denials = 0;
    dsh_arena_free(&r->denial_arena);
  }
  pthread_mutex_unlock(&mutex);
  return n;
}

size_t dsh_run_read(struct dsh_run *r, int stream, void *buf, size_t n,
                    uint64_t *skipped) {
  pthread_mutex_lock(&mutex);
  n = stream_read(stream == 2 ? &r->err : &r->out, buf, n, skipped);
  pthread_mutex_unlock(&mutex);
  return n;
}

/* A pipe without a reader raises SIGPIPE in the thread that writes; the
 * caller's own disposition is left alone. */
static ssize_t write_quietly(int fd, const void *buf, size_t n) {
  const struct timespec none = {0, 0};
  sigset_t pipe_set, old, pending;
  ssize_t w;
  int e;
  sigemptyset(&pipe_set);
  sigaddset(&pipe_set, SIGPIPE);
  sigpending(&pending);
  pthread_sigmask(SIG_BLOCK, &pipe_set, &old);
  w = write(fd, buf, n);
  e = errno;
  if (w < 0 && e == EPIPE && !sigismember(&pending, SIGPIPE))
    sigtimedwait(&pipe_set, NULL, &none);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  errno = e;
  return w;
}

ssize_t dsh_run_write(struct dsh_run *r, const void *buf, size_t n) {
  ssize_t w = -1;
  int e = EPIPE;
  pthread_mutex_lock(&mutex);
  if (!r->finished && r->source[SOURCE_IN].fd >= 0) {
    w = write_quietly(r->source[SOURCE_IN].fd, buf, n);
    e = errno;
  }
  pthread_mutex_unlock(&mutex);
  if (w < 0 && e == EAGAIN)
    return 0;
  errno = e;
  return w;
}

void dsh_run_close_input(struct dsh_run *r) {
  pthread_mutex_lock(&mutex);
  if (!r->pty && !r->finished)
    drop(&r->source[SOURCE_IN]);
  pthread_mutex_unlock(&mutex);
}

int dsh_run_resize(struct dsh_run *r, unsigned short rows,
                   unsigned short cols) {
  struct winsize size = {rows, cols, 0, 0};
  int e = ENOTTY;
  pthread_mutex_lock(&mutex);
  if (r->pty && !r->finished && r->source[SOURCE_IN].fd >= 0)
    e = ioctl(r->source[SOURCE_IN].fd, TIOCSWINSZ, &size) != 0 ? errno : 0;
  pthread_mutex_unlock(&mutex);
  errno = e;
  return e ? -1 : 0;
}

void dsh_run_free(struct dsh_run *r) {
  if (!r)
    return;
  if (!dsh_run_outcome(r)) {
    end(r, 0);
    pthread_mutex_lock(&mutex);
    if (r->kill_ms)
      r->kill_ms = loop_now_ms() + KILL_SLACK_MS;
    pthread_mutex_unlock(&mutex);
    while (dsh_run_wait(r, -1) == 2)
      dsh_run_signal(r, SIGCONT);
  }
  stream_free(&r->out);
  stream_free(&r->err);
  if (r->tty >= 0)
    close(r->tty);
  free(r->spill_dir);
  free(r->input);
  dsh_arena_free(&r->arena);
  dsh_arena_free(&r->denial_arena);
  free(r);
}
