/* textfile.c: what is text, and how an edit finds its place. Pure. */
#include <string.h>

#include "fence.h"

/* Length of the UTF-8 sequence at s (RFC 3629), 0 when it is none. */
static size_t sequence(const unsigned char *s, size_t n) {
  unsigned lo = 0x80, hi = 0xbf;
  size_t len, i;
  if (s[0] < 0x80)
    return 1;
  if (s[0] >= 0xc2 && s[0] <= 0xdf)
    len = 2;
  else if (s[0] >= 0xe0 && s[0] <= 0xef)
    len = 3;
  else if (s[0] >= 0xf0 && s[0] <= 0xf4)
    len = 4;
  else
    return 0;
  if (len > n)
    return 0;
  if (s[0] == 0xe0)
    lo = 0xa0; /* nothing overlong */
  else if (s[0] == 0xed)
    hi = 0x9f; /* no surrogates */
  else if (s[0] == 0xf0)
    lo = 0x90;
  else if (s[0] == 0xf4)
    hi = 0x8f;
  if (s[1] < lo || s[1] > hi)
    return 0;
  for (i = 2; i < len; i++)
    if ((s[i] & 0xc0) != 0x80)
      return 0;
  return len;
}

bool dsh_text_valid(const char *s, size_t n) {
  const unsigned char *p = (const unsigned char *)s;
  size_t at = 0;
  if (memchr(s, '\0', n < DSH_FS_SNIFF ? n : DSH_FS_SNIFF))
    return false;
  while (at < n) {
    size_t len;
    uint64_t eight;
    while (at + 8 <= n) { /* most text is ASCII */
      memcpy(&eight, p + at, 8);
      if (eight & 0x8080808080808080u)
        break;
      at += 8;
    }
    if (at == n)
      break;
    len = sequence(p + at, n - at);
    if (!len)
      return false;
    at += len;
  }
  return true;
}

/* Bytes of text that pattern matches at its start, 0 for none. An LF of the
 * pattern stands for LF and for CRLF; *crlf tells that one was CRLF. */
static size_t match(const char *text, size_t n, const char *old, size_t old_n,
                    bool *crlf) {
  size_t t = 0, o;
  *crlf = false;
  for (o = 0; o < old_n; o++, t++) {
    if (t < n && text[t] == old[o])
      continue;
    if (old[o] != '\n' || t + 1 >= n || text[t] != '\r' || text[t + 1] != '\n')
      return 0;
    *crlf = true;
    t++;
  }
  return t;
}

/* Where the next match begins, or n. */
static size_t search(const char *text, size_t n, size_t from, const char *old,
                     size_t old_n, size_t *len, bool *crlf) {
  size_t at = from;
  while (at < n) {
    const char *p;
    if (old[0] == '\n') {
      p = memchr(text + at, '\n', n - at);
      if (p && p > text + at && p[-1] == '\r')
        p--; /* the CR belongs to what the LF stands for */
    } else {
      p = memchr(text + at, old[0], n - at);
    }
    if (!p)
      return n;
    at = (size_t)(p - text);
    *len = match(p, n - at, old, old_n, crlf);
    if (*len)
      return at;
    at += old[0] == '\n' && *p == '\r' ? 2 : 1;
  }
  return n;
}

/* A growing result. */
struct sink {
  struct dsh_arena *a;
  char *data;
  size_t n, cap;
};

static int put(struct sink *s, const char *data, size_t n) {
  if (s->n + n + 1 > s->cap) {
    size_t cap = (s->n + n + 1) * 2;
    char *more = dsh_alloc_raw(s->a, cap);
    if (!more)
      return -1;
    if (s->n)
      memcpy(more, s->data, s->n);
    s->data = more;
    s->cap = cap;
  }
  if (n)
    memcpy(s->data + s->n, data, n);
  s->n += n;
  return 0;
}

/* The replacement in the line ends of what it replaces. */
static int put_new(struct sink *s, const char *new_, size_t n, bool crlf) {
  size_t i, from = 0;
  for (i = 0; crlf && i < n; i++)
    if (new_[i] == '\n' && (i == 0 || new_[i - 1] != '\r')) {
      if (put(s, new_ + from, i - from) != 0 || put(s, "\r\n", 2) != 0)
        return -1;
      from = i + 1;
    }
  return put(s, new_ + from, n - from);
}

/* Every line of the text ends in CRLF, and there is one at least. */
static bool all_crlf(const char *text, size_t n) {
  const char *p = text, *end = text + n;
  bool any = false;
  while ((p = memchr(p, '\n', (size_t)(end - p)))) {
    if (p == text || p[-1] != '\r')
      return false;
    any = true;
    p++;
  }
  return any;
}

int dsh_text_edit(struct dsh_arena *a, const char *text, size_t n,
                  const char *old, size_t old_n, const char *new_,
                  size_t new_n, bool all, struct dsh_edit *out) {
  struct sink s = {a, NULL, 0, 0};
  size_t at, len = 0, from = 0;
  bool crlf, fresh_crlf;
  memset(out, 0, sizeof *out);
  if (!old_n)
    return 0;
  /* Lines put where none ended take the ends of the whole text. */
  fresh_crlf = new_n && memchr(new_, '\n', new_n) &&
               !memchr(old, '\n', old_n) && all_crlf(text, n);
  s.cap = n + new_n + 1;
  s.data = dsh_alloc_raw(a, s.cap);
  if (!s.data)
    return -1;
  while ((at = search(text, n, from, old, old_n, &len, &crlf)) < n) {
    out->count++;
    if (all || out->count == 1) {
      if (put(&s, text + from, at - from) != 0 ||
          put_new(&s, new_, new_n, crlf || fresh_crlf) != 0)
        return -1;
    } else if (put(&s, text + from, at + len - from) != 0) {
      return -1;
    }
    from = at + len;
  }
  if (put(&s, text + from, n - from) != 0)
    return -1;
  s.data[s.n] = '\0';
  out->result = (struct dsh_fs_bytes){s.data, s.n};
  return 0;
}
