/* custom.c: an operator's runner that takes bwrap's profile arguments. What it
 * enforces is the operator's word; whether it started is told by the rules
 * that come with it (contract: runnerFailureSignatures). */
#include "../src/backend.h"

static int plan(struct dsh_arena *a, const struct dsh_launch *in,
                struct dsh_strv *out, struct dsh_error *err) {
  size_t i;
  int r = 0;
  for (i = 0; i < in->runner_command->n; i++)
    r |= dsh_strv_add(a, out, in->runner_command->v[i]);
  if (dsh_bwrap_profile(a, in, out, NULL, err) != 0)
    return -1;
  r |= dsh_strv_add(a, out, "--");
  return r ? dsh_fail(err, DSH_E_NO_MEMORY, 0, "custom", "out of memory") : 0;
}

static const char *const signatures[] = {"read-only file system",
                                         "permission denied", NULL};

const struct dsh_backend dsh_backend_custom = {
    "custom", DSH_LINUX | DSH_MACOS, NULL, signatures, NULL, 0, plan};
