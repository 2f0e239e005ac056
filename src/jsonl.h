/* jsonl.h: one line of a session log, scanned without building values.
 *
 * A strict check of JSON syntax and UTF-8 in one pass, which notes the few
 * members that replay needs. Values are parsed (by jansson) only for the
 * rare lines whose type concerns a policy. Duplicate keys: the last wins, as
 * for every other reader of these files. */
#ifndef DSH_JSONL_H
#define DSH_JSONL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DSH_LINE_MAX (64u << 20) /* bytes of one line, newline not counted */
#define DSH_JSON_DEPTH 512       /* nesting of one line */
#define DSH_SCAN_PAD 16          /* readable bytes wanted after a line's end */

enum dsh_kind {
  DSH_KIND_OTHER,
  DSH_KIND_SESSION,  /* the header */
  DSH_KIND_MODE,     /* sandbox/mode */
  DSH_KIND_PRESET,   /* permission/preset */
  DSH_KIND_APPROVAL, /* approval/policy */
  DSH_KIND_GRANT,    /* sandbox/grant */
  DSH_KIND_REVOKE,   /* sandbox/revoke */
  DSH_KIND_CHUNKS    /* a packed row */
};

struct dsh_line {
  enum dsh_kind kind;
  const char *type;   /* raw text of the type, borrowed; NULL: none */
  size_t type_len;
  const char *data;   /* raw text of data, borrowed; NULL: none */
  size_t data_len;
  bool has_seq, has_seq0, has_dt;
  int64_t seq, seq0;
  uint64_t dt;        /* elements of data.dt */
};

/* Scans the n bytes at s. s[n] must be '\n' or NUL, and DSH_SCAN_PAD bytes
 * after it readable. 0, or -1 with *why (static) and *at (offset in s). */
int dsh_line_scan(const char *s, size_t n, struct dsh_line *out,
                  const char **why, size_t *at);
/* What a type's text, n raw bytes without quotes, stands for. */
enum dsh_kind dsh_kind_of(const char *s, size_t n);

#endif
