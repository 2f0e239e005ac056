/* confine.c: policy in, plan out. The provider holds the chain of backends
 * and what probing found; the policy comes with each call. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend.h"
#include "cause.h"
#include "path.h"
#include "grade.h"
#include "probe.h"
#include "verdict.h"
#if defined __linux__
#include "restrict.h"
#endif

enum { CHAIN_MAX = 8 };

/* The last plan of a backend in a mode. Planning is pure, so the same roots
 * give the same words; a call that repeats itself copies them. */
struct memo {
  struct dsh_arena arena;  /* owned */
  struct dsh_roots roots;  /* only what planners look at */
  struct dsh_strv argv;    /* its strings lie in one block */
  char *block;
  size_t bytes;
  uint64_t number;         /* 0: empty */
};

struct link {
  const struct dsh_backend *backend;
  const char *launcher, *runner; /* in `keep`; NULL: not found */
  bool probed;
  struct dsh_probe_result result;
  struct memo memo[2];     /* by DSH_READ_ONLY, DSH_WORKSPACE_WRITE */
};

struct dsh_provider {
  struct dsh_arena config_arena; /* owned: copies of the configuration */
  struct dsh_arena keep;         /* owned: verdicts, until reprobe */
  const char *launcher;
  const char *verdict_dir;       /* or NULL */
  bool fresh;                    /* asked to probe again: believe no file */
  struct dsh_strv runner;
  struct dsh_failure_rule rule;  /* of the operator's runner */
  bool probe_runner;
  int64_t limit_ms;
  struct link chain[CHAIN_MAX];
  size_t n;
  struct dsh_host host;
  struct dsh_probe_result results[CHAIN_MAX];
  uint64_t plans;          /* memos made so far */
};

/* --- the provider -------------------------------------------------------- */

static int copy_list(struct dsh_arena *a, struct dsh_strv *out,
                     const struct dsh_strv *in) {
  size_t i;
  int r = 0;
  for (i = 0; i < in->n; i++)
    r |= dsh_strv_add(a, out, dsh_strdup(a, in->v[i]));
  return r;
}

static bool is_blank(const char *s) {
  return s[strspn(s, " \t")] == '\0';
}

static int check_operator(const struct dsh_provider_config *c,
                          struct dsh_error *err) {
  size_t i;
  if (c->signatures.n && !c->runner.n)
    return dsh_fail(err, DSH_E_MISUSE, 0, "config",
                    "runnerFailureSignatures: given without runnerCommand");
  if (!c->runner.n)
    return 0;
  if (c->runner.v[0][0] != '/')
    return dsh_fail(err, DSH_E_MISUSE, 0, "config",
                    "runnerCommand: expected an absolute path, got \"%s\"",
                    c->runner.v[0]);
  if (!c->signatures.n)
    return dsh_fail(err, DSH_E_MISUSE, 0, "config",
                    "runnerCommand: at least one of "
                    "runnerFailureSignatures is needed");
  for (i = 0; i < c->signatures.n; i++)
    if (is_blank(c->signatures.v[i]) || strpbrk(c->signatures.v[i], "\r\n"))
      return dsh_fail(err, DSH_E_MISUSE, 0, "config",
                      "runnerFailureSignatures[%zu]: blank or more than one "
                      "line",
                      i + 1);
  return 0;
}

static int fill_chain(struct dsh_provider *p, const char *name,
                      struct dsh_error *err) {
  const struct dsh_backend *const *b;
  if (p->runner.n) {
    p->chain[p->n++].backend = &dsh_backend_custom;
    return 0;
  }
  for (b = dsh_backends; *b && p->n < CHAIN_MAX; b++) {
    if (name ? strcmp((*b)->name, name) == 0
             : ((*b)->platforms & dsh_platform_here()) != 0)
      p->chain[p->n++].backend = *b;
  }
  if (name && !p->n)
    return dsh_fail(err, DSH_E_MISUSE, 0, "config",
                    "backend: unknown name \"%s\"", name);
  return 0;
}

static int configure(struct dsh_provider *p,
                     const struct dsh_provider_config *c,
                     struct dsh_error *err) {
  struct dsh_arena *a = &p->config_arena;
  if (check_operator(c, err) != 0)
    return -1;
  if (c->probe_timeout_ms < 0)
    return dsh_fail(err, DSH_E_MISUSE, 0, "config",
                    "probeTimeoutMs: expected a positive number");
  p->limit_ms = c->probe_timeout_ms ? c->probe_timeout_ms : DSH_PROBE_MS;
  p->probe_runner = c->probe_runner;
  p->launcher = c->launcher ? dsh_strdup(a, c->launcher) : NULL;
  p->verdict_dir = c->verdict_dir ? dsh_strdup(a, c->verdict_dir) : NULL;
  copy_list(a, &p->runner, &c->runner);
  copy_list(a, &p->rule.fatal_signatures, &c->signatures);
  if (a->failed)
    return dsh_fail(err, DSH_E_NO_MEMORY, ENOMEM, "config", "configuration");
  return fill_chain(p, c->backend, err);
}

static void look_at_host(struct dsh_host *h) {
  memset(h, 0, sizeof *h);
  h->uid0 = geteuid() == 0;
#if defined __linux__
  h->landlock_abi = dsh_ll_abi();
  if (h->landlock_abi < 0)
    h->landlock_abi = 0;
#endif
}

struct dsh_provider *dsh_provider_new(const struct dsh_provider_config *c,
                                      struct dsh_error *err) {
  struct dsh_provider *p = calloc(1, sizeof *p);
  if (!p) {
    dsh_fail(err, DSH_E_NO_MEMORY, ENOMEM, "config", "provider");
    return NULL;
  }
  dsh_arena_init(&p->config_arena);
  dsh_arena_init(&p->keep);
  look_at_host(&p->host);
  if (configure(p, c, err) != 0) {
    dsh_provider_free(p);
    return NULL;
  }
  return p;
}

static void forget_plans(struct dsh_provider *p) {
  size_t i;
  int m;
  for (i = 0; i < p->n; i++)
    for (m = 0; m < 2; m++) {
      dsh_arena_free(&p->chain[i].memo[m].arena);
      p->chain[i].memo[m].number = 0;
    }
}

void dsh_provider_free(struct dsh_provider *p) {
  if (!p)
    return;
  forget_plans(p);
  dsh_arena_free(&p->config_arena);
  dsh_arena_free(&p->keep);
  free(p);
}

void dsh_provider_reprobe(struct dsh_provider *p) {
  size_t i;
  p->fresh = true;
  dsh_found_reset();
  forget_plans(p);
  for (i = 0; i < p->n; i++)
    p->chain[i] = (struct link){.backend = p->chain[i].backend};
  dsh_arena_free(&p->keep);
  look_at_host(&p->host);
}

/* --- verdicts ------------------------------------------------------------ */

/* "full" is earned; what nobody tried is partial, and says so, and so are
 * the gaps that the backend always has. */
static void not_probed(struct dsh_arena *a, const struct dsh_backend *b,
                       struct dsh_probe_result *r, const char *reason) {
  size_t n = b == &dsh_backend_winacl ? dsh_winacl_n_gaps : 0;
  int m;
  r->usable = true;
  for (m = 0; m < 2; m++) {
    struct dsh_gap *gap = dsh_alloc(a, (n + 1) * sizeof *gap);
    r->grade[m] = (struct dsh_grade){DSH_ENFORCE_PARTIAL, gap,
                                     gap ? n + 1 : 0, NULL, 0};
    dsh_grade_limits(a, &r->grade[m]);
    if (!gap)
      continue;
    gap[0] = (struct dsh_gap){"all", reason};
    if (n)
      memcpy(gap + 1, dsh_winacl_gaps, n * sizeof *gap);
  }
}

static void missing(struct link *l, const struct dsh_error *err,
                    const char *fix) {
  struct dsh_probe_result *r = &l->result;
  r->usable = false;
  r->stage = "find";
  r->errnum = err->errnum;
  r->cause = err->stage;
  r->fix = fix;
}

static bool find_runner(struct dsh_provider *p, struct link *l) {
  const struct dsh_backend *b = l->backend;
  struct dsh_error err;
  l->runner = dsh_runner_path(&p->keep, b, &err);
  if (!l->runner) {
    missing(l, &err, dsh_format(&p->keep, "install %s from the system's "
                                          "packages",
                                b->name));
    l->result.detail = dsh_strdup(&p->keep, err.message);
  }
  return l->runner != NULL;
}

/* Fills in what the planner needs; false: the backend cannot be used. */
static bool find_programs(struct dsh_provider *p, struct link *l) {
  const struct dsh_backend *b = l->backend;
  struct dsh_error err;
  if (b == &dsh_backend_custom)
    return true;
  if (!(b->platforms & dsh_platform_here())) {
    err.errnum = 0;
    err.stage = "other-platform";
    missing(l, &err, "choose a backend of this platform");
    l->result.detail = dsh_format(&p->keep, "%s is for another platform",
                                  b->name);
    return false;
  }
  if (!(b->platforms & DSH_LINUX))
    return find_runner(p, l);
  l->launcher = dsh_launcher_path(&p->keep, p->launcher, &err);
  if (!l->launcher) {
    missing(l, &err, "build or reinstall dshsh: its launcher is missing");
    l->result.detail = dsh_strdup(&p->keep, err.message);
    return false;
  }
  if (!b->runner_paths)
    return true;
  return find_runner(p, l);
}

static struct dsh_launch launch_of(const struct dsh_provider *p,
                                   const struct link *l,
                                   const struct dsh_policy *policy,
                                   const struct dsh_roots *roots) {
  return (struct dsh_launch){policy,      roots,
                             &p->host,    l->launcher,
                             l->runner,   p->runner.n ? &p->runner : NULL};
}

static int settle(struct dsh_provider *p, struct link *l,
                  struct dsh_error *err) {
  const char *program;
  struct dsh_launch in;
  if (l->probed)
    return 0;
  l->probed = true;
  l->result = (struct dsh_probe_result){.backend = l->backend->name};
  if (!find_programs(p, l))
    return 0;
  if (l->backend == &dsh_backend_custom && !p->probe_runner) {
    not_probed(&p->keep, l->backend, &l->result, "asserted by the operator");
    return 0;
  }
  if (!(l->backend->platforms & DSH_LINUX)) {
    not_probed(&p->keep, l->backend, &l->result, "not probed");
    return 0;
  }
  in = launch_of(p, l, NULL, NULL);
  program = p->verdict_dir ? dsh_probe_program(&p->keep) : NULL;
  if (program && !p->fresh &&
      dsh_verdict_load(p->verdict_dir, l->backend->name, &in, program,
                       &p->keep, &l->result))
    return 0;
  if (dsh_probe_backend(l->backend, &in, p->limit_ms, &p->keep, &l->result,
                        err) != 0) {
    l->probed = false; /* no verdict: the next call tries again */
    return -1;
  }
  l->result.backend = l->backend->name;
  if (program)
    dsh_verdict_save(p->verdict_dir, l->backend->name, &in, program, &p->keep,
                     &l->result);
  return 0;
}

int dsh_provider_probe(struct dsh_provider *p,
                       const struct dsh_probe_result **out, size_t *n,
                       struct dsh_error *err) {
  size_t i;
  for (i = 0; i < p->n; i++) {
    if (settle(p, &p->chain[i], err) != 0)
      return -1;
    p->results[i] = p->chain[i].result;
  }
  *out = p->results;
  *n = p->n;
  return 0;
}

size_t dsh_provider_known(const struct dsh_provider *p,
                          const struct dsh_probe_result **out, size_t max) {
  size_t i, n = 0;
  for (i = 0; i < p->n && n < max; i++)
    if (p->chain[i].result.backend)
      out[n++] = &p->chain[i].result;
  return n;
}

/* --- planning ------------------------------------------------------------ */

static int check_argv(const char *const *argv, size_t n,
                      struct dsh_error *err) {
  size_t i;
  if (n == 0)
    return dsh_fail(err, DSH_E_MISUSE, 0, "confine", "argv: is empty");
  for (i = 0; i < n; i++)
    if (!argv[i])
      return dsh_fail(err, DSH_E_MISUSE, 0, "confine", "argv[%zu]: is missing",
                      i + 1);
  if (!argv[0][0])
    return dsh_fail(err, DSH_E_MISUSE, 0, "confine",
                    "argv[1]: the program is an empty string");
  return 0;
}

static int append_argv(struct dsh_arena *a, struct dsh_plan *out,
                       const char *const *argv, size_t n) {
  size_t i;
  int r = 0;
  out->argv_at = out->argv.n;
  for (i = 0; i < n; i++)
    r |= dsh_strv_add(a, &out->argv, dsh_strdup(a, argv[i]));
  return r;
}

static int check_size(const struct dsh_plan *plan, struct dsh_error *err) {
  size_t i, bytes = 0;
  for (i = 0; i < plan->argv.n; i++)
    bytes += strlen(plan->argv.v[i]) + 1;
  if (bytes <= DSH_ARGS_MAX)
    return 0;
  return dsh_fail(err, DSH_E_POLICY_TOO_LARGE, 0, plan->backend,
                  "the policy needs %zu bytes of arguments, at most %d are "
                  "passed",
                  bytes, DSH_ARGS_MAX);
}

static void describe(const struct dsh_provider *p, const struct link *l,
                     const struct dsh_policy *policy, struct dsh_arena *a,
                     struct dsh_plan *out) {
  const char *const *s;
  /* Grants under read-only run the program of workspace-write. */
  int m = policy->mode == DSH_READ_ONLY && !policy->extra_roots.n ? 0 : 1;
  out->confined = true;
  out->launcher = l->launcher != NULL;
  out->backend = l->backend->name;
  out->grade = l->result.grade[m];
  out->rule = l->backend->rules;
  out->n_rules = l->backend->n_rules;
  if (l->backend == &dsh_backend_custom) {
    out->rule = &p->rule;
    out->n_rules = 1;
  }
  for (s = l->backend->denial_signatures; s && *s; s++)
    dsh_strv_add(a, &out->denial_signatures, *s);
}

static int unavailable(const struct dsh_policy *policy,
                       struct dsh_error *err) {
  return dsh_fail(
      err, DSH_E_SANDBOX_UNAVAILABLE, 0, "confine",
      "sandbox mode \"%s\" is requested but no sandbox backend is usable on "
      "this host; refusing to run the command unconfined. Install bubblewrap "
      "or run a Landlock-enforcing kernel (Linux), ensure sandbox-exec is "
      "usable (macOS), or ensure the ACL restricted-token runner can start "
      "(Windows) \xe2\x80\x94 otherwise switch the consumer to "
      "danger-full-access.",
      dsh_mode_name(policy->mode));
}

/* --- the same plan again ------------------------------------------------- */

static bool same_list(const struct dsh_strv *a, const struct dsh_strv *b) {
  size_t i;
  if (a->n != b->n)
    return false;
  for (i = 0; i < a->n; i++)
    if (strcmp(a->v[i], b->v[i]) != 0)
      return false;
  return true;
}

static bool same_roots(const struct dsh_roots *a, const struct dsh_roots *b) {
  size_t i;
  if (a->n != b->n || b->unprotectable.n ||
      !same_list(&a->protected_, &b->protected_))
    return false;
  for (i = 0; i < a->n; i++)
    if (a->root[i].read_only != b->root[i].read_only ||
        strcmp(a->root[i].path, b->root[i].path) != 0)
      return false;
  return true;
}

/* Every word of `in`, copied into one block. */
static char *copy_words(struct dsh_arena *a, const struct dsh_strv *in,
                        struct dsh_strv *out, size_t bytes) {
  char *block = dsh_alloc(a, bytes), *at = block;
  size_t i, n;
  for (i = 0; block && i < in->n; i++, at += n) {
    n = strlen(in->v[i]) + 1;
    memcpy(at, in->v[i], n);
    dsh_strv_add(a, out, at);
  }
  return block;
}

static void remember(struct dsh_provider *p, struct memo *m,
                     const struct dsh_roots *roots,
                     const struct dsh_strv *argv) {
  struct dsh_arena *a = &m->arena;
  size_t i;
  m->number = 0;
  dsh_arena_free(a);
  m->roots = (struct dsh_roots){.n = roots->n};
  m->roots.root = dsh_alloc(a, (roots->n + 1) * sizeof *roots->root);
  for (i = 0; m->roots.root && i < roots->n; i++) {
    m->roots.root[i] = roots->root[i];
    m->roots.root[i].path = dsh_strdup(a, roots->root[i].path);
  }
  copy_list(a, &m->roots.protected_, &roots->protected_);
  m->argv = (struct dsh_strv){NULL, 0, 0};
  for (m->bytes = i = 0; i < argv->n; i++)
    m->bytes += strlen(argv->v[i]) + 1;
  m->block = copy_words(a, argv, &m->argv, m->bytes);
  if (!a->failed)
    m->number = ++p->plans;
}

/* The remembered words with room for n more. */
static int recall(const struct memo *m, struct dsh_arena *a, size_t more,
                  struct dsh_strv *out) {
  char *block = dsh_alloc(a, m->bytes);
  size_t i;
  out->v = dsh_alloc(a, (m->argv.n + more + 2) * sizeof *out->v);
  if (!block || !out->v)
    return -1;
  memcpy(block, m->block, m->bytes);
  for (i = 0; i < m->argv.n; i++)
    out->v[i] = block + (m->argv.v[i] - m->block);
  out->n = m->argv.n;
  out->cap = m->argv.n + more + 2;
  return 0;
}

static int plan_anew(struct dsh_provider *p, struct link *l,
                     const struct dsh_policy *policy,
                     const struct dsh_roots *roots, struct dsh_arena *a,
                     struct dsh_plan *out, struct dsh_error *err) {
  struct dsh_launch in = launch_of(p, l, policy, roots);
  out->argv = (struct dsh_strv){NULL, 0, 0};
  out->backend = l->backend->name;
  if (l->backend->plan(a, &in, &out->argv, err) != 0)
    return -1;
  return check_size(out, err);
}

static int plan_with(struct dsh_provider *p, struct link *l,
                     const struct dsh_policy *policy,
                     const struct dsh_roots *roots, size_t more,
                     struct dsh_arena *a, struct dsh_plan *out,
                     struct dsh_error *err) {
  struct memo *m = &l->memo[policy->mode == DSH_READ_ONLY ? 0 : 1];
  out->words_key = m;
  if (m->number && same_roots(&m->roots, roots)) {
    out->words_number = m->number;
    if (recall(m, a, more, &out->argv) == 0)
      return 0;
    return dsh_fail(err, DSH_E_NO_MEMORY, ENOMEM, "confine", "out of memory");
  }
  if (plan_anew(p, l, policy, roots, a, out, err) != 0)
    return -1;
  remember(p, m, roots, &out->argv);
  out->words_number = m->number;
  return 0;
}

/* A verdict that lies in the place or the moment is no lasting one: where
 * nothing else is usable, the next call tries again. */
static void forget_the_moment(struct dsh_provider *p) {
  size_t i;
  for (i = 0; i < p->n; i++)
    if (dsh_cause_transient(p->chain[i].result.cause))
      p->chain[i].probed = false;
}

/* The first usable backend that can express the policy. */
static int choose(struct dsh_provider *p, struct dsh_arena *a,
                  const struct dsh_policy *policy,
                  const struct dsh_roots *roots, size_t more,
                  struct dsh_plan *out, struct link **chosen,
                  struct dsh_error *err) {
  struct dsh_error first;
  bool unsupported = false;
  size_t i;
  for (i = 0; i < p->n; i++) {
    struct link *l = &p->chain[i];
    struct dsh_error *e = unsupported ? NULL : &first;
    if (settle(p, l, err) != 0)
      return -1;
    if (!l->result.usable)
      continue;
    if (plan_with(p, l, policy, roots, more, a, out, e) == 0) {
      *chosen = l;
      return 0;
    }
    unsupported = true;
  }
  if (!unsupported) {
    forget_the_moment(p);
    return unavailable(policy, err);
  }
  if (err)
    *err = first;
  return -1;
}

int dsh_confine(struct dsh_provider *p, struct dsh_arena *a,
                const char *const *argv, size_t n,
                const struct dsh_policy *policy, struct dsh_plan *out,
                struct dsh_error *err) {
  struct dsh_roots roots;
  struct link *chosen = NULL;
  memset(out, 0, sizeof *out);
  out->mode = policy->mode;
  if (check_argv(argv, n, err) != 0 || dsh_policy_check(policy, err) != 0)
    return -1;
  if (policy->mode != DSH_DANGER_FULL_ACCESS) {
    if (dsh_roots_resolve(a, policy, getenv("TMPDIR"), getenv("HOME"), &roots,
                          err) != 0 ||
        choose(p, a, policy, &roots, n, out, &chosen, err) != 0)
      return -1;
    describe(p, chosen, policy, a, out);
    out->refused = roots.refused;
  }
  if (append_argv(a, out, argv, n) != 0 || a->failed)
    return dsh_fail(err, DSH_E_NO_MEMORY, ENOMEM, "confine", "out of memory");
  return 0;
}
