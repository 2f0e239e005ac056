/* probe.h: finding out what a backend can do on this host. */
#ifndef DSH_PROBE_H
#define DSH_PROBE_H

#include "backend.h"

/* The launcher: `configured`, or the one of this installation (next to the
 * module or the program, libexec). Never from PATH. NULL with
 * err->stage "launcher". */
const char *dsh_launcher_path(struct dsh_arena *a, const char *configured,
                              struct dsh_error *err);
/* The backend's runner in its fixed places: a regular executable owned by
 * root that nobody else can write, its directory likewise. NULL with the
 * cause as err->stage: "not-installed", "not-trusted". */
const char *dsh_runner_path(struct dsh_arena *a, const struct dsh_backend *b,
                            struct dsh_error *err);
/* The probe program of this installation, or NULL. */
const char *dsh_probe_program(struct dsh_arena *a);
/* Runs the real line under the real profile and tries what it forbids, at
 * most limit_ms. Fills *r (strings in `a`); an unusable backend is a result,
 * not an error. */
int dsh_probe_backend(const struct dsh_backend *b, const struct dsh_launch *in,
                      int64_t limit_ms, struct dsh_arena *a,
                      struct dsh_probe_result *r, struct dsh_error *err);

#endif
