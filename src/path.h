/* path.h: the parts of paths and policy that only later stages of the core
 * share: resolving, control paths, the order of paths. */
#ifndef DSH_PATH_H
#define DSH_PATH_H

#include "dsh.h"

/* Resolves an absolute path, links first, then "..". With `lenient`, what
 * does not exist is appended as it is written, and *exists says so. Each
 * link passed is added to *links (when not NULL) by its own canonical path.
 * NULL with DSH_E_IO. */
char *dsh_path_resolve(struct dsh_arena *a, const char *path, bool lenient,
                       bool *exists, struct dsh_strv *links,
                       struct dsh_error *err);
/* Orders paths so that what lies in a directory comes right after it. */
int dsh_path_compare(const char *a, const char *b);

/* A path as it was found, kept between calls and confirmed by one stat (two
 * where the text is not canonical): the same object is still there. */
struct dsh_found {
  char *raw, *canonical; /* owned */
  char *links; /* owned: links passed, each ended by NUL; then an empty one */
  uint64_t dev, ino;
  unsigned mode;      /* st_mode at the last look */
  uint32_t uid, gid;
  bool read_only;     /* on a read-only mount; seen when first resolved */
  bool unreachable;   /* some ancestor refuses uid 0 without capabilities */
  bool denied;        /* we are uid 0, and permissions alone would refuse */
  int64_t looked_ms;  /* when, on the coarse monotonic clock */
};

/* 0; an errno when there is nothing (ENOENT, EACCES, …). *out is valid until
 * the next call in this thread. */
int dsh_found(const char *path, const struct dsh_found **out);
/* The same for a place that only root can replace (/tmp, /dev/shm): a look
 * is good for a second. */
int dsh_found_fixed(const char *path, const struct dsh_found **out);

/* Forgets every path found in this thread. */
void dsh_found_reset(void);

/* --- control.c ----------------------------------------------------------- */

size_t dsh_control_count(void);
const char *dsh_control_at(size_t i); /* canonical, as far as it exists */
/* Do permissions alone keep this user, stripped of capabilities, from
 * changing anything at or below `path`, and from moving it away from under
 * `root`? Slow; looks at every file, at most a few thousand. */
bool dsh_control_denied(const char *path, const char *root);

#endif
