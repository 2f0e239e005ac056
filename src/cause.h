/* cause.h: why a backend cannot be used here. */
#ifndef DSH_CAUSE_H
#define DSH_CAUSE_H

#include "dsh.h"

/* The one thing to do about a cause, or NULL. */
const char *dsh_cause_fix(const char *cause);
/* Does the cause lie in the place or the moment, so that it says nothing
 * lasting about the host? NULL: no. */
bool dsh_cause_transient(const char *cause);
/* A runner that needs namespaces ended before the command: which of its needs
 * is refused here? Tried in a child. Sets *errnum, and *stage when found. */
const char *dsh_cause_of_runner(const char **stage, int *errnum);
/* From the errno of a Landlock or seccomp call. */
const char *dsh_cause_of_errno(int errnum);

#endif
