/* backend.h: what a backend is. Each file in backends/ defines one
 * `const struct dsh_backend`, listed once in src/backend.c.
 *
 * A backend is a pure planner: from a launch record it makes an argv and
 * touches nothing, so that its output is a golden file on any host. Finding
 * the runner on this host and probing it are done around it. */
#ifndef DSH_BACKEND_H
#define DSH_BACKEND_H

#include "dsh.h"

enum dsh_platform { DSH_LINUX = 1, DSH_MACOS = 2, DSH_WINDOWS = 4 };

/* What a planner may know about the host. */
struct dsh_host {
  int landlock_abi;         /* 0: none or disabled */
  const char *tty;          /* path of the call's terminal, or NULL */
  bool uid0;
};

struct dsh_launch {
  const struct dsh_policy *policy;
  const struct dsh_roots *roots;
  const struct dsh_host *host;
  const char *launcher;     /* absolute path of landlock-run */
  const char *runner;       /* absolute path of the runner, or NULL */
  const struct dsh_strv *runner_command; /* operator's own, or NULL */
};

struct dsh_backend {
  const char *name;
  unsigned platforms;       /* of enum dsh_platform */
  /* Fixed trusted places of the runner, NULL terminated; never PATH. */
  const char *const *runner_paths;
  const char *const *denial_signatures; /* NULL terminated */
  const struct dsh_failure_rule *rules;
  size_t n_rules;
  /* Writes everything before the caller's argv into out, the closing "--"
   * included. DSH_E_POLICY_UNSUPPORTED names what cannot be expressed. */
  int (*plan)(struct dsh_arena *a, const struct dsh_launch *in,
              struct dsh_strv *out, struct dsh_error *err);
};

/* Shared by planners: bwrap's profile arguments, with `checks` (or NULL) the
 * launcher's --expect options for each mount; and landlock-run's grants. */
int dsh_bwrap_profile(struct dsh_arena *a, const struct dsh_launch *in,
                      struct dsh_strv *out, struct dsh_strv *checks,
                      struct dsh_error *err);
/* Adds a NULL terminated list. */
int dsh_words(struct dsh_arena *a, struct dsh_strv *out,
              const char *const *words);
int dsh_launcher_grants(struct dsh_arena *a, const struct dsh_launch *in,
                        struct dsh_strv *out);

extern const struct dsh_backend dsh_backend_bwrap, dsh_backend_landlock,
    dsh_backend_seatbelt, dsh_backend_winacl, dsh_backend_custom;
/* What winacl never governs, beside what was not probed. */
extern const struct dsh_gap dsh_winacl_gaps[];
extern const size_t dsh_winacl_n_gaps;

/* All that probing may choose, NULL terminated, in its order (custom is
 * chosen by configuration alone). */
extern const struct dsh_backend *const dsh_backends[];
/* The bit of enum dsh_platform that this build runs on. */
unsigned dsh_platform_here(void);
const struct dsh_backend *dsh_backend_find(const char *name);

#endif
