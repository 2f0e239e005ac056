/* frame.h: the zstd frames of a session log (RFC 8878), walked by their
 * headers without decoding anything.
 *
 * A walk reads with pread through one small buffer: the file may shrink
 * under us (a writer that rolls back), and a mapping would then fault. */
#ifndef DSH_FRAME_H
#define DSH_FRAME_H

#include "dsh.h"

#define DSH_WINDOW_MAX (128u << 20)          /* bytes; more is refused */
#define DSH_FRAME_CONTENT_MAX ((uint64_t)1 << 32) /* declared; likewise */
#define DSH_WALK_BYTES (256u << 10)

enum dsh_frame_kind {
  DSH_FRAME_END,  /* at == the file's end: no further frame */
  DSH_FRAME_DATA,
  DSH_FRAME_SKIP, /* a skippable frame: passes, holds nothing */
  DSH_FRAME_TORN  /* a frame's beginning; [at, at + size) ends the file */
};

struct dsh_frame {
  enum dsh_frame_kind kind;
  uint64_t at, size;    /* where it lies in the file */
  uint64_t bound;       /* it decodes to at most this many bytes */
  bool checksum;
};

struct dsh_walk {
  int fd;               /* borrowed */
  uint64_t pos, end;    /* next frame; size of the file as we take it */
  unsigned char *buf;   /* owned, DSH_WALK_BYTES */
  uint64_t buf_at;
  size_t buf_len;
};

int dsh_walk_init(struct dsh_walk *w, int fd, uint64_t pos, uint64_t end,
                  struct dsh_error *err);
void dsh_walk_free(struct dsh_walk *w); /* idempotent */
/* The frame at w->pos, which moves behind it. What cannot be a frame, or one
 * that asks for too much, is DSH_E_SESSION_CORRUPT. */
int dsh_walk_next(struct dsh_walk *w, struct dsh_frame *f,
                  struct dsh_error *err);
/* Bytes [at, at + n) of the file: a pointer valid until the next call on w,
 * or NULL (n over DSH_WALK_BYTES, file shorter, or a read error). */
const unsigned char *dsh_walk_bytes(struct dsh_walk *w, uint64_t at, size_t n);
/* Moves to the next place that has a frame's magic number; false: none. */
bool dsh_walk_seek_magic(struct dsh_walk *w);
/* Does a whole, checksummed frame that decodes start at some byte in (at,
 * end)? Then what begins at `at` was not torn but damaged. */
bool dsh_walk_hidden(struct dsh_walk *w, uint64_t at);

#endif
