/* logwrite.h: session logs, written.
 *
 * One writer at a time, held by flock on `PATH.lock`: the kernel drops that
 * lock when its owner ends in whatever way, so no stale one ever needs
 * handling, and unlike a POSIX record lock it does not vanish when some other
 * descriptor of the file is closed in the same process. The lock file stays,
 * since to remove it would open a race.
 *
 * Nothing is created before the first append. A new log appears by link(2),
 * whole or not at all, and never over an old one. Each append is one frame,
 * written at the known end, then fsynced; when that fails the file is cut
 * back. A torn tail is repaired, through a new file and rename(2), before the
 * first append. */
#ifndef DSH_LOGWRITE_H
#define DSH_LOGWRITE_H

#include "eventlog.h"

#define DSH_EVENT_TYPE_MAX 64

struct dsh_event {
  const char *type;
  const char *data;  /* JSON text of an object */
  bool ignorable;
};

struct dsh_writer;

/* For a log that must not exist yet. `header` is its first line. Touches
 * nothing. */
struct dsh_writer *dsh_writer_create(const char *path, const char *header,
                                     struct dsh_error *err);
/* For one that exists: locks it, verifies it in full, folds it. `fold` and
 * `info` are filled (dsh_fold_free on success). DSH_E_SESSION_LOCKED when
 * another writer holds it. */
struct dsh_writer *dsh_writer_open(const char *path, struct dsh_fold *fold,
                                   struct dsh_log_info *info,
                                   struct dsh_error *err);
/* Appends n events as one frame; *seq is that of the first. All or none. */
int dsh_writer_append(struct dsh_writer *w, const struct dsh_event *ev,
                      size_t n, int64_t *seq, struct dsh_error *err);
void dsh_writer_close(struct dsh_writer *w); /* NULL is allowed */

/* For logwrite.c: makes path.tmp of a log's sound part, its kept lines and
 * what pins the narrower state, fsyncs it and renames it over path. */
int dsh_log_repair(const char *path, const struct dsh_log_info *info,
                   const struct dsh_fold *fold, int64_t *next_seq,
                   struct dsh_error *err);
/* The text of one event's line, with its newline, into buf (owned, grows). */
struct dsh_text {
  char *s; /* owned */
  size_t n, cap;
};
int dsh_event_text(struct dsh_text *t, const struct dsh_event *ev, int64_t seq,
                   struct dsh_error *err);
int dsh_text_add(struct dsh_text *t, const void *s, size_t n,
                 struct dsh_error *err);
int dsh_write_all(int fd, const void *p, size_t n, uint64_t at,
                  struct dsh_error *err);
/* Fsyncs the directory that path lies in. */
int dsh_sync_parent(const char *path, struct dsh_error *err);

#endif
