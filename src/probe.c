/* probe.c: what can this backend do on this host, seen by trying.
 *
 * The real line under the real profile runs our probe program, which tries
 * one harmless instance of each class of effect on a throw-away target. Its
 * words come back over a pipe; whether the line works at all is told by the
 * keeper. What failed before is given a cause and one fix. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "cause.h"
#include "grade.h"
#include "probe.h"
#if defined __linux__
#include "restrict.h"
#endif

#define LAUNCHER "landlock-run"
#define PROGRAM "dsh-probe"

enum { REPORT_BYTES = 65536 };

/* --- finding programs ---------------------------------------------------- */

static bool is_program(const char *path) {
  struct stat st;
  return stat(path, &st) == 0 && S_ISREG(st.st_mode) &&
         access(path, X_OK) == 0;
}

/* Where this code lies: the module's file, or the program it is linked in. */
static int own_place(char *out, size_t size) {
  Dl_info info;
  char *slash;
  void *self;
  *(int (**)(char *, size_t)) &self = own_place;
  if (!dladdr(self, &info) || !info.dli_fname ||
      !realpath(info.dli_fname, out)) {
    ssize_t n = readlink("/proc/self/exe", out, size - 1);
    if (n < 0)
      return -1;
    out[n] = '\0';
  }
  slash = strrchr(out, '/');
  if (!slash)
    return -1;
  *slash = '\0';
  return 0;
}

/* Beside the program (build/), from the module (lua/dsh/), or installed. */
static const char *find_own(struct dsh_arena *a, const char *name) {
  static const char *const places[] = {".", "../../build",
                                       "../libexec/dshsh",
                                       "../../../libexec/dshsh"};
  char here[PATH_MAX], real[PATH_MAX];
  size_t i;
  if (own_place(here, sizeof here) != 0)
    return NULL;
  for (i = 0; i < sizeof places / sizeof *places; i++) {
    const char *path = dsh_format(a, "%s/%s/%s", here, places[i], name);
    if (path && realpath(path, real) && is_program(real))
      return dsh_strdup(a, real);
  }
  return NULL;
}

const char *dsh_probe_program(struct dsh_arena *a) {
  return find_own(a, PROGRAM);
}

const char *dsh_launcher_path(struct dsh_arena *a, const char *configured,
                              struct dsh_error *err) {
  const char *path = configured ? configured : find_own(a, LAUNCHER);
  if (path && path[0] == '/' && is_program(path))
    return path;
  dsh_fail_path(err, DSH_E_SANDBOX_UNAVAILABLE, ENOENT, "launcher-missing",
                path ? path : LAUNCHER, "launcher \"%s\"",
                path ? path : LAUNCHER);
  return NULL;
}

/* Only root may be able to change a runner that we trust: the file itself
 * and every directory on the way to it. */
static bool is_trusted(const char *path) {
  char at[PATH_MAX];
  struct stat st;
  char *slash;
  if (stat(path, &st) != 0 || !S_ISREG(st.st_mode))
    return false;
  snprintf(at, sizeof at, "%s", path);
  for (;;) {
    if (stat(at, &st) != 0 || st.st_uid != 0 || (st.st_mode & 022))
      return false;
    slash = strrchr(at, '/');
    if (!slash || !slash[1])
      return true;
    slash[slash == at] = '\0';
  }
}

const char *dsh_runner_path(struct dsh_arena *a, const struct dsh_backend *b,
                            struct dsh_error *err) {
  const char *const *p;
  char real[PATH_MAX];
  for (p = b->runner_paths; p && *p; p++) {
    if (!realpath(*p, real) || !is_program(real))
      continue;
    if (is_trusted(real))
      return dsh_strdup(a, real);
    dsh_fail_path(err, DSH_E_SANDBOX_UNAVAILABLE, 0, "not-trusted", real,
                  "\"%s\" or its directory can be changed by others than root",
                  real);
    return NULL;
  }
  dsh_fail(err, DSH_E_SANDBOX_UNAVAILABLE, 0, "not-installed",
           "%s is in none of its places (%s, …)", b->name,
           b->runner_paths ? b->runner_paths[0] : "none");
  return NULL;
}

/* --- why not -------------------------------------------------------------- */

static void unusable(struct dsh_probe_result *r, const char *stage, int errnum,
                     const char *cause, const char *detail) {
  r->usable = false;
  r->stage = stage;
  r->errnum = errnum;
  r->cause = cause;
  r->fix = dsh_cause_fix(cause);
  r->detail = detail;
}

/* --- trying -------------------------------------------------------------- */

/* Two throw-away directories: one is granted, one is not; and a socket of
 * ours with an abstract name, which nobody inside may reach. */
struct places {
  const char *program, *bare; /* what tries, and its lines without a sandbox */
  int listener;
  char name[16];
  char base[PATH_MAX - 16], root[PATH_MAX], outside[PATH_MAX];
};

/* Not in /tmp unless nothing else will do: every workspace-write run may write
 * there, and could lead what is tried unconfined elsewhere by a link. */
static bool make_base(struct places *p) {
  const char *at[] = {"/var/tmp", getenv("HOME"), getenv("TMPDIR"), "/tmp"};
  size_t i;
  for (i = 0; i < sizeof at / sizeof *at; i++) {
    int n;
    if (!at[i] || at[i][0] != '/')
      continue;
    n = snprintf(p->base, sizeof p->base, "%s/dsh-probe-XXXXXX", at[i]);
    if (n > 0 && (size_t)n < sizeof p->base && mkdtemp(p->base))
      return true;
  }
  return false;
}

/* The kernel picks the name: five digits. Without one, nothing is tried. */
static void listen_abstract(struct places *p) {
  struct sockaddr_un a = {.sun_family = AF_UNIX};
  socklen_t len = sizeof a.sun_family, n;
  p->name[0] = '\0';
  p->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (p->listener < 0 || bind(p->listener, (struct sockaddr *)&a, len) != 0 ||
      listen(p->listener, 8) != 0)
    return;
  len = sizeof a;
  if (getsockname(p->listener, (struct sockaddr *)&a, &len) != 0)
    return;
  n = len - (socklen_t)offsetof(struct sockaddr_un, sun_path);
  if (n > 1 && n - 1 < sizeof p->name) {
    memcpy(p->name, a.sun_path + 1, n - 1);
    p->name[n - 1] = '\0';
  }
}

static int make_places(struct places *p, struct dsh_error *err) {
  p->listener = -1;
  if (!make_base(p))
    return dsh_fail(err, DSH_E_IO, errno, "probe",
                    "no temporary directory for the probe's targets");
  snprintf(p->root, sizeof p->root, "%s/root", p->base);
  snprintf(p->outside, sizeof p->outside, "%s/outside", p->base);
  if (mkdir(p->root, 0700) != 0 || mkdir(p->outside, 0700) != 0)
    return dsh_fail(err, DSH_E_IO, errno, "probe", "directories in %s",
                    p->base);
  listen_abstract(p);
  return 0;
}

/* By descriptors, and never through a link that somebody put there. */
static void remove_tree(int parent, const char *name, int depth) {
  struct dirent *e;
  DIR *d;
  int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW |
                                    O_CLOEXEC);
  if (fd < 0) {
    unlinkat(parent, name, 0);
    return;
  }
  d = depth < 64 ? fdopendir(fd) : NULL;
  if (!d) {
    close(fd);
    return;
  }
  while ((e = readdir(d)))
    if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
      remove_tree(fd, e->d_name, depth + 1);
  closedir(d);
  unlinkat(parent, name, AT_REMOVEDIR);
}

static void remove_places(const struct places *p) {
  if (p->listener >= 0)
    close(p->listener);
  remove_tree(AT_FDCWD, p->base, 0);
}

/* The probe program's words for one mode, after argv[0]. */
static void add_words(struct dsh_arena *a, struct dsh_strv *argv,
                      const struct places *at, const char *last) {
  dsh_strv_add(a, argv, "--short");
  dsh_strv_add(a, argv, "--root");
  dsh_strv_add(a, argv, at->root);
  dsh_strv_add(a, argv, "--outside");
  dsh_strv_add(a, argv, at->outside);
  dsh_strv_add(a, argv, "--victim");
  dsh_strv_add(a, argv, dsh_format(a, "%d", (int)getpid()));
  if (at->name[0]) {
    dsh_strv_add(a, argv, "--abstract");
    dsh_strv_add(a, argv, at->name);
  }
  if (last)
    dsh_strv_add(a, argv, last);
}

static int run_line(const struct dsh_plan *plan, int stdin_fd,
                    int64_t limit_ms, struct dsh_run **run,
                    struct dsh_error *err) {
  static const char *const env[] = {"PATH=/usr/bin:/bin", "LC_ALL=C", NULL};
  struct dsh_spawn_opts o = {.env = env,
                             .cwd = "/",
                             .in = stdin_fd < 0 ? DSH_STDIO_NULL : DSH_STDIO_FD,
                             .in_fd = stdin_fd,
                             .out = DSH_STDIO_PIPE,
                             .err = DSH_STDIO_PIPE,
                             .timeout_ms = limit_ms,
                             .grace_ms = 1,
                             .tail_bytes = REPORT_BYTES};
  *run = dsh_run_start(plan, &o, err);
  if (!*run)
    return -1;
  dsh_run_wait(*run, -1);
  return 0;
}

/* The same operations without any sandbox, which also makes the targets. Its
 * lines, or NULL: then nothing can be proven. */
static const char *try_bare(struct dsh_arena *a, const char *program,
                            const struct places *at, int64_t limit_ms) {
  struct dsh_plan plan = {.confined = false};
  const struct dsh_outcome *o;
  const char *text = NULL;
  struct dsh_run *run;
  struct dsh_error err;
  dsh_strv_add(a, &plan.argv, program);
  add_words(a, &plan.argv, at, "--bare");
  if (a->failed || run_line(&plan, -1, limit_ms, &run, &err) != 0)
    return NULL;
  o = dsh_run_outcome(run);
  if (o->exited && o->exit_code == 0)
    text = dsh_strndup(a, o->out.text, o->out.len);
  dsh_run_free(run);
  return text;
}

static void runner_failed(const struct dsh_outcome *o, const char *line,
                          struct dsh_probe_result *r) {
  const char *stage = o->stage;
  int errnum = 0;
  const char *cause = dsh_cause_of_runner(&stage, &errnum);
  unusable(r, stage, errnum, cause, line);
}

static void judge(const struct dsh_backend *b, const struct dsh_outcome *o,
                  struct dsh_arena *a, struct dsh_probe_result *r) {
  const char *line = o->detail && *o->detail ? o->detail : NULL;
  if (!line && o->err.text && *o->err.text)
    line = dsh_strndup(a, o->err.text, strcspn(o->err.text, "\n"));
  if (o->timed_out)
    unusable(r, "probe", ETIMEDOUT, "timed-out",
             "the probe did not end in time");
  else if (o->started == DSH_STARTED_NO && b != &dsh_backend_landlock &&
           !o->errnum)
    runner_failed(o, line, r);
  else if (o->started == DSH_STARTED_NO)
    unusable(r, o->stage, o->errnum, dsh_cause_of_errno(o->errnum), line);
  else if (!o->exited || o->exit_code != 0)
    unusable(r, "probe", 0, "start-failed", line);
  else
    r->usable = true;
  r->detail = r->detail ? dsh_strdup(a, r->detail) : NULL;
}

/* One mode: plan as confine would, with the private root as workspace. */
static int try_mode(const struct dsh_backend *b, const struct dsh_launch *proto,
                    enum dsh_mode mode, const struct places *at,
                    int64_t limit_ms, struct dsh_arena *a,
                    struct dsh_probe_result *r, struct dsh_error *err) {
  struct dsh_policy policy = {.mode = mode,
                              .workspace_root = at->root,
                              .temp = DSH_TEMP_PRIVATE,
                              .temp_dir = at->root};
  struct dsh_launch in = *proto;
  struct dsh_plan plan = {.confined = true,
                          .launcher = proto->launcher != NULL};
  const struct dsh_outcome *o;
  struct dsh_roots roots;
  struct dsh_run *run;
  const char *bare = at->bare;
  int stdin_fd = -1, e;
  if (dsh_roots_resolve(a, &policy, NULL, NULL, &roots, err) != 0)
    return -1;
  in.policy = &policy;
  in.roots = &roots;
  if (b->plan(a, &in, &plan.argv, err) != 0)
    return -1;
  plan.argv_at = plan.argv.n;
  dsh_strv_add(a, &plan.argv, bare ? at->program : "/bin/true");
  if (bare) {
    const char *path = dsh_format(a, "%s/probe-stdin", at->outside);
    add_words(a, &plan.argv, at, NULL);
    stdin_fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  }
  if (a->failed)
    return dsh_fail(err, DSH_E_NO_MEMORY, ENOMEM, "probe", "arguments");
  e = run_line(&plan, stdin_fd, limit_ms, &run, err);
  if (stdin_fd >= 0)
    close(stdin_fd);
  if (e != 0)
    return -1;
  o = dsh_run_outcome(run);
  judge(b, o, a, r);
  if (r->usable)
    dsh_grade_report(a, mode, bare, bare ? o->out.text : NULL,
                     &r->grade[mode]);
  /* Mounts made outside reach bwrap's read-only tree writable; only an inner
   * Landlock refuses them. Trying it takes a mount of the host's. */
  if (r->usable && b == &dsh_backend_bwrap && in.host->landlock_abi <= 0)
    dsh_grade_open(&r->grade[mode], "mount",
                   "a mount made outside after the start can be written");
  dsh_run_free(run);
  return 0;
}

int dsh_probe_backend(const struct dsh_backend *b, const struct dsh_launch *in,
                      int64_t limit_ms, struct dsh_arena *a,
                      struct dsh_probe_result *r, struct dsh_error *err) {
  struct places at;
  int m, e = 0;
  if (b == &dsh_backend_landlock && in->host->landlock_abi <= 0) {
#if defined __linux__
    int abi = dsh_ll_abi();
    unusable(r, "landlock", -abi, dsh_cause_of_errno(-abi),
             "the kernel does not enforce Landlock");
    return 0;
#endif
  }
  if (make_places(&at, err) != 0)
    return -1;
  /* once for both modes: what is refused leaves its targets as they were, and
   * what is not is repaired by who did it */
  at.program = dsh_probe_program(a);
  at.bare = at.program ? try_bare(a, at.program, &at, limit_ms) : NULL;
  for (m = 0; m < 2 && e == 0; m++) {
    e = try_mode(b, in, (enum dsh_mode)m, &at, limit_ms, a, r, err);
    if (!r->usable)
      break;
  }
  remove_places(&at);
  return e;
}
