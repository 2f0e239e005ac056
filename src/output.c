/* output.c: what a command wrote: the last bytes, and a file with the rest. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "run.h"

int stream_open(struct stream *s, size_t cap) {
  memset(s, 0, sizeof *s);
  s->spill = -1;
  s->cap = cap;
  s->ring = malloc(cap ? cap : 1);
  return s->ring ? 0 : -1;
}

void stream_free(struct stream *s) {
  if (s->spill >= 0)
    close(s->spill);
  s->spill = -1;
  free(s->ring);
  free(s->spill_path);
  s->ring = NULL;
  s->spill_path = NULL;
}

/* A full disk costs the spill file, never the result. */
static void give_up_spill(struct stream *s) {
  s->no_spill = true;
  if (s->spill >= 0)
    close(s->spill);
  s->spill = -1;
  if (s->spill_path)
    unlink(s->spill_path);
  free(s->spill_path);
  s->spill_path = NULL;
}

static void spill_write(struct stream *s, const unsigned char *data, size_t n) {
  if (n > DSH_SPILL_BYTES - s->spilled)
    n = (size_t)(DSH_SPILL_BYTES - s->spilled);
  while (n && s->spill >= 0) {
    ssize_t w = write(s->spill, data, n);
    if (w < 0 && errno == EINTR)
      continue;
    if (w <= 0) {
      give_up_spill(s);
      return;
    }
    data += w;
    n -= (size_t)w;
    s->spilled += (uint64_t)w;
  }
}

static void spill_open(struct stream *s, const char *dir) {
  size_t n;
  if (!dir || s->no_spill)
    return;
  n = strlen(dir) + sizeof "/dsh-output-XXXXXX";
  s->spill_path = malloc(n);
  if (s->spill_path) {
    snprintf(s->spill_path, n, "%s/dsh-output-XXXXXX", dir);
    s->spill = mkostemp(s->spill_path, O_CLOEXEC); /* made 0600 */
  }
  if (s->spill < 0) {
    free(s->spill_path);
    s->spill_path = NULL;
    s->no_spill = true;
    return;
  }
  spill_write(s, s->ring, (size_t)s->total); /* everything so far */
}

static void ring_put(struct stream *s, const unsigned char *data, size_t n) {
  size_t at, first;
  if (n > s->cap) { /* only the end can stay */
    s->total += n - s->cap;
    data += n - s->cap;
    n = s->cap;
  }
  if (n == 0)
    return;
  at = (size_t)(s->total % s->cap);
  first = n < s->cap - at ? n : s->cap - at;
  memcpy(s->ring + at, data, first);
  memcpy(s->ring, data + first, n - first);
  s->total += n;
}

void stream_put(struct stream *s, const char *dir, const void *data, size_t n) {
  if (s->total + n > s->cap && s->total <= s->cap && s->spill < 0)
    spill_open(s, dir);
  if (s->spill >= 0)
    spill_write(s, data, n);
  ring_put(s, data, n);
}

static uint64_t oldest(const struct stream *s) {
  return s->total > s->cap ? s->total - s->cap : 0;
}

static void ring_get(const struct stream *s, uint64_t from, unsigned char *out,
                     size_t n) {
  size_t at, first;
  if (!n)
    return;
  at = (size_t)(from % s->cap);
  first = n < s->cap - at ? n : s->cap - at;
  memcpy(out, s->ring + at, first);
  memcpy(out + first, s->ring, n - first);
}

size_t stream_read(struct stream *s, void *out, size_t n) {
  if (s->read < oldest(s))
    s->read = oldest(s);
  if (n > s->total - s->read)
    n = (size_t)(s->total - s->read);
  ring_get(s, s->read, out, n);
  s->read += n;
  return n;
}

void stream_finish(struct stream *s, struct dsh_arena *a,
                   struct dsh_output *out) {
  size_t n = (size_t)(s->total - oldest(s)), skip = 0;
  char *text = dsh_alloc(a, n + 1);
  out->total = s->total;
  out->truncated = s->total > s->cap;
  out->spill_path = s->spill_path ? dsh_strdup(a, s->spill_path) : NULL;
  if (s->spill >= 0)
    close(s->spill);
  s->spill = -1;
  if (!text) {
    out->text = "";
    out->len = 0;
    return;
  }
  ring_get(s, oldest(s), (unsigned char *)text, n);
  /* A cut may fall inside a character: at most three bytes continue it. */
  while (out->truncated && skip < 3 && skip < n &&
         ((unsigned char)text[skip] & 0xc0) == 0x80)
    skip++;
  out->text = text + skip;
  out->len = n - skip;
}
