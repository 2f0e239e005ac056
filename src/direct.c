/* direct.c: what landlock-run's inner stage does for a read-only plan, in the
 * child of the core itself. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "direct.h"

#if defined __linux__
#include "restrict.h"

/* Exactly the words of a read-only plan without a grant; anything else, known
 * to us or not, is the launcher's business. */
static bool is_plain(const struct dsh_plan *plan) {
  static const char *const words[] = {"--mode", "read-only", "--ro",
                                      "/",      "--dev",     "--"};
  enum { N = sizeof words / sizeof *words };
  size_t i;
  if (!plan->launcher || plan->argv_at != N + 1)
    return false;
  for (i = 0; i < N; i++)
    if (strcmp(plan->argv.v[i + 1], words[i]) != 0)
      return false;
  return true;
}

static int fill(struct dsh_direct *d) {
  int r, root = open("/", O_PATH | O_CLOEXEC);
  if (root < 0)
    return -errno;
  r = dsh_ll_allow(d->ruleset, d->abi, root, DSH_ACCESS_READ);
  close(root);
  return r < 0 ? r : dsh_ll_allow_devices(d->ruleset, d->abi, false);
}

int dsh_direct_prepare(const struct dsh_plan *plan, struct dsh_direct *d,
                       struct dsh_error *err) {
  int r;
  d->ruleset = -1;
  if (!is_plain(plan))
    return 0;
  d->abi = dsh_ll_abi();
  if (d->abi > DSH_LL_ABI_KNOWN)
    d->abi = DSH_LL_ABI_KNOWN;
  r = d->abi > 0 ? dsh_ll_ruleset(d->abi, true) : d->abi;
  if (r >= 0) {
    d->ruleset = r;
    r = fill(d);
  }
  if (r >= 0)
    return 1;
  dsh_direct_close(d);
  return dsh_fail(err, DSH_E_SANDBOX_UNAVAILABLE, -r, "landlock", "ruleset");
}

static const char *failed(const char *stage, int r) {
  errno = -r;
  return stage;
}

const char *dsh_direct_apply(const struct dsh_direct *d) {
  int r;
  if ((r = dsh_no_new_privs()) < 0 || (r = dsh_drop_capabilities()) < 0)
    return failed("capabilities", r);
  if ((r = dsh_ll_allow_stdio(d->ruleset, d->abi)) < 0)
    return failed("grant", r);
  if ((r = dsh_ll_restrict(d->ruleset)) < 0)
    return failed("landlock", r);
  if ((r = dsh_seccomp_install(DSH_PROGRAM_RO_PLAIN, false)) < 0)
    return failed("seccomp", r);
  return NULL;
}

#else

int dsh_direct_prepare(const struct dsh_plan *plan, struct dsh_direct *d,
                       struct dsh_error *err) {
  (void)plan;
  (void)err;
  d->ruleset = -1;
  return 0;
}

const char *dsh_direct_apply(const struct dsh_direct *d) {
  (void)d;
  errno = ENOSYS;
  return "landlock";
}

#endif

void dsh_direct_close(struct dsh_direct *d) {
  if (d->ruleset >= 0)
    close(d->ruleset);
  d->ruleset = -1;
}
