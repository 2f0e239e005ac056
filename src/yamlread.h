/* yamlread.h: the strict YAML dialect of profiles, patches and settings.
 *
 * libyaml scans; this accepts a subset of what it accepts: one document, no
 * tags, no directives, no merge keys, no duplicate or non-scalar keys, no
 * tabs outside quotes, block text and comments, bounded aliases and depth.
 * Every scalar stays its text: only a schema reads more out of it. Pure;
 * nodes live in the arena. */
#ifndef DSH_YAMLREAD_H
#define DSH_YAMLREAD_H

#include "dsh.h"

#define DSH_YAML_BYTES (1 << 20) /* longest text */
#define DSH_YAML_DEPTH 100       /* nesting, aliases included */
/* Nodes with every alias written out; 256 bytes of text count as one. */
#define DSH_YAML_NODES 20000
#define DSH_YAML_ANCHORS 256 /* each alias searches them all */

enum dsh_yaml_kind { DSH_YAML_SCALAR, DSH_YAML_LIST, DSH_YAML_MAP };

/* Lines and columns count from 1, columns in characters. */
struct dsh_yaml_pos {
  size_t line, column;
};

struct dsh_yaml_node {
  enum dsh_yaml_kind kind;
  bool plain;              /* of a scalar: unquoted, not block text */
  bool flow;               /* of a list or map: [ ] or { } */
  struct dsh_yaml_pos at;
  size_t from, to;         /* bytes of the text that it takes: [from, to) */
  const char *text;        /* of a scalar, len bytes, without a NUL byte */
  size_t len;
  struct dsh_yaml_node **item; /* items, or the values of the keys */
  struct dsh_yaml_node **key;  /* of a map: n scalars */
  size_t n;
  size_t weight;           /* nodes beneath and itself, aliases written out */
  unsigned height;         /* nesting beneath and itself */
  bool shared;             /* reached through an alias at least once */
};

/* Parses len bytes. *out is NULL for a text without any value. On failure
 * the code is DSH_E_YAML_INVALID, the message "FILE:LINE:COLUMN: ...", and
 * *at (may be NULL) the place. */
int dsh_yaml_parse(struct dsh_arena *a, const char *text, size_t len,
                   const char *file, struct dsh_yaml_node **out,
                   struct dsh_yaml_pos *at, struct dsh_error *err);

#endif
