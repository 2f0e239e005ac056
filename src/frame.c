/* frame.c: zstd frames walked by their headers. Layout: RFC 8878, 3.1. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include "frame.h"

enum {
  MAGIC_BYTES = 4,
  HEADER_MAX = 18,        /* magic, descriptor, window, dictionary, size */
  BLOCK_MAX = 128 << 10,  /* RFC 8878: no block decodes to more */
  SKIP_HEADER = 8,
  HIDDEN_TRIES = 64       /* magics looked at before we call it damage */
};

static const unsigned char magic[MAGIC_BYTES] = {0x28, 0xb5, 0x2f, 0xfd};

int dsh_walk_init(struct dsh_walk *w, int fd, uint64_t pos, uint64_t end,
                  struct dsh_error *err) {
  memset(w, 0, sizeof *w);
  w->fd = fd;
  w->pos = pos;
  w->end = end;
  w->buf = malloc(DSH_WALK_BYTES);
  if (!w->buf)
    return dsh_fail(err, DSH_E_NO_MEMORY, 0, "log", "out of memory");
  return 0;
}

void dsh_walk_free(struct dsh_walk *w) {
  free(w->buf);
  memset(w, 0, sizeof *w);
}

static size_t fill(struct dsh_walk *w, uint64_t at) {
  uint64_t left = w->end - at;
  size_t want = left < DSH_WALK_BYTES ? (size_t)left : DSH_WALK_BYTES;
  w->buf_at = at;
  w->buf_len = 0;
  while (w->buf_len < want) {
    ssize_t n = pread(w->fd, w->buf + w->buf_len, want - w->buf_len,
                      (off_t)(at + w->buf_len));
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      break;
    w->buf_len += (size_t)n;
  }
  return w->buf_len;
}

const unsigned char *dsh_walk_bytes(struct dsh_walk *w, uint64_t at, size_t n) {
  if (n > DSH_WALK_BYTES || at > w->end || n > w->end - at)
    return NULL;
  if (at < w->buf_at || at + n > w->buf_at + w->buf_len)
    if (fill(w, at) < n)
      return NULL;
  return w->buf + (at - w->buf_at);
}

static int defect(const struct dsh_frame *f, struct dsh_error *err,
                  const char *why) {
  return dsh_fail(err, DSH_E_SESSION_CORRUPT, 0, "frame", "byte %llu: %s",
                  (unsigned long long)f->at, why);
}

static int torn(struct dsh_walk *w, struct dsh_frame *f) {
  f->kind = DSH_FRAME_TORN;
  f->size = w->end - f->at;
  w->pos = w->end;
  return 0;
}

static uint64_t little(const unsigned char *p, unsigned n) {
  uint64_t v = 0;
  while (n--)
    v = v << 8 | p[n];
  return v;
}

/* Header facts; `size` is 0 when the bytes end before the header does. */
struct header {
  unsigned size;
  uint64_t window, content;
  bool content_known, checksum;
};

static const char *parse_header(const unsigned char *p, size_t n,
                                struct header *h) {
  unsigned fhd, single, size, content_bytes;
  memset(h, 0, sizeof *h);
  if (n < MAGIC_BYTES + 1)
    return NULL;
  fhd = p[MAGIC_BYTES];
  single = fhd >> 5 & 1;
  content_bytes = fhd >> 6 ? 1u << (fhd >> 6) : single;
  if (fhd & 8)
    return "reserved bit set in a frame header";
  if (fhd & 3)
    return "a frame that needs a dictionary";
  size = MAGIC_BYTES + 2 - single + content_bytes;
  if (n < size)
    return NULL;
  h->checksum = fhd >> 2 & 1;
  h->content_known = content_bytes > 0;
  h->content = little(p + size - content_bytes, content_bytes);
  if (content_bytes == 2)
    h->content += 256;
  h->window = h->content;
  if (!single) {
    uint64_t base = (uint64_t)1 << (10 + (p[MAGIC_BYTES + 1] >> 3));
    h->window = base + base / 8 * (p[MAGIC_BYTES + 1] & 7);
  }
  if (h->content_known && h->content > DSH_FRAME_CONTENT_MAX)
    return "a frame that declares more than 4 GiB of content";
  if (h->window > DSH_WINDOW_MAX)
    return "a frame whose window is over 128 MiB";
  h->size = size;
  return NULL;
}

/* Walks the blocks; *at is behind the header at first, behind the last block
 * at the end. 1: the file ends before they do. */
static int walk_blocks(struct dsh_walk *w, struct dsh_frame *f,
                       uint64_t block_max, uint64_t *at,
                       struct dsh_error *err) {
  for (;;) {
    const unsigned char *p;
    uint64_t head, size;
    unsigned type;
    if (w->end - *at < 3)
      return 1;
    p = dsh_walk_bytes(w, *at, 3);
    if (!p)
      return dsh_fail(err, DSH_E_IO, errno, "frame", "cannot read the log");
    head = little(p, 3);
    type = head >> 1 & 3;
    size = head >> 3;
    if (type == 3)
      return defect(f, err, "a block of a reserved type");
    if (size > block_max)
      return defect(f, err, "a block larger than a block may be");
    f->bound += type == 2 ? block_max : size;
    *at += 3 + (type == 1 ? 1 : size);
    if (*at > w->end)
      return 1;
    if (head & 1)
      return 0;
  }
}

static int walk_data(struct dsh_walk *w, struct dsh_frame *f,
                     const unsigned char *p, size_t n, struct dsh_error *err) {
  struct header h;
  uint64_t at, block_max;
  const char *why = parse_header(p, n, &h);
  int rc;
  if (why)
    return defect(f, err, why);
  if (!h.size)
    return torn(w, f);
  f->checksum = h.checksum;
  block_max = h.window < BLOCK_MAX ? h.window : BLOCK_MAX;
  at = f->at + h.size;
  rc = walk_blocks(w, f, block_max, &at, err);
  if (rc == 0 && h.checksum) {
    at += 4;
    rc = at > w->end;
  }
  if (rc > 0)
    return torn(w, f);
  if (rc < 0)
    return -1;
  if (h.content_known && h.content > f->bound)
    return defect(f, err, "a frame that declares more than its blocks hold");
  if (h.content_known)
    f->bound = h.content;
  f->kind = DSH_FRAME_DATA;
  f->size = at - f->at;
  w->pos = at;
  return 0;
}

static int walk_skip(struct dsh_walk *w, struct dsh_frame *f,
                     const unsigned char *p, size_t n) {
  if (n < SKIP_HEADER ||
      little(p + MAGIC_BYTES, 4) > w->end - f->at - SKIP_HEADER)
    return torn(w, f);
  f->kind = DSH_FRAME_SKIP;
  f->size = SKIP_HEADER + little(p + MAGIC_BYTES, 4);
  w->pos = f->at + f->size;
  return 0;
}

static bool skip_magic(const unsigned char *p, size_t n) {
  static const unsigned char tail[] = {0x2a, 0x4d, 0x18};
  return (p[0] & 0xf0) == 0x50 && memcmp(p + 1, tail, n - 1) == 0;
}

int dsh_walk_next(struct dsh_walk *w, struct dsh_frame *f,
                  struct dsh_error *err) {
  uint64_t left = w->end - w->pos;
  size_t n = left < HEADER_MAX ? (size_t)left : HEADER_MAX;
  size_t m = n < MAGIC_BYTES ? n : MAGIC_BYTES;
  const unsigned char *p;
  memset(f, 0, sizeof *f);
  f->at = w->pos;
  if (!left)
    return 0;
  p = dsh_walk_bytes(w, w->pos, n);
  if (!p)
    return dsh_fail(err, DSH_E_IO, errno, "frame", "cannot read the log");
  if (memcmp(p, magic, m) == 0)
    return m < MAGIC_BYTES ? torn(w, f) : walk_data(w, f, p, n, err);
  if (skip_magic(p, m))
    return m < MAGIC_BYTES ? torn(w, f) : walk_skip(w, f, p, n);
  return defect(f, err, "bytes that are no frame");
}

/* Decodes the whole frame, content thrown away. */
static bool decodes(struct dsh_walk *w, const struct dsh_frame *f) {
  ZSTD_DCtx *d = ZSTD_createDCtx();
  char *out = malloc(BLOCK_MAX);
  uint64_t at = f->at, end = f->at + f->size;
  size_t rc = 1;
  if (d && out)
    ZSTD_DCtx_setParameter(d, ZSTD_d_windowLogMax, 27);
  while (d && out && at < end && !ZSTD_isError(rc)) {
    size_t n = end - at < DSH_WALK_BYTES ? (size_t)(end - at) : DSH_WALK_BYTES;
    const unsigned char *p = dsh_walk_bytes(w, at, n);
    ZSTD_inBuffer in = {p, p ? n : 0, 0};
    if (!p)
      break;
    ZSTD_outBuffer ob;
    do {
      ob = (ZSTD_outBuffer){out, BLOCK_MAX, 0};
      rc = ZSTD_decompressStream(d, &ob, &in);
    } while (!ZSTD_isError(rc) && (in.pos < in.size || ob.pos == ob.size));
    at += n;
  }
  free(out);
  ZSTD_freeDCtx(d);
  return at == end && rc == 0;
}

bool dsh_walk_seek_magic(struct dsh_walk *w) {
  while (w->end - w->pos >= MAGIC_BYTES) {
    uint64_t left = w->end - w->pos;
    size_t n = left < DSH_WALK_BYTES ? (size_t)left : DSH_WALK_BYTES;
    const unsigned char *p = dsh_walk_bytes(w, w->pos, n);
    const unsigned char *hit = p ? memmem(p, n, magic, MAGIC_BYTES) : NULL;
    if (!p)
      return false;
    w->pos += hit ? (uint64_t)(hit - p) : n - (MAGIC_BYTES - 1);
    if (hit)
      return true;
  }
  return false;
}

bool dsh_walk_hidden(struct dsh_walk *w, uint64_t at) {
  uint64_t keep = w->pos, next = at + 1;
  unsigned tries = 0;
  bool found = false;
  while (!found) {
    struct dsh_frame f;
    w->pos = next;
    if (next >= w->end || !dsh_walk_seek_magic(w))
      break;
    next = w->pos + 1;
    if (++tries > HIDDEN_TRIES)
      found = true;
    else
      found = dsh_walk_next(w, &f, NULL) == 0 && f.kind == DSH_FRAME_DATA &&
              f.checksum && decodes(w, &f);
  }
  w->pos = keep;
  return found;
}
