/* dsh.h: the public face of libdsh, in pipeline order.
 *
 *   errors, arena, paths, policy, backend, confine, spawn, classify,
 *   and beside that line: fence and eventlog.
 *
 * Conventions that hold for every declaration here:
 *  - A function that can fail returns 0 or -1 (or a pointer or NULL) and
 *    takes a `struct dsh_error *` last. It sets the error once; callers
 *    wrap it. Nothing here prints or exits.
 *  - Strings are NUL terminated bytes unless a length stands beside them.
 *  - What a stage returns lives in the arena it was given. Fields marked
 *    "owned" are the exception and are freed by the named function.
 *  - Times are milliseconds in int64_t, sizes are bytes.
 */
#ifndef DSH_H
#define DSH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define DSH_VERSION "0.1.0"

/* --- limits, each tested at the limit and one past it ------------------- */

#define DSH_ARGS_MAX (64 * 1024)   /* bytes that a plan may add to an argv */
#define DSH_ROOTS_MAX 64           /* writable roots of one policy */
#define DSH_PROTECTED_MAX 256      /* protected paths of one policy */
#define DSH_MOUNTS_MAX 500      /* mounts of one policy */
#define DSH_TAIL_BYTES 64000       /* output kept per stream */
#define DSH_SPILL_BYTES (64 << 20) /* cap of one spill file */
#define DSH_TIMEOUT_MS 120000      /* captured run, when none is given */
#define DSH_TIMEOUT_CAP_MS 600000  /* captured run, unless raised */
#define DSH_GRACE_MS 3000          /* between TERM and KILL */
#define DSH_PROBE_MS 5000          /* one functional probe */

/* --- errors -------------------------------------------------------------- */

/* The one list of error codes. X(NAME): the code's text is "NAME". */
#define DSH_CODES(X)                                                         \
  X(SANDBOX_UNAVAILABLE) X(POLICY_UNSUPPORTED) X(POLICY_TOO_LARGE)           \
  X(MISUSE) X(IO) X(NO_MEMORY) X(SPAWN_FAILED) X(ABORTED)                    \
  X(SESSION_LOCKED) X(SESSION_CORRUPT) X(SESSION_VERSION)                    \
  X(SESSION_NOT_FOUND) X(SESSION_BUSY) X(INVARIANT)                          \
  X(CONFIG_INVALID) X(YAML_INVALID) X(ROW_FAILED) X(SETTINGS_INVALID)        \
  X(APPROVAL_REJECTED) X(APPROVAL_CANCELLED) X(APPROVAL_UNAVAILABLE)         \
  X(ESCALATION_INVALID) X(PRESET_UNKNOWN) X(JOB_LIMIT)                       \
  X(FS_NOT_FOUND) X(FS_NOT_DIRECTORY) X(FS_NOT_TEXT) X(FS_NOT_REGULAR)       \
  X(FS_TOO_LARGE) X(FS_PERMISSION_DENIED) X(FS_SANDBOX_DENIED) X(FS_STALE)   \
  X(FS_EXISTS) X(FS_EDIT_NOT_FOUND) X(FS_EDIT_AMBIGUOUS) X(FS_IO)

enum dsh_code {
  DSH_OK = 0,
#define DSH_CODE_ENUM(name) DSH_E_##name,
  DSH_CODES(DSH_CODE_ENUM)
#undef DSH_CODE_ENUM
  DSH_CODE_COUNT
};

/* A failure. `stage` names the step (a static string, e.g. "bwrap"),
 * `errnum` is an errno or 0, `path` is "" when no path is concerned. */
struct dsh_error {
  enum dsh_code code;
  int errnum;
  const char *stage;
  char message[1024];
  char path[1024];
};

/* Sets *err (when not NULL) and returns -1, so that a failure reads
 * `return dsh_fail(err, DSH_E_IO, errno, "open", "cannot open ...");` */
int dsh_fail(struct dsh_error *err, enum dsh_code code, int errnum,
             const char *stage, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* Like dsh_fail, and records the path. ": " and the errno's text are added
 * to the message when errnum is not 0. */
int dsh_fail_path(struct dsh_error *err, enum dsh_code code, int errnum,
                  const char *stage, const char *path, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));
/* Puts "context: " before the message; returns -1. */
int dsh_wrap(struct dsh_error *err, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
const char *dsh_code_name(enum dsh_code code); /* "SANDBOX_UNAVAILABLE" */
const char *dsh_errno_name(int errnum);        /* "EROFS"; "E123" if unknown */

/* --- arena --------------------------------------------------------------- */

/* Memory that is freed all at once. Allocation never returns NULL for a
 * caller that checks dsh_arena_failed() before it uses what it built: after
 * a failed malloc the arena hands out NULL and remembers. */
struct dsh_arena {
  struct dsh_arena_block *head; /* owned */
  bool failed;
};

void dsh_arena_init(struct dsh_arena *a);
void dsh_arena_free(struct dsh_arena *a); /* idempotent */
/* As free, but keeps one block at hand for what comes next. */
void dsh_arena_reset(struct dsh_arena *a);
void *dsh_alloc(struct dsh_arena *a, size_t size); /* zeroed, 16-aligned */
/* Likewise, but not zeroed. */
void *dsh_alloc_raw(struct dsh_arena *a, size_t size);
char *dsh_strdup(struct dsh_arena *a, const char *s);
char *dsh_strndup(struct dsh_arena *a, const char *s, size_t n);
char *dsh_format(struct dsh_arena *a, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* A growing list of strings; v[n] is always NULL, so v can be an argv. */
struct dsh_strv {
  const char **v;
  size_t n, cap;
};
int dsh_strv_add(struct dsh_arena *a, struct dsh_strv *list, const char *s);

/* --- policy -------------------------------------------------------------- */

enum dsh_mode {
  DSH_READ_ONLY,
  DSH_WORKSPACE_WRITE,
  DSH_DANGER_FULL_ACCESS
};

enum dsh_temp {
  DSH_TEMP_HOST,   /* /tmp and the platform temp directory are roots */
  DSH_TEMP_PRIVATE /* only temp_dir is, and it is exported as TMPDIR */
};

/* What one call may write. Complete: nobody adds defaults later. */
struct dsh_policy {
  enum dsh_mode mode;
  const char *workspace_root;  /* absolute, in every mode */
  const char *session_id;      /* or NULL */
  struct dsh_strv extra_roots; /* absolute; writable under read-only too */
  struct dsh_strv protected_;  /* absolute, or relative to the root */
  enum dsh_temp temp;
  const char *temp_dir;        /* with DSH_TEMP_PRIVATE: absolute */
};

const char *dsh_mode_name(enum dsh_mode mode);
int dsh_mode_parse(const char *text, enum dsh_mode *out); /* 0 or -1 */
/* -1/0/1 as a is narrower than, as wide as, wider than b. */
int dsh_mode_compare(enum dsh_mode a, enum dsh_mode b);
/* Checks form only: absolute paths, known mode (DSH_E_MISUSE, naming the
 * field), limits (DSH_E_POLICY_TOO_LARGE). */
int dsh_policy_check(const struct dsh_policy *p, struct dsh_error *err);

enum dsh_root_origin {
  DSH_ROOT_WORKSPACE, DSH_ROOT_TMP, DSH_ROOT_TMPDIR, DSH_ROOT_EXTRA,
  DSH_ROOT_PRIVATE_TEMP, DSH_ROOT_SHM
};

struct dsh_root {
  const char *path; /* canonical, existing */
  enum dsh_root_origin origin;
  uint64_t dev, ino;
  bool directory;   /* an extra grant may be a file */
  bool read_only;   /* on a read-only mount: a grant cannot change that */
};

/* The one list of writable places (decision 3), sorted by path, without
 * roots that lie inside another one. Every backend and the fence use this. */
struct dsh_roots {
  struct dsh_root *root;
  size_t n;
  const char *workspace;       /* canonical; NULL if it does not exist */
  struct dsh_strv protected_;  /* canonical as far as they exist, under a
                                * root, none inside another; sorted */
  /* Protected names under a root that no backend can carve out: they do not
   * exist, or a link that the command could replace leads to them. As
   * "PATH: reason"; a backend refuses the policy by the first of them. */
  struct dsh_strv unprotectable;
  struct dsh_strv refused;     /* "PATH: reason" of roots left out */
};

/* Resolves `path` as chdir would (links first, then ".."), into a canonical
 * absolute path in the arena. Fails DSH_E_IO with errno. */
char *dsh_canonical(struct dsh_arena *a, const char *path,
                    struct dsh_error *err);
/* `tmpdir` is the caller's $TMPDIR or NULL, `home` its $HOME or NULL.
 * Control paths (dsh_control_add) are added to the protected ones, but where
 * permissions alone keep this user from them. Fails
 * DSH_E_POLICY_UNSUPPORTED, naming the path, for a root that is "/" or a
 * kernel file system, that permissions deny to uid 0 without capabilities, or
 * that a link in a writable place leads out of it. */
int dsh_roots_resolve(struct dsh_arena *a, const struct dsh_policy *p,
                      const char *tmpdir, const char *home,
                      struct dsh_roots *out, struct dsh_error *err);
/* Is canonical `path` under a root and not protected? *why gets the deciding
 * root or protected path (in `roots`), or NULL. Lexical and pure. */
bool dsh_roots_writable(const struct dsh_roots *roots, const char *path,
                        const char **why);
/* True if canonical `path` is `dir` or lies beneath it. Pure. */
bool dsh_path_within(const char *path, const char *dir);
/* Registers a path that no confined command may ever write (decision 13):
 * state directory, launcher, modules, profiles. Process-wide, at start. What
 * does not exist is registered too: nobody inside may make it. */
int dsh_control_add(const char *path, struct dsh_error *err);

/* --- backend ------------------------------------------------------------- */

struct dsh_failure_rule {
  const int *allowed_exit_codes; /* n_codes of them; 0 means any but 0 */
  size_t n_codes;
  struct dsh_strv fatal_signatures;
  struct dsh_strv informational_lines;
};

struct dsh_gap {
  const char *effect; /* "metadata", "stdio", "all", … */
  const char *reason;
};

enum dsh_enforcement {
  DSH_ENFORCE_NONE, DSH_ENFORCE_PARTIAL, DSH_ENFORCE_FULL
};

/* What a backend was seen to enforce in one mode on this host. */
struct dsh_grade {
  enum dsh_enforcement enforcement;
  struct dsh_gap *gap;
  size_t n_gaps;
  struct dsh_gap *limit;
  size_t n_limits;
};

/* --- confine ------------------------------------------------------------- */

/* A confined argv and everything known about it before it runs. */
struct dsh_plan {
  struct dsh_strv argv;   /* complete: launcher or runner … -- the caller's */
  size_t argv_at;         /* index in argv of the caller's first word */
  /* Plans of one provider with the same key and number have the same words
   * before argv_at, so a binding may keep its own form of them. */
  const void *words_key;
  uint64_t words_number;
  bool confined;
  bool launcher;          /* argv[0] is our launcher: it speaks keeper.h */
  const char *backend;    /* "bwrap", …; NULL under danger-full-access */
  enum dsh_mode mode;
  struct dsh_grade grade;
  struct dsh_strv denial_signatures;
  const struct dsh_failure_rule *rule;
  size_t n_rules;
  struct dsh_strv refused; /* "PATH: reason" of roots that were left out */
};

/* A provider: an ordered chain of backends and what is known of them.
 * One per context. dsh_provider_free is idempotent. Not thread safe, except
 * that plans already made may be used from any thread. */
struct dsh_provider;

struct dsh_provider_config {
  const char *backend;        /* force one by name; NULL: the platform chain */
  struct dsh_strv runner;     /* runnerCommand */
  struct dsh_strv signatures; /* runnerFailureSignatures */
  bool probe_runner;
  int64_t probe_timeout_ms;   /* 0: DSH_PROBE_MS */
  const char *launcher;       /* path of landlock-run; NULL: installed place */
  const char *verdict_dir;    /* keep verdicts here across processes; or NULL */
};

struct dsh_provider *dsh_provider_new(const struct dsh_provider_config *c,
                                      struct dsh_error *err);
void dsh_provider_free(struct dsh_provider *p);
void dsh_provider_reprobe(struct dsh_provider *p); /* forget every verdict */

/* One backend as the probe saw it. */
struct dsh_probe_result {
  const char *backend;
  bool usable;
  const char *stage;  /* failing step, or NULL */
  int errnum;
  const char *cause;  /* a word: not-installed, userns-refused, … */
  const char *detail; /* one line */
  const char *fix;    /* one line */
  struct dsh_grade grade[2]; /* by DSH_READ_ONLY, DSH_WORKSPACE_WRITE */
};
/* Probes the whole chain; results live as long as the provider or until
 * reprobe. */
int dsh_provider_probe(struct dsh_provider *p,
                       const struct dsh_probe_result **out, size_t *n,
                       struct dsh_error *err);

/* What is known so far, without probing; at most `max` into out. Returns how
 * many. */
size_t dsh_provider_known(const struct dsh_provider *p,
                          const struct dsh_probe_result **out, size_t max);

/* The heart: argv (n words) under policy -> plan. Misuse is DSH_E_MISUSE;
 * no usable backend DSH_E_SANDBOX_UNAVAILABLE with the fixed text. */
int dsh_confine(struct dsh_provider *p, struct dsh_arena *a,
                const char *const *argv, size_t n,
                const struct dsh_policy *policy, struct dsh_plan *out,
                struct dsh_error *err);

/* --- spawn --------------------------------------------------------------- */

enum dsh_started { DSH_STARTED_UNKNOWN, DSH_STARTED_YES, DSH_STARTED_NO };

enum dsh_stdio {
  DSH_STDIO_NULL,    /* /dev/null */
  DSH_STDIO_INHERIT, /* the caller's own 0, 1, 2 */
  DSH_STDIO_PIPE,    /* stdin: `input`; stdout, stderr: captured */
  DSH_STDIO_FD       /* the given descriptor */
};

struct dsh_spawn_opts {
  const char *const *env; /* NULL terminated; the command's whole environment */
  const char *cwd;        /* absolute, or NULL: the caller's */
  enum dsh_stdio in, out, err;
  int in_fd, out_fd, err_fd;  /* with DSH_STDIO_FD */
  const void *input;          /* with in == PIPE; copied. NULL: it stays open */
                              /* for dsh_run_write until dsh_run_close_input */
  size_t input_len;
  const int *pass_fds;        /* further descriptors that the command gets, */
  size_t n_pass_fds;          /* under the same number, each above 2 */
  int64_t timeout_ms;         /* 0: none */
  int64_t grace_ms;           /* 0: DSH_GRACE_MS */
  size_t tail_bytes;          /* 0: DSH_TAIL_BYTES */
  const char *spill_dir;      /* NULL: no spill files */
  bool pty;                   /* 0, 1, 2 are a new terminal; out is captured */
  unsigned short rows, cols;  /* with pty */
  bool foreground;            /* hand the terminal on fd 0 over and back */
  bool observe;               /* typed denial records */
  bool no_keeper;             /* nothing needs it: exec directly */
  const char *keeper;         /* launcher that keeps what has none of its own */
                              /* (danger-full-access, foreign runners); NULL */
};

struct dsh_output {
  const char *text;       /* the last tail_bytes, cut at a character boundary */
  size_t len;
  uint64_t total;         /* bytes the command wrote */
  bool truncated;
  const char *spill_path; /* or NULL */
};

struct dsh_denial {
  const char *op;       /* "open", "unlink", "rename", "chmod", … */
  const char *path;
  const char *path2;    /* rename, link: the other one; else NULL */
  int errnum;
  pid_t pid;
  const char *comm;
  bool confirmed;       /* else predicted */
  bool also_permissions;
};

/* What is known after the end. Lives as long as the run. */
struct dsh_outcome {
  enum dsh_started started;
  const char *stage; /* where the start failed, or NULL */
  int errnum;
  const char *detail; /* the path or word that failed, or NULL */
  bool exited;       /* exit_code is valid; else signal is */
  int exit_code;
  int signal;
  bool timed_out, aborted;
  bool runner_failed; /* by proof: launcher ended before `ready` */
  bool keeper;        /* facts come from the keeper */
  bool status_lost;   /* it started, but nobody can say how it ended */
  struct dsh_output out, err;
  const struct dsh_denial *denial;
  size_t n_denials, denials_dropped; /* beyond what is kept */
  bool denials_known; /* a listener was there; else see listener_errnum */
  int listener_errnum;
  int64_t wall_ms, user_us, system_us, max_rss_kb;
};

/* A running or finished command. One background thread of the core drains
 * outputs and keeps deadlines for all runs of the process. */
struct dsh_run;

struct dsh_run *dsh_run_start(const struct dsh_plan *plan,
                              const struct dsh_spawn_opts *opts,
                              struct dsh_error *err);
/* Waits at most timeout_ms (-1: for ever). 1 finished, 0 not yet, 2 stopped
 * by job control (Ctrl-Z): the terminal is ours again until dsh_run_signal
 * sends SIGCONT. */
int dsh_run_wait(struct dsh_run *r, int64_t timeout_ms);
/* NULL: not yet finished. */
const struct dsh_outcome *dsh_run_outcome(struct dsh_run *r);
void dsh_run_abort(struct dsh_run *r);           /* TERM, grace, KILL; tree */
int dsh_run_signal(struct dsh_run *r, int signum); /* to the command's group */
/* Takes out the denials heard so far of a run that goes on, at most `max`;
 * their text is copied to the arena. The outcome has only the later ones. */
size_t dsh_run_take_denials(struct dsh_run *r, struct dsh_arena *a,
                            struct dsh_denial *out, size_t max);
/* Bytes written since the last read of stream 1 or 2, at most n. *skipped
 * (or NULL) gets how many were lost before them: only the tail is kept. */
size_t dsh_run_read(struct dsh_run *r, int stream, void *buf, size_t n,
                    uint64_t *skipped);
/* To a pty or a stdin pipe, without waiting: bytes taken, or -1 with errno
 * (EPIPE: nobody reads them any more). */
ssize_t dsh_run_write(struct dsh_run *r, const void *buf, size_t n);
void dsh_run_close_input(struct dsh_run *r);
/* Of a pty. -1 with errno. */
int dsh_run_resize(struct dsh_run *r, unsigned short rows,
                   unsigned short cols);
void dsh_run_free(struct dsh_run *r); /* aborts at once when still running */

/* --- classify ------------------------------------------------------------ */

enum dsh_evidence {
  DSH_EVIDENCE_NONE, DSH_EVIDENCE_RECORDS, DSH_EVIDENCE_STDERR
};

struct dsh_verdict {
  enum dsh_started started;
  bool runner_failed;
  const char *detail;   /* the runner's line, in the arena; or NULL */
  bool denied;
  enum dsh_evidence evidence;
};

/* Pure. `stderr_text` may be NULL. Rules of contract section 2. */
int dsh_classify(struct dsh_arena *a, const struct dsh_plan *plan,
                 const struct dsh_outcome *o, struct dsh_verdict *out);

#endif
