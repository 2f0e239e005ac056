/* landlock.c: our launcher alone. Landlock only allows, so it cannot carve a
 * protected path out of a grant: such a policy is refused by name. */
#include "../src/backend.h"

int dsh_launcher_grants(struct dsh_arena *a, const struct dsh_launch *in,
                        struct dsh_strv *out) {
  const struct dsh_roots *roots = in->roots;
  size_t i;
  int r = dsh_strv_add(a, out, "--mode");
  r |= dsh_strv_add(a, out, dsh_mode_name(in->policy->mode));
  r |= dsh_strv_add(a, out, "--ro");
  r |= dsh_strv_add(a, out, "/");
  r |= dsh_strv_add(a, out, "--dev");
  if (roots->n) /* what is resolved already must not be a link by then */
    r |= dsh_strv_add(a, out, "--exact");
  for (i = 0; i < roots->n; i++) {
    r |= dsh_strv_add(a, out, "--rw");
    r |= dsh_strv_add(a, out, roots->root[i].path);
  }
  return r;
}

static int plan(struct dsh_arena *a, const struct dsh_launch *in,
                struct dsh_strv *out, struct dsh_error *err) {
  const struct dsh_roots *roots = in->roots;
  int r;
  if (roots->protected_.n)
    return dsh_fail_path(err, DSH_E_POLICY_UNSUPPORTED, 0, "landlock",
                         roots->protected_.v[0],
                         "protected path \"%s\" lies inside a writable root; "
                         "Landlock cannot take it out of the grant",
                         roots->protected_.v[0]);
  if (roots->unprotectable.n)
    return dsh_fail(err, DSH_E_POLICY_UNSUPPORTED, 0, "landlock",
                    "protected path %s; Landlock cannot take it out of a "
                    "writable root",
                    roots->unprotectable.v[0]);
  r = dsh_strv_add(a, out, in->launcher);
  r |= dsh_launcher_grants(a, in, out);
  r |= dsh_strv_add(a, out, "--");
  return r ? dsh_fail(err, DSH_E_NO_MEMORY, 0, "landlock", "out of memory")
           : 0;
}

static const char *const signatures[] = {"permission denied",
                                         "read-only file system", NULL};
static const int codes[] = {125};
static const char *fatal[] = {"landlock-run: ", NULL};
/* The one harmless line that launchers of this name may print. */
static const char *notices[] = {
    "landlock-run: partial enforcement on this kernel", NULL};
static const struct dsh_failure_rule rules[] = {
    {codes, 1, {fatal, 1, 0}, {notices, 1, 0}}};

const struct dsh_backend dsh_backend_landlock = {
    "landlock", DSH_LINUX, NULL, signatures, rules, 1, plan};
