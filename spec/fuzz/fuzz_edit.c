/* fuzz_edit.c: any text, pattern and replacement. An edit against a slow
 * reading of its rules: the same count, the same bytes, and valid text stays
 * valid. Input: all, length of old, length of new (a byte each), old, new,
 * text. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fence.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Bytes that the pattern takes at text, 0 for none. */
static size_t takes(const char *text, size_t n, const char *old, size_t old_n,
                    bool *crlf) {
  size_t t = 0, o = 0;
  *crlf = false;
  while (o < old_n) {
    if (t < n && text[t] == old[o]) {
      t++;
    } else if (old[o] == '\n' && n - t >= 2 && !memcmp(text + t, "\r\n", 2)) {
      t += 2;
      *crlf = true;
    } else {
      return 0;
    }
    o++;
  }
  return t;
}

static bool only_crlf(const char *text, size_t n) {
  size_t i, ends = 0;
  for (i = 0; i < n; i++)
    if (text[i] == '\n') {
      if (i == 0 || text[i - 1] != '\r')
        return false;
      ends++;
    }
  return ends > 0;
}

static void check(const char *text, size_t n, const char *old, size_t old_n,
                  const char *new_, size_t new_n, bool all,
                  const struct dsh_edit *e) {
  const char *out = e->result.data;
  bool fresh = !memchr(old, '\n', old_n) && only_crlf(text, n), crlf;
  size_t at = 0, o = 0, count = 0, len, i;
  while (at < n) {
    len = takes(text + at, n - at, old, old_n, &crlf);
    if (!len || (count && !all)) {
      if (o >= e->result.n || out[o++] != text[at])
        abort(); /* a byte that nothing matched has changed */
      count += len != 0;
      if (len > 1) {
        if (o + len - 1 > e->result.n ||
            memcmp(out + o, text + at + 1, len - 1))
          abort();
        o += len - 1;
      }
      at += len ? len : 1;
      continue;
    }
    count++;
    for (i = 0; i < new_n; i++) {
      if ((crlf || fresh) && new_[i] == '\n' &&
          (i == 0 || new_[i - 1] != '\r') &&
          (o >= e->result.n || out[o++] != '\r'))
        abort();
      if (o >= e->result.n || out[o++] != new_[i])
        abort();
    }
    at += len;
  }
  if (o != e->result.n || count != e->count)
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  size_t old_n, new_n, n;
  struct dsh_arena a;
  struct dsh_edit e;
  char *old, *new_, *text;
  bool all;
  if (size < 3 || (size_t)data[1] + data[2] > size - 3)
    return 0;
  all = data[0] & 1;
  old_n = data[1];
  new_n = data[2];
  n = size - 3 - old_n - new_n;
  old = malloc(old_n ? old_n : 1); /* each in a block of its own */
  new_ = malloc(new_n ? new_n : 1);
  text = malloc(n ? n : 1);
  if (!old || !new_ || !text)
    abort();
  memcpy(old, data + 3, old_n);
  memcpy(new_, data + 3 + old_n, new_n);
  memcpy(text, data + 3 + old_n + new_n, n);
  dsh_arena_init(&a);
  if (dsh_text_edit(&a, text, n, old, old_n, new_, new_n, all, &e) != 0)
    abort();
  if (old_n == 0 && e.count != 0)
    abort();
  if (old_n)
    check(text, n, old, old_n, new_, new_n, all, &e);
  if (old_n && e.count == 1 && dsh_text_valid(text, n) &&
      dsh_text_valid(old, old_n) && dsh_text_valid(new_, new_n) &&
      !dsh_text_valid(e.result.data, e.result.n) &&
      !memchr(e.result.data, '\0', e.result.n))
    abort(); /* valid text in, invalid text out */
  dsh_arena_free(&a);
  free(old);
  free(new_);
  free(text);
  return 0;
}
