/* output.c: what a command wrote: the last bytes, and a file with the rest. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "run.h"

#define SPILL_NAME "dsh-output-"

enum { SPILL_AGE_S = 7 * 24 * 3600 };

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

/* The directory and what leads to it, for the owner alone. */
static void make_place(const char *dir) {
  char path[PATH_MAX];
  char *p = path;
  if (mkdir(dir, 0700) == 0 || errno != ENOENT || strlen(dir) >= sizeof path)
    return;
  strcpy(path, dir);
  while ((p = strchr(p + 1, '/'))) {
    *p = '\0';
    mkdir(path, 0700);
    *p = '/';
  }
  mkdir(dir, 0700);
}

/* Files of earlier runs are kept for a while, not for ever. */
static void sweep_place(const char *dir) {
  time_t now = time(NULL);
  struct dirent *e;
  struct stat st;
  DIR *d = opendir(dir);
  while (d && (e = readdir(d)))
    if (strncmp(e->d_name, SPILL_NAME, sizeof SPILL_NAME - 1) == 0 &&
        fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISREG(st.st_mode) && now - st.st_mtime > SPILL_AGE_S)
      unlinkat(dirfd(d), e->d_name, 0);
  if (d)
    closedir(d);
}

static void spill_open(struct stream *s, const char *dir) {
  static bool swept;
  size_t n;
  if (!dir || s->no_spill)
    return;
  make_place(dir);
  if (!swept)
    sweep_place(dir);
  swept = true;
  n = strlen(dir) + sizeof "/" SPILL_NAME "XXXXXX";
  s->spill_path = malloc(n);
  if (s->spill_path) {
    snprintf(s->spill_path, n, "%s/" SPILL_NAME "XXXXXX", dir);
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

size_t stream_read(struct stream *s, void *out, size_t n,
                   uint64_t *skipped) {
  uint64_t lost = s->read < oldest(s) ? oldest(s) - s->read : 0;
  s->read += lost;
  if (skipped)
    *skipped = lost;
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
