/* winacl.c: Windows. The words for windows-acl-run, which derives SIDs, grants
 * and token itself (windows_acl_run.h) and refuses where they do not hold. An
 * allow ACE on a directory is all it has, so nothing can be carved out. */
#include <string.h>

#include "../src/backend.h"

static int unsupported(const char *what, const char *path,
                       struct dsh_error *err) {
  return dsh_fail_path(err, DSH_E_POLICY_UNSUPPORTED, 0, "winacl", path,
                       "%s \"%s\": the ACL runner grants the workspace and "
                       "one private temp directory, whole",
                       what, path);
}

static int check(const struct dsh_launch *in, struct dsh_error *err) {
  const struct dsh_policy *p = in->policy;
  if (p->extra_roots.n)
    return unsupported("extra root", p->extra_roots.v[0], err);
  if (p->mode != DSH_WORKSPACE_WRITE)
    return 0;
  if (in->roots->protected_.n)
    return unsupported("protected path", in->roots->protected_.v[0], err);
  if (in->roots->unprotectable.n)
    return unsupported("protected path", in->roots->unprotectable.v[0], err);
  if (p->temp != DSH_TEMP_PRIVATE)
    return dsh_fail(err, DSH_E_POLICY_UNSUPPORTED, 0, "winacl",
                    "policy.temp: the ACL runner needs a private temp "
                    "directory under workspace-write");
  return 0;
}

static int plan(struct dsh_arena *a, const struct dsh_launch *in,
                struct dsh_strv *out, struct dsh_error *err) {
  const char *root = in->roots->workspace;
  int r;
  if (check(in, err) != 0)
    return -1;
  r = dsh_strv_add(a, out, in->runner);
  r |= dsh_strv_add(a, out, "--workspace");
  r |= dsh_strv_add(a, out, root ? root : in->policy->workspace_root);
  if (in->policy->temp == DSH_TEMP_PRIVATE) {
    r |= dsh_strv_add(a, out, "--temp");
    r |= dsh_strv_add(a, out, in->policy->temp_dir);
  }
  r |= dsh_strv_add(a, out, "--mode");
  r |= dsh_strv_add(a, out, dsh_mode_name(in->policy->mode));
  r |= dsh_strv_add(a, out, "--");
  return r ? dsh_fail(err, DSH_E_NO_MEMORY, 0, "winacl", "out of memory") : 0;
}

static const char *const places[] = {
    "C:\\Program Files\\dshsh\\windows-acl-run.exe", NULL};
static const char *const signatures[] = {
    "access is denied", "access to the path", "permission denied", NULL};
static const int codes[] = {127};
static const char *fatal[] = {"windows-acl-run: ", NULL};
static const struct dsh_failure_rule failure[] = {
    {codes, 1, {fatal, 1, 0}, {NULL, 0, 0}}};

const struct dsh_backend dsh_backend_winacl = {
    "winacl", DSH_WINDOWS, places, signatures, failure, 1, plan};

/* What write restriction cannot reach, on any Windows (contract 2). */
const struct dsh_gap dsh_winacl_gaps[] = {
    {"everyone-writable", "objects that Everyone or the logon session may "
                          "write stay writable: the token keeps both"},
    {"hard-links", "a hard link inside the workspace writes the file it "
                   "names, wherever else that is"}};
const size_t dsh_winacl_n_gaps =
    sizeof dsh_winacl_gaps / sizeof dsh_winacl_gaps[0];
