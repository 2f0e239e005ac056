/* jsonl.c: the line scanner of the replay's hot path. */
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "jsonl.h"

struct scan {
  const char *p;
  const char *why; /* NULL while all is well */
};

static bool bad(struct scan *s, const char *why) {
  s->why = why;
  return false;
}

static void space(struct scan *s) {
  while (*s->p == ' ' || *s->p == '\t' || *s->p == '\r')
    s->p++;
}

static bool continuation(const unsigned char *p, int n) {
  int i;
  for (i = 0; i < n; i++)
    if ((p[i] & 0xc0) != 0x80)
      return false;
  return true;
}

/* One character of two to four bytes, RFC 3629 to the letter. The newline or
 * NUL at the end of the line stops a sequence that is cut. */
static bool utf8(struct scan *s) {
  const unsigned char *p = (const unsigned char *)s->p;
  int n = p[0] >= 0xf0 ? 3 : p[0] >= 0xe0 ? 2 : 1;
  if (p[0] < 0xc2 || p[0] > 0xf4 || !continuation(p + 1, n))
    return bad(s, "not UTF-8");
  if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
      (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
    return bad(s, "not UTF-8");
  s->p += n + 1;
  return true;
}

static bool hex4(const char *p) {
  int i;
  for (i = 0; i < 4; i++) {
    char c = (char)(p[i] | 0x20);
    if (!((p[i] >= '0' && p[i] <= '9') || (c >= 'a' && c <= 'f')))
      return false;
  }
  return true;
}

static bool escape(struct scan *s) {
  switch (s->p[1]) {
  case '"': case '\\': case '/': case 'b': case 'f': case 'n': case 'r':
  case 't':
    s->p += 2;
    return true;
  case 'u':
    if (!hex4(s->p + 2))
      break;
    s->p += 6;
    return true;
  default:
    break;
  }
  return bad(s, "bad escape in a string");
}

/* To the first byte that is a quote, a backslash, a control character or not
 * ASCII. There always is one: the end of the line is a control character. */
static const char *plain(const char *p) {
#if defined(__SSE2__)
  const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\');
  const __m128i low = _mm_set1_epi8(0x20);
  for (;;) {
    __m128i x = _mm_loadu_si128((const __m128i *)(const void *)p);
    __m128i hit = _mm_or_si128(_mm_cmpeq_epi8(x, quote),
                               _mm_cmpeq_epi8(x, slash));
    /* signed: bytes from 0x80 on are negative, thus below 0x20 as well */
    int mask = _mm_movemask_epi8(_mm_or_si128(hit, _mm_cmplt_epi8(x, low)));
    if (mask)
      return p + __builtin_ctz((unsigned)mask);
    p += 16;
  }
#else
  while ((signed char)*p >= 0x20 && *p != '"' && *p != '\\')
    p++;
  return p;
#endif
}

/* p is behind the opening quote; ends behind the closing one. */
static bool string(struct scan *s, bool *escaped) {
  for (;;) {
    s->p = plain(s->p);
    if (*s->p == '"') {
      s->p++;
      return true;
    }
    if (*s->p == '\\') {
      *escaped = true;
      if (!escape(s))
        return false;
    } else if ((signed char)*s->p >= 0) {
      return bad(s, "control character in a string, or no closing quote");
    } else {
      while ((signed char)*s->p < 0)
        if (!utf8(s))
          return false;
    }
  }
}

static bool digits(struct scan *s) {
  if (*s->p < '0' || *s->p > '9')
    return bad(s, "bad number");
  while (*s->p >= '0' && *s->p <= '9')
    s->p++;
  return true;
}

static bool number(struct scan *s) {
  if (*s->p == '-')
    s->p++;
  if (*s->p == '0')
    s->p++;
  else if (!digits(s))
    return false;
  if (*s->p == '.') {
    s->p++;
    if (!digits(s))
      return false;
  }
  if (*s->p == 'e' || *s->p == 'E') {
    s->p++;
    if (*s->p == '+' || *s->p == '-')
      s->p++;
    return digits(s);
  }
  return true;
}

static bool word(struct scan *s, const char *text, size_t n) {
  if (strncmp(s->p, text, n) != 0)
    return bad(s, "bad value");
  s->p += n;
  return true;
}

static bool scalar(struct scan *s) {
  bool escaped = false;
  switch (*s->p) {
  case '"':
    s->p++;
    return string(s, &escaped);
  case 't':
    return word(s, "true", 4);
  case 'f':
    return word(s, "false", 5);
  case 'n':
    return word(s, "null", 4);
  default:
    return number(s);
  }
}

/* A key and its colon. The key's raw text is [*k, *k + *n). */
static bool key(struct scan *s, const char **k, size_t *n, bool *escaped) {
  *escaped = false;
  if (*s->p != '"')
    return bad(s, "expected a key");
  *k = ++s->p;
  if (!string(s, escaped))
    return false;
  *n = (size_t)(s->p - *k) - 1;
  space(s);
  if (*s->p != ':')
    return bad(s, "expected a colon");
  s->p++;
  space(s);
  return true;
}

/* An object or array, of any depth up to the limit: a stack of bits says
 * whether each open bracket is an object's. */
static bool nested(struct scan *s, unsigned depth) {
  uint64_t object[DSH_JSON_DEPTH / 64 + 1] = {0};
  unsigned base = depth;
  const char *k;
  size_t n;
  bool escaped, is_object;
start:
  if (*s->p == '{' || *s->p == '[') {
    is_object = *s->p == '{';
    if (++depth > DSH_JSON_DEPTH)
      return bad(s, "nested too deep");
    object[depth / 64] &= ~((uint64_t)1 << depth % 64);
    object[depth / 64] |= (uint64_t)is_object << depth % 64;
    s->p++;
    space(s);
    if (*s->p == (is_object ? '}' : ']'))
      goto close;
    if (!is_object)
      goto start;
    if (!key(s, &k, &n, &escaped))
      return false;
    goto start;
  }
  if (!scalar(s))
    return false;
after:
  if (depth == base)
    return true;
  space(s);
  is_object = object[depth / 64] >> depth % 64 & 1;
  if (*s->p == ',') {
    s->p++;
    space(s);
    if (is_object && !key(s, &k, &n, &escaped))
      return false;
    goto start;
  }
  if (*s->p != (is_object ? '}' : ']'))
    return bad(s, "expected a comma or a closing bracket");
close:
  s->p++;
  depth--;
  goto after;
}

static bool value(struct scan *s, unsigned depth) {
  return *s->p == '{' || *s->p == '[' ? nested(s, depth) : scalar(s);
}

/* Unescapes raw text into out (size bytes, NUL added); -1: too long, and
 * then it is none of the words that we know. */
static int unescape(const char *s, size_t n, char *out, size_t size) {
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  size_t i, o = 0;
  for (i = 0; i < n && o + 1 < size; o++) {
    unsigned code = 0;
    int d;
    if (s[i] != '\\') {
      out[o] = s[i++];
      continue;
    }
    if (s[i + 1] != 'u') {
      out[o] = to[strchr(from, s[i + 1]) - from];
      i += 2;
      continue;
    }
    for (d = 2; d < 6; d++) {
      char c = s[i + (size_t)d];
      code = code * 16 + (unsigned)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    out[o] = code && code < 0x80 ? (char)code : '\x01'; /* matches nothing */
    i += 6;
  }
  out[o] = '\0';
  return i == n ? (int)o : -1;
}

static bool same(const char *s, size_t n, bool escaped, const char *want) {
  char plain_text[32];
  if (escaped) {
    int m = unescape(s, n, plain_text, sizeof plain_text);
    return m >= 0 && strcmp(plain_text, want) == 0;
  }
  return strlen(want) == n && memcmp(s, want, n) == 0;
}

static const struct {
  const char *type;
  enum dsh_kind kind;
} kinds[] = {
    {"session", DSH_KIND_SESSION},
    {"sandbox/mode", DSH_KIND_MODE},
    {"sandbox/grant", DSH_KIND_GRANT},
    {"sandbox/revoke", DSH_KIND_REVOKE},
    {"permission/preset", DSH_KIND_PRESET},
    {"approval/policy", DSH_KIND_APPROVAL},
    {"text-chunks", DSH_KIND_CHUNKS},
    {"reasoning-chunks", DSH_KIND_CHUNKS},
    {"tool-call-chunks", DSH_KIND_CHUNKS},
};

static enum dsh_kind kind_of(const char *s, size_t n, bool escaped) {
  size_t i;
  for (i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if ((escaped || *s == *kinds[i].type) && same(s, n, escaped, kinds[i].type))
      return kinds[i].kind;
  return DSH_KIND_OTHER;
}

enum dsh_kind dsh_kind_of(const char *s, size_t n) {
  return n ? kind_of(s, n, memchr(s, '\\', n) != NULL) : DSH_KIND_OTHER;
}

static bool type_member(struct scan *s, struct dsh_line *out) {
  bool escaped = false;
  out->type = NULL;
  out->kind = DSH_KIND_OTHER;
  if (*s->p != '"')
    return value(s, 1);
  s->p++;
  out->type = s->p;
  if (!string(s, &escaped))
    return false;
  out->type_len = (size_t)(s->p - out->type) - 1;
  if (out->type_len)
    out->kind = kind_of(out->type, out->type_len, escaped);
  return true;
}

/* A whole number that fits; anything else counts as absent. */
static bool integer_member(struct scan *s, bool *has, int64_t *n) {
  const char *p = s->p;
  int64_t sum = 0;
  if (!value(s, 1))
    return false;
  *has = p < s->p;
  for (; p < s->p && *has; p++) {
    *has = *p >= '0' && *p <= '9' && sum < INT64_MAX / 10 - 1;
    sum = *has ? sum * 10 + (*p - '0') : 0;
  }
  *n = sum;
  return true;
}

static bool dt_member(struct scan *s, struct dsh_line *out) {
  out->has_dt = false;
  out->dt = 0;
  if (*s->p != '[')
    return value(s, 2);
  out->has_dt = true;
  s->p++;
  space(s);
  if (*s->p == ']') {
    s->p++;
    return true;
  }
  for (;;) {
    if (!value(s, 3))
      return false;
    out->dt++;
    space(s);
    if (*s->p == ']')
      break;
    if (*s->p != ',')
      return bad(s, "expected a comma or a closing bracket");
    s->p++;
    space(s);
  }
  s->p++;
  return true;
}

static bool members(struct scan *s, struct dsh_line *out,
                    bool (*member)(struct scan *, struct dsh_line *,
                                   const char *, size_t, bool)) {
  const char *k;
  size_t n;
  bool escaped;
  s->p++;
  space(s);
  if (*s->p != '}')
    for (;;) {
      if (!key(s, &k, &n, &escaped) || !member(s, out, k, n, escaped))
        return false;
      space(s);
      if (*s->p == '}')
        break;
      if (*s->p != ',')
        return bad(s, "expected a comma or a closing bracket");
      s->p++;
      space(s);
    }
  s->p++;
  return true;
}

static bool data_member(struct scan *s, struct dsh_line *out, const char *k,
                        size_t n, bool escaped) {
  return same(k, n, escaped, "dt") ? dt_member(s, out) : value(s, 2);
}

static bool data_value(struct scan *s, struct dsh_line *out) {
  bool ok;
  out->has_dt = false;
  out->dt = 0;
  out->data = s->p;
  ok = *s->p == '{' ? members(s, out, data_member) : value(s, 1);
  out->data_len = (size_t)(s->p - out->data);
  return ok;
}

static bool top_member(struct scan *s, struct dsh_line *out, const char *k,
                       size_t n, bool escaped) {
  if (escaped || n == 3 || n == 4) {
    if (same(k, n, escaped, "type"))
      return type_member(s, out);
    if (same(k, n, escaped, "data"))
      return data_value(s, out);
    if (same(k, n, escaped, "seq"))
      return integer_member(s, &out->has_seq, &out->seq);
    if (same(k, n, escaped, "seq0"))
      return integer_member(s, &out->has_seq0, &out->seq0);
  }
  return value(s, 1);
}

int dsh_line_scan(const char *s, size_t n, struct dsh_line *out,
                  const char **why, size_t *at) {
  struct scan sc = {s, NULL};
  memset(out, 0, sizeof *out);
  space(&sc);
  if (*sc.p != '{')
    bad(&sc, "not an object");
  else if (members(&sc, out, top_member)) {
    space(&sc);
    if (sc.p != s + n)
      bad(&sc, "bytes after the object");
  }
  if (!sc.why)
    return 0;
  *why = sc.why;
  *at = (size_t)(sc.p - s) < n ? (size_t)(sc.p - s) : n;
  return -1;
}
