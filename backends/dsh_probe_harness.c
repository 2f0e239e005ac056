/* dsh_probe_harness.c: the half outside. For each pass it makes fresh
 * targets, runs the inside half bare, looks; makes fresh targets again for
 * each line to test, runs it confined, looks. A refusal that was not first
 * seen to succeed bare is "impossible". Prints one line a cell:
 *
 *   cell LABEL OP PLACE FORM ACTOR VERDICT ERRNO BARE-ERRNO  (tab separated)
 *
 * VERDICT: done        the target changed (or, without a trace, it answered)
 *          refused     nothing changed and the call failed
 *          void        it answered success and nothing outside changed
 *          impossible  the bare run did not succeed either
 *          not-started the sandbox did not run this far
 * then "start LABEL PASS yes|no STATUS" per line and pass, "end CELLS". */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dsh_probe.h"

enum { SILENT_MS = 2 * PROBE_CELL_MS, NOT_RUN = -3, SETTLE_MS = 50,
       LINES_MAX = 16 };

/* One confined line under test. */
struct line {
  const char *label;
  char **argv; /* NULL terminated */
};

struct seen {
  uint64_t before;
  int rc;
  bool changed, succeeded;
};

struct harness {
  struct probe_spec spec;
  char out[PROBE_PATH_MAX]; /* where the lines go; "": stdout */
  char state[PROBE_PATH_MAX], spec_path[PROBE_PATH_MAX + 8];
  struct line line[LINES_MAX];
  size_t n_lines;
  struct probe_cell *cell;
  size_t n;
  struct seen *bare, *conf;
  struct probe_counters *counters;
  bool own_mounts; /* in a mount namespace of our own */
  /* what the place's own bundles look like now; looking is half the work */
  uint64_t now[PLACE_COUNT];
  bool known[PLACE_COUNT], first_only[PLACE_COUNT];
  pid_t peer;
};

/* --- targets ------------------------------------------------------------- */

static uint64_t look(struct harness *h, size_t i) {
  const struct probe_cell *c = &h->cell[i];
  char dir[PROBE_PATH_MAX];
  uint64_t sum;
  if (c->op->flags & OP_COUNTER)
    return h->counters->touched;
  if (c->op->flags & OP_RETURN)
    return 0;
  probe_bundle_dir(&h->spec, c, false, dir);
  sum = probe_bundle_look(dir);
  if (c->op->flags & OP_PAIR && !(c->op->flags & OP_FIRST)) {
    probe_bundle_dir(&h->spec, c, true, dir);
    sum = sum * 31 + probe_bundle_look(dir);
  }
  return sum;
}

static bool own_bundle(const struct probe_op *op);

/* look, or what is known since nothing happened. */
static uint64_t look_before(struct harness *h, size_t i) {
  const struct probe_cell *c = &h->cell[i];
  bool first = c->op->flags & OP_FIRST;
  if (!own_bundle(c->op) || c->op->flags & OP_RETURN)
    return look(h, i);
  if (!h->known[c->place] || h->first_only[c->place] != first) {
    h->now[c->place] = look(h, i);
    h->known[c->place] = true;
    h->first_only[c->place] = first;
  }
  return h->now[c->place];
}

static bool own_bundle(const struct probe_op *op) {
  return !(op->flags & (OP_HOST | OP_PEER | OP_STDIO | OP_STDIN_DIR));
}

static int shared_bundle(struct harness *h, const char *name) {
  char dir[PROBE_PATH_MAX + 16];
  snprintf(dir, sizeof dir, "%s/%s-%s", h->spec.outside, h->spec.set, name);
  return probe_bundle_make(dir);
}

/* The targets of one cell, made or repaired. */
static int make_bundles(struct harness *h, size_t i) {
  const struct probe_cell *c = &h->cell[i];
  char dir[PROBE_PATH_MAX];
  int rc = 0;
  if (!own_bundle(c->op))
    return 0;
  if (c->op->flags & OP_PAIR) {
    probe_bundle_dir(&h->spec, c, true, dir);
    rc = probe_bundle_make(dir);
  }
  probe_bundle_dir(&h->spec, c, false, dir);
  return rc ? rc : probe_bundle_make(dir);
}

static int make_targets(struct harness *h, struct seen *seen) {
  bool made[PLACE_COUNT] = { false };
  int rc = shared_bundle(h, "stdio");
  memset(h->known, 0, sizeof h->known);
  if (!rc)
    rc = shared_bundle(h, "peer");
  for (size_t i = 0; !rc && i < h->n; i++) {
    const struct probe_cell *c = &h->cell[i];
    seen[i] = (struct seen){ .rc = NOT_RUN };
    if (!made[c->place] && own_bundle(c->op)) {
      made[c->place] = true;
      rc = make_bundles(h, i);
    }
  }
  return rc;
}

static void remove_one(const char *dir) {
  char via[PROBE_PATH_MAX + 8];
  snprintf(via, sizeof via, "%s.via", dir);
  (void)unlink(via);
  (void)probe_remove_tree(dir);
}

static void remove_targets(struct harness *h) {
  char dir[PROBE_PATH_MAX + 16];
  bool gone[PLACE_COUNT] = { false };
  for (size_t i = 0; i < h->n; i++) {
    if (!own_bundle(h->cell[i].op) || gone[h->cell[i].place])
      continue;
    gone[h->cell[i].place] = true;
    for (int second = 0; second <= !!(h->cell[i].op->flags & OP_PAIR);
         second++) {
      probe_bundle_dir(&h->spec, &h->cell[i], second, dir);
      remove_one(dir);
    }
  }
  snprintf(dir, sizeof dir, "%s/%s-stdio", h->spec.outside, h->spec.set);
  remove_one(dir);
  snprintf(dir, sizeof dir, "%s/%s-peer", h->spec.outside, h->spec.set);
  remove_one(dir);
  snprintf(dir, sizeof dir, "%s/peer.sock", h->spec.outside);
  (void)unlink(dir);
}

/* --- one start ----------------------------------------------------------- */

static int open_in(const struct harness *h, const char *bundle,
                   const char *name, int flags) {
  char path[PROBE_PATH_MAX + 64];
  snprintf(path, sizeof path, "%s/%s-%s/%s", h->spec.outside, h->spec.set,
           bundle, name);
  return open(path, flags | O_CLOEXEC);
}

/* Places fd at number `to`, without close-on-exec. */
static void place(int fd, int to) {
  if (fd < 0 || dup2(fd, to) < 0)
    _exit(126);
}

static void child(const struct harness *h, int sock, char *const *argv) {
  static const char *const input[PASS_COUNT] = { "", "f", "." };
  int in = h->spec.pass == PASS_MAIN
             ? open("/dev/null", O_RDONLY | O_CLOEXEC)
             : open_in(h, "stdio", input[h->spec.pass], O_RDONLY);
  place(sock, 1);
  place(in, 0);
  if (h->spec.pass == PASS_STDIO)
    place(open_in(h, "stdio", "g", O_WRONLY | O_APPEND), 2);
  place(open_in(h, "peer", "f", O_RDWR | O_APPEND), PROBE_FD_FILE);
  place(open_in(h, "peer", ".", O_RDONLY | O_DIRECTORY), PROBE_FD_DIR);
  (void)setpgid(0, 0);
  (void)signal(SIGPIPE, SIG_DFL);
  execv(argv[0], argv);
  _exit(127);
}

/* A tmpfs over d, in our own mount namespace, while the sandbox runs. */
static void act_for(struct harness *h, struct seen *seen, size_t i,
                    int sock) {
  char dir[PROBE_PATH_MAX], path[PROBE_PATH_MAX + 8];
  char answer = 'n';
  probe_bundle_dir(&h->spec, &h->cell[i], false, dir);
  snprintf(path, sizeof path, "%s/d", dir);
  if (h->own_mounts && !mount("tmpfs", path, "tmpfs", 0, "size=64k"))
    answer = 'y';
  seen[i].before = look(h, i);
  (void)!write(sock, &answer, 1);
}

static void end_sync(struct harness *h, size_t i) {
  char dir[PROBE_PATH_MAX], path[PROBE_PATH_MAX + 8];
  probe_bundle_dir(&h->spec, &h->cell[i], false, dir);
  snprintf(path, sizeof path, "%s/d", dir);
  (void)umount2(path, MNT_DETACH);
}

static void judge(struct harness *h, struct seen *s, size_t i, int rc) {
  const struct probe_op *op = h->cell[i].op;
  s->rc = rc;
  if (op->flags & OP_RETURN)
    s->changed = rc == 0;
  else
    s->changed = look(h, i) != s->before;
  /* a signal or a connection takes a moment to be counted */
  for (int ms = 0; op->flags & OP_COUNTER && rc == 0 && !s->changed &&
                   ms < SETTLE_MS; ms++) {
    usleep(1000);
    s->changed = look(h, i) != s->before;
  }
  s->succeeded = s->changed;
  if (op->flags & OP_SYNC)
    end_sync(h, i);
  if (s->changed || op->flags & (OP_SYNC | OP_FIRST | OP_RETURN)) {
    memset(h->known, 0, sizeof h->known); /* pairs share with places */
    (void)make_bundles(h, i);
  }
}

/* One message of the inside half: "R index errno\n" or "S\n". */
static ssize_t message(int sock, char *buf, size_t size) {
  struct pollfd p = { .fd = sock, .events = POLLIN };
  size_t n = 0;
  do {
    if (poll(&p, 1, SILENT_MS) <= 0 || read(sock, buf + n, 1) != 1)
      return -1;
  } while (buf[n++] != '\n' && n < size - 1);
  buf[n] = '\0';
  return (ssize_t)n;
}

static size_t converse(struct harness *h, struct seen *seen, int sock) {
  char line[64];
  size_t i = 0, index;
  int rc;
  while (i < h->n) {
    if (message(sock, line, sizeof line) < 0)
      break;
    if (line[0] == 'S' && h->cell[i].op->flags & OP_SYNC) {
      act_for(h, seen, i, sock);
      if (message(sock, line, sizeof line) < 0)
        break;
    }
    if (sscanf(line, "R %zu %d", &index, &rc) != 2 || index != i)
      break;
    judge(h, &seen[i], i, rc);
    /* before the go-ahead: the next operation starts at once */
    if (++i < h->n)
      seen[i].before = look_before(h, i);
    if (write(sock, "k", 1) != 1)
      break;
  }
  return i;
}

static size_t start(struct harness *h, struct seen *seen, char *const *argv,
                    int *status) {
  int pair[2];
  size_t done;
  pid_t pid;
  *status = -1;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
    return 0;
  fflush(stdout);
  seen[0].before = look_before(h, 0);
  pid = fork();
  if (!pid)
    child(h, pair[1], argv);
  close(pair[1]);
  done = pid > 0 ? converse(h, seen, pair[0]) : 0;
  close(pair[0]);
  if (pid > 0) {
    if (done < h->n)
      (void)kill(-pid, SIGKILL);
    while (waitpid(pid, status, 0) < 0 && errno == EINTR) { }
  }
  return done;
}

/* Targets, peers, spec, the run, and away with the targets. */
static int half_pass(struct harness *h, char *const *confined, size_t *done,
                     int *status) {
  char peer[PROBE_PATH_MAX + 16];
  char inside[] = "--inside";
  char *bare[] = { h->spec.self, inside, h->spec_path, NULL };
  struct seen *seen = confined ? h->conf : h->bare;
  int rc;
  snprintf(h->spec.set, sizeof h->spec.set, "%s", confined ? "conf" : "bare");
  rc = make_targets(h, seen);
  if (rc) {
    fprintf(stderr, "dsh-probe: cannot make targets: %s\n", strerror(rc));
    remove_targets(h);
    return -1;
  }
  snprintf(peer, sizeof peer, "%s/%s-peer", h->spec.outside, h->spec.set);
  h->peer = probe_peer_start(h->counters, peer, h->spec.outside);
  h->spec.victim = h->peer;
  h->spec.port = h->counters->port;
  h->spec.pts = h->counters->pts;
  snprintf(h->spec.victim_fd, sizeof h->spec.victim_fd, "/proc/%d/fd/%d",
           (int)h->peer, PROBE_FD_FILE);
  if (h->peer < 0 || probe_spec_write(&h->spec, h->spec_path))
    rc = -1;
  else
    *done = start(h, seen, confined ? confined : bare, status);
  probe_peer_stop(h->peer);
  remove_targets(h);
  return rc;
}

/* --- saying -------------------------------------------------------------- */

static const char *result_name(int rc) {
  static char buf[16];
  if (rc == 0)
    return "-";
  if (rc == PROBE_KILLED)
    return "killed";
  if (rc == PROBE_NO_CALL)
    return "no-call";
  if (rc == NOT_RUN)
    return "not-run";
  snprintf(buf, sizeof buf, "%s", probe_errno_name(rc));
  return buf;
}

static const char *verdict(const struct seen *bare, const struct seen *conf) {
  if (!bare->succeeded)
    return "impossible";
  if (conf->rc == NOT_RUN)
    return "not-started";
  if (conf->changed)
    return "done";
  return conf->rc == 0 ? "void" : "refused";
}

static void say(const struct harness *h, const char *label, bool started,
                int status) {
  static const char *const pass[PASS_COUNT] = { "main", "stdio",
                                                "stdin-directory" };
  for (size_t i = 0; i < h->n; i++) {
    const struct probe_cell *c = &h->cell[i];
    printf("cell\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t", label, c->op->name,
           probe_place_name(c->place), probe_form_name(c->form),
           probe_actor_name(c->actor), verdict(&h->bare[i], &h->conf[i]),
           result_name(h->conf[i].rc));
    printf("%s\n", result_name(h->bare[i].rc));
  }
  printf("start\t%s\t%s\t%s\t%d\n", label, pass[h->spec.pass],
         started ? "yes" : "no", status);
  fflush(stdout);
}

/* --- command line -------------------------------------------------------- */

static int take(struct harness *h, const char *key, const char *v) {
  const struct { const char *key; char *to; size_t size; } text[] = {
    { "--root", h->spec.root, PROBE_PATH_MAX },
    { "--outside", h->spec.outside, PROBE_PATH_MAX },
    { "--temp", h->spec.temp, PROBE_PATH_MAX },
    { "--extra", h->spec.extra, PROBE_PATH_MAX },
    { "--state", h->state, PROBE_PATH_MAX },
    { "--only", h->spec.only, sizeof h->spec.only },
    { "--self", h->spec.self, PROBE_PATH_MAX },
    { "--out", h->out, PROBE_PATH_MAX },
  };
  for (size_t i = 0; i < PROBE_LEN(text); i++)
    if (!strcmp(key, text[i].key))
      return snprintf(text[i].to, text[i].size, "%s", v) <
               (int)text[i].size ? 0 : -1;
  return -1;
}

/* --line LABEL COUNT WORDS...: COUNT words of one confined argv. Makes room
 * for the terminating NULL where LABEL and COUNT stood. */
static int take_line(struct harness *h, int argc, char **argv, int *i) {
  int n = *i + 2 < argc ? atoi(argv[*i + 2]) : 0;
  struct line *l = &h->line[h->n_lines];
  if (n < 1 || *i + 2 + n >= argc || h->n_lines == LINES_MAX)
    return -1;
  l->label = argv[*i + 1];
  l->argv = argv + *i + 2;
  memmove(l->argv, l->argv + 1, (size_t)n * sizeof *l->argv);
  l->argv[n] = NULL;
  h->n_lines++;
  *i += 2 + n;
  return 0;
}

static int options(struct harness *h, int argc, char **argv) {
  for (int i = 2; i < argc; i++) {
    if (!strcmp(argv[i], "--quick"))
      h->spec.quick = true;
    else if (!strcmp(argv[i], "--line")) {
      if (take_line(h, argc, argv, &i))
        return -1;
    } else if (i + 1 >= argc || take(h, argv[i], argv[i + 1]))
      return -1;
    else
      i++;
  }
  if (!h->n_lines || !h->spec.root[0] || !h->spec.outside[0] ||
      !h->spec.temp[0] || !h->state[0] || !h->spec.self[0])
    return -1;
  snprintf(h->spec_path, sizeof h->spec_path, "%s/spec", h->state);
  return 0;
}

/* Shared propagation is what a host with systemd has: a mount made outside
 * after the start reaches a sandbox that does not stop it. */
static bool leave_mounts(void) {
  return !geteuid() && !unshare(CLONE_NEWNS) &&
         !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
         !mount(NULL, "/", NULL, MS_REC | MS_SHARED, NULL);
}

static int pass(struct harness *h) {
  size_t done = 0;
  int status = 0;
  h->n = probe_cells(&h->spec, h->cell);
  if (!h->n)
    return 0;
  if (half_pass(h, NULL, &done, &status))
    return -1;
  if (done < h->n) {
    fprintf(stderr, "dsh-probe: the bare run ended at %zu of %zu (%s)\n",
            done, h->n, h->cell[done].op->name);
    return -1;
  }
  for (size_t i = 0; i < h->n_lines; i++) {
    if (half_pass(h, h->line[i].argv, &done, &status))
      return -1;
    say(h, h->line[i].label, done > 0, status);
  }
  return 0;
}

int probe_harness(int argc, char **argv) {
  static struct probe_cell cells[PROBE_CELLS_MAX];
  static struct seen bare[PROBE_CELLS_MAX], conf[PROBE_CELLS_MAX];
  static struct harness h = { .cell = cells, .bare = bare, .conf = conf };
  size_t total = 0;
  if (options(&h, argc, argv)) {
    fputs("dsh-probe: --matrix needs --root --outside --temp --state --self "
          "and --line LABEL COUNT ARGV...\n", stderr);
    return 2;
  }
  if (h.out[0] && !freopen(h.out, "we", stdout)) {
    fprintf(stderr, "dsh-probe: %s: %s\n", h.out, strerror(errno));
    return 2;
  }
  umask(022);
  (void)signal(SIGPIPE, SIG_IGN);
  h.counters = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (h.counters == MAP_FAILED)
    return 2;
  h.spec.counter = (uint64_t)(uintptr_t)h.counters;
  h.own_mounts = leave_mounts();
  for (int p = 0; p < PASS_COUNT; p++) {
    h.spec.pass = (enum probe_pass)p;
    if (pass(&h))
      return 2;
    total += h.n;
  }
  printf("end\t%zu\n", total);
  (void)unlink(h.spec_path);
  return 0;
}
