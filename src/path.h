/* path.h: what path.c has beyond dsh.h, for the stages. */
#ifndef DSH_PATH_H
#define DSH_PATH_H

#include "dsh.h"

/* "." and ".." and doubled slashes taken out by text alone, links unseen.
 * `path` is absolute. */
const char *dsh_path_lexical(struct dsh_arena *a, const char *path);

#endif
