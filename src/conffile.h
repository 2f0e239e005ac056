/* conffile.h: small files of ours, written whole: settings and the like. */
#ifndef DSH_CONFFILE_H
#define DSH_CONFFILE_H

#include "dsh.h"

#define DSH_CONF_LOCK_MS 5000 /* how long a writer waits for another one */

/* Takes the writers' lock PATH.lock (made 0600, never removed) and returns
 * its descriptor, which the caller closes; -1 with DSH_E_IO, errno EAGAIN
 * when another writer holds it for longer than DSH_CONF_LOCK_MS. */
int dsh_conf_lock(const char *path, struct dsh_error *err);

/* Replaces the file by these bytes: a temporary sibling (0600), fsync,
 * rename, fsync of the directory. The old content stays whole on failure and
 * nothing is left behind. A symlink is followed, the link stays. */
int dsh_conf_replace(const char *path, const void *data, size_t len,
                     struct dsh_error *err);

/* Makes the directory, 0700; one that exists is left as it is. */
int dsh_conf_mkdir(const char *path, struct dsh_error *err);

#endif
