/* bwrap.c: bubblewrap outside, our inner stage (Landlock, seccomp, keeper)
 * inside, started by our outer stage, which keeps the command's environment
 * away from it. */
#include "../src/backend.h"

static int plan(struct dsh_arena *a, const struct dsh_launch *in,
                struct dsh_strv *out, struct dsh_error *err) {
  struct dsh_strv checks = {NULL, 0, 0};
  size_t i;
  int r = dsh_strv_add(a, out, in->launcher);
  r |= dsh_strv_add(a, out, "--runner");
  r |= dsh_strv_add(a, out, in->runner);
  if (dsh_bwrap_profile(a, in, out, &checks, err) != 0)
    return -1;
  r |= dsh_strv_add(a, out, "--as-pid-1");
  r |= dsh_strv_add(a, out, "--");
  r |= dsh_strv_add(a, out, in->launcher);
  r |= dsh_strv_add(a, out, "--inner");
  r |= dsh_launcher_grants(a, in, out);
  for (i = 0; i < checks.n; i++)
    r |= dsh_strv_add(a, out, checks.v[i]);
  r |= dsh_strv_add(a, out, "--");
  return r ? dsh_fail(err, DSH_E_NO_MEMORY, 0, "bwrap", "out of memory") : 0;
}

static const char *const paths[] = {"/usr/bin/bwrap", "/usr/local/bin/bwrap",
                                    "/bin/bwrap", NULL};
/* The inner stage's refusals have the same words as the mounts'. */
static const char *const signatures[] = {"read-only file system", NULL};
static const char *fatal[] = {"bwrap: ", NULL};
static const struct dsh_failure_rule rules[] = {
    {NULL, 0, {fatal, 1, 0}, {NULL, 0, 0}}};

const struct dsh_backend dsh_backend_bwrap = {
    "bwrap", DSH_LINUX, paths, signatures, rules, 1, plan};
