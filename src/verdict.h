/* verdict.h: what a probe found, kept across processes. */
#ifndef DSH_VERDICT_H
#define DSH_VERDICT_H

#include "backend.h"

/* `dir` is where verdicts lie (made 0700 when it is not there). A verdict is
 * good for the same boot, kernel, user, capabilities, namespaces, core version
 * and the same files of launcher, probe program and runner; never under a
 * seccomp filter, which could make the host look different. Only usable
 * backends that were tried are kept.
 *
 * load: true when *r was filled in (strings in `a`). save: best effort. */
bool dsh_verdict_load(const char *dir, const char *backend,
                      const struct dsh_launch *in, const char *probe,
                      struct dsh_arena *a, struct dsh_probe_result *r);
void dsh_verdict_save(const char *dir, const char *backend,
                      const struct dsh_launch *in, const char *probe,
                      struct dsh_arena *a, const struct dsh_probe_result *r);

#endif
