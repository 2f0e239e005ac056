/* direct.h: the launcher's restrictions without the launcher, applied by the
 * core itself between fork and exec (read-only under Landlock alone, where a
 * call needs no keeper). The rules are those of restrict.h, as there. */
#ifndef DSH_DIRECT_H
#define DSH_DIRECT_H

#include "dsh.h"

struct dsh_direct {
  int ruleset; /* owned, or -1 */
  int abi;
};

/* 1: prepared; 0: this plan needs its launcher; or -1 with the error. */
int dsh_direct_prepare(const struct dsh_plan *plan, struct dsh_direct *d,
                       struct dsh_error *err);
/* In the child, after its 0, 1 and 2 are in place; async-signal-safe. NULL,
 * or the stage that failed, with errno. */
const char *dsh_direct_apply(const struct dsh_direct *d);
void dsh_direct_close(struct dsh_direct *d); /* idempotent */

#endif
