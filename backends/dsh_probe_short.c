/* dsh_probe_short.c: the short form, for choosing a backend. A few
 * operations of each class of effect, on targets that the bare run made.
 *
 *   dsh-probe --short --root DIR --outside DIR --bare    makes the targets,
 *       tries everything unconfined, leaves fresh targets for the next
 *   dsh-probe --short --root DIR --outside DIR [--victim PID]
 *       [--abstract NAME]   confined; its stdin should be OUTSIDE/probe-stdin,
 *       opened read-only; the caller is PID and listens on NAME
 *
 * One line per class: CLASS refused|done|impossible ERRNO OPERATION, tab
 * separated. done: one of its operations went through, the named one. A
 * class is impossible when no operation of it could be tried. The caller
 * compares with the bare lines: what was not "done" there proves nothing
 * here. "inside" is writing within the root, which workspace-write grants. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "dsh_probe.h"

struct short_class {
  const char *name;
  const char *op[12]; /* names of operations */
};

static const struct short_class classes[] = {
  { "write", { "open-write", "openat2-write", "mmap-shared-write" } },
  { "create", { "open-create", "mkdir", "mknod-fifo", "symlink",
                "tmpfile-write" } },
  { "remove", { "unlink", "rmdir" } },
  { "rename", { "rename", "rename-over", "rename-exchange" } },
  { "link", { "link" } },
  { "truncate", { "truncate", "open-rdonly-trunc" } },
  { "metadata", { "chmod", "fchmod", "fchmodat2", "utimensat-now", "futimens",
                  "setxattr", "fsetxattr", "setxattrat", "fchown",
                  "ioctl-set-flags", "stdin-fchmod" } },
  { "device", { "dev-nodes-open", "block-device-open", "block-device-ioctl",
                "dev-mkdir" } },
  { "proc", { "proc-sys-open", "sys-open", "proc-1-root-write" } },
  { "descriptor", { "reopen-rdonly", "reopen-path-only", "open-by-handle" } },
  { "mount", { "mount-tmpfs", "mount-tmpfs-userns", "remount-write-userns",
               "mount-setattr-write" } },
  { "capabilities", { "capability-hostname", "mknod-char-device" } },
  { "system-calls", { "io-uring-setup", "i386-chmod" } },
  { "terminal", { "terminal-injection" } },
  { "stdio", { "stdin-reopen", "stdin-truncate-by-link" } },
};

struct short_run {
  struct probe_spec spec;
  bool bare;
  pid_t victim;
  char abstract[64]; /* name of a socket that the caller listens on */
  char facts[PROBE_PATH_MAX + 32]; /* the pid namespace of the bare run */
};

static void line(const char *cls, int rc, const char *op) {
  const char *word = rc == 0 ? "done"
                     : rc == PROBE_NO_CALL ? "impossible" : "refused";
  const char *name = rc == 0 || rc == PROBE_NO_CALL ? "-"
                     : rc == PROBE_KILLED ? "killed" : probe_errno_name(rc);
  printf("%s\t%s\t%s\t%s\n", cls, word, name, op);
}

static const struct probe_op *find(const char *name) {
  const struct probe_op *op;
  for (size_t i = 0; (op = probe_op_at(i)); i++)
    if (!strcmp(op->name, name))
      return op;
  return NULL;
}

/* --- targets ------------------------------------------------------------- */

static struct probe_cell cell_of(const struct probe_op *op) {
  return (struct probe_cell){ op, PLACE_OUTSIDE, FORM_ABSOLUTE, ACTOR_CHILD,
                              PASS_MAIN };
}

/* Both sets, so that the confined run finds its own untouched. */
static int make_set(struct short_run *r, const char *set) {
  const struct probe_op *op = find("open-write");
  struct probe_cell c = cell_of(op);
  char dir[PROBE_PATH_MAX];
  int rc;
  snprintf(r->spec.set, sizeof r->spec.set, "%s", set);
  probe_bundle_dir(&r->spec, &c, false, dir);
  rc = probe_bundle_make(dir);
  c.place = PLACE_ROOT;
  probe_bundle_dir(&r->spec, &c, false, dir);
  return rc ? rc : probe_bundle_make(dir);
}

static int prepare(struct short_run *r) {
  char path[PROBE_PATH_MAX + 32];
  struct stat st;
  FILE *f;
  int fd, rc;
  snprintf(path, sizeof path, "%s/probe-stdin", r->spec.outside);
  fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0)
    return errno;
  close(fd);
  fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || dup2(fd, 0) < 0)
    return errno;
  if (!(f = fopen(r->facts, "we")))
    return errno;
  if (stat("/proc/self/ns/pid", &st))
    st.st_ino = 0;
  fprintf(f, "%llu\n", (unsigned long long)st.st_ino);
  if (fclose(f))
    return errno;
  rc = make_set(r, "conf");
  return rc ? rc : make_set(r, "bare");
}

/* --- trying -------------------------------------------------------------- */

static bool stdin_is_file(void) {
  struct stat st;
  return !fstat(0, &st) && S_ISREG(st.st_mode);
}

/* What went through changed the targets; where it did, so does this. */
static void repair(const struct short_run *r) {
  struct probe_cell c = cell_of(find("open-write"));
  char dir[PROBE_PATH_MAX];
  probe_bundle_dir(&r->spec, &c, false, dir);
  (void)probe_bundle_make(dir);
}

/* The class's answer: the first operation that went through; else the first
 * refusal; else impossible. */
static void try_class(const struct short_run *r,
                      const struct short_class *s) {
  bool file = stdin_is_file();
  int answer = PROBE_NO_CALL;
  const char *by = "-";
  for (size_t k = 0; k < PROBE_LEN(s->op) && s->op[k]; k++) {
    const struct probe_op *op = find(s->op[k]);
    struct probe_cell c = cell_of(op);
    int rc = file || strncmp(s->op[k], "stdin", 5)
               ? probe_run_cell(&r->spec, &c, -1) : PROBE_NO_CALL;
    if (rc == 0)
      repair(r);
    if (answer == 0 || rc == PROBE_NO_CALL)
      continue;
    if (rc == 0 || answer == PROBE_NO_CALL) {
      answer = rc;
      by = s->op[k];
    }
  }
  line(s->name, answer, by);
}

/* Any descriptor but 0, 1, 2 was left by somebody. */
static void try_inherited(const struct short_run *r) {
  int found = -1;
  for (int fd = 3; fd < 1024 && found < 0; fd++)
    if (fcntl(fd, F_GETFD) >= 0)
      found = fd;
  if (r->bare && found < 0)
    found = 0;
  line("inherited", found >= 0 ? 0 : EBADF, "open-descriptor");
}

/* Permission to connect is all that is asked: nobody accepts. */
static void try_abstract(const struct short_run *r) {
  struct sockaddr_un a = { .sun_family = AF_UNIX };
  int n = snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "%s", r->abstract);
  int fd, rc = PROBE_NO_CALL;
  if (n > 0 && (fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) >= 0) {
    rc = probe_rc(connect(fd, (struct sockaddr *)&a,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) +
                                      1 + (size_t)n)));
    close(fd);
  }
  line("abstract-socket", rc, "connect-abstract-socket");
}

/* Signal 0: permission alone. A pid namespace of our own has no such
 * process, whatever carries that number in it. */
static void try_signal(const struct short_run *r) {
  unsigned long long outside = 0;
  struct stat st;
  FILE *f = fopen(r->facts, "re");
  int rc = PROBE_NO_CALL;
  if (f) {
    if (fscanf(f, "%llu", &outside) != 1)
      outside = 0;
    fclose(f);
  }
  if (r->victim > 0 && outside && !stat("/proc/self/ns/pid", &st))
    rc = (unsigned long long)st.st_ino != outside ? ESRCH
                                                  : probe_rc(kill(r->victim,
                                                                  0));
  line("signal", rc, "kill-0");
}

static void try_inside(const struct short_run *r) {
  struct probe_cell c = cell_of(find("open-write"));
  c.place = PLACE_ROOT;
  line("inside", probe_run_cell(&r->spec, &c, -1), "open-write");
}

static int options(struct short_run *r, int argc, char **argv) {
  for (int i = 2; i < argc; i++) {
    const char *v = i + 1 < argc ? argv[i + 1] : "";
    if (!strcmp(argv[i], "--bare")) {
      r->bare = true;
      continue;
    }
    if (!strcmp(argv[i], "--root"))
      snprintf(r->spec.root, PROBE_PATH_MAX, "%s", v);
    else if (!strcmp(argv[i], "--outside"))
      snprintf(r->spec.outside, PROBE_PATH_MAX, "%s", v);
    else if (!strcmp(argv[i], "--abstract"))
      snprintf(r->abstract, sizeof r->abstract, "%s", v);
    else if (!strcmp(argv[i], "--victim"))
      r->victim = atoi(v);
    else
      return -1;
    i++;
  }
  return r->spec.root[0] == '/' && r->spec.outside[0] == '/' ? 0 : -1;
}

int probe_short(int argc, char **argv) {
  static struct short_run r;
  int rc;
  if (options(&r, argc, argv)) {
    fputs("dsh-probe: --short needs absolute --root and --outside\n", stderr);
    return 2;
  }
  (void)signal(SIGPIPE, SIG_IGN);
  umask(022);
  snprintf(r.facts, sizeof r.facts, "%s/probe-facts", r.spec.outside);
  r.spec.victim = getpid();
  r.spec.hurry = true;
  if (r.bare && (rc = prepare(&r))) {
    fprintf(stderr, "dsh-probe: cannot make targets: %s\n", strerror(rc));
    return 2;
  }
  snprintf(r.spec.set, sizeof r.spec.set, "%s", r.bare ? "bare" : "conf");
  try_inherited(&r);
  for (size_t i = 0; i < PROBE_LEN(classes); i++)
    try_class(&r, &classes[i]);
  try_signal(&r);
  try_abstract(&r);
  try_inside(&r);
  return fflush(stdout) ? 2 : 0;
}
