/* yaml.c: libyaml's events into checked nodes. See yamlread.h. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "yamlread.h"

struct anchor {
  struct anchor *next;
  const char *name;
  struct dsh_yaml_node *node;
  bool open; /* still inside its own value */
};

struct reader {
  yaml_parser_t parser;
  struct dsh_arena *a;
  const char *text, *file;
  size_t len, base;           /* base: bytes of a byte order mark */
  size_t cursor, cursor_byte; /* a character index and its byte offset */
  size_t seen;                /* byte up to which tabs were looked for */
  size_t weight;              /* of everything so far */
  struct anchor *anchors;
  unsigned n_anchors;
  struct dsh_yaml_pos *pos;
  struct dsh_error *err;
};

static struct dsh_yaml_pos position(const yaml_mark_t *m) {
  struct dsh_yaml_pos p = {m->line + 1, m->column + 1};
  return p;
}

__attribute__((format(printf, 3, 4))) static int
fail_at(struct reader *r, struct dsh_yaml_pos p, const char *fmt, ...) {
  char what[512];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(what, sizeof what, fmt, ap);
  va_end(ap);
  if (r->pos)
    *r->pos = p;
  return dsh_fail_path(r->err, DSH_E_YAML_INVALID, 0, "yaml", r->file,
                       "%s:%zu:%zu: %s", r->file, p.line, p.column, what);
}

static int fail_memory(struct reader *r) {
  return dsh_fail_path(r->err, DSH_E_NO_MEMORY, 0, "yaml", r->file,
                       "%s: out of memory", r->file);
}

/* Line and column of a byte offset. */
static struct dsh_yaml_pos position_of(const struct reader *r, size_t byte) {
  struct dsh_yaml_pos p = {1, 1};
  size_t i;
  for (i = r->base; i < byte && i < r->len; i++) {
    unsigned char c = (unsigned char)r->text[i];
    if (c == '\n' || (c == '\r' && !(i + 1 < r->len && r->text[i + 1] == '\n')))
      p.line++, p.column = 1;
    else if ((c & 0xC0) != 0x80 && c != '\r')
      p.column++;
  }
  return p;
}

/* libyaml counts characters, an editor of the text needs bytes. Marks come
 * almost in order, so a cursor that walks both ways is enough. */
static size_t byte_of(struct reader *r, size_t index) {
  while (r->cursor < index && r->cursor_byte < r->len) {
    r->cursor_byte++;
    while (r->cursor_byte < r->len &&
           ((unsigned char)r->text[r->cursor_byte] & 0xC0) == 0x80)
      r->cursor_byte++;
    r->cursor++;
  }
  while (r->cursor > index && r->cursor_byte > r->base) {
    r->cursor_byte--;
    while (r->cursor_byte > r->base &&
           ((unsigned char)r->text[r->cursor_byte] & 0xC0) == 0x80)
      r->cursor_byte--;
    r->cursor--;
  }
  return r->cursor_byte;
}

/* Between two events there is only space, punctuation and comments. */
static int check_gap(struct reader *r, size_t to) {
  size_t i;
  for (i = r->seen; i < to; i++) {
    if (r->text[i] == '#')
      while (i < to && r->text[i] != '\n' && r->text[i] != '\r')
        i++;
    else if (r->text[i] == '\t')
      return fail_at(r, position_of(r, i), "a tab: use spaces");
  }
  if (to > r->seen)
    r->seen = to;
  return 0;
}

static int check_tabs(struct reader *r, const yaml_event_t *e) {
  size_t from = byte_of(r, e->start_mark.index);
  size_t to = byte_of(r, e->end_mark.index);
  const char *tab;
  if (check_gap(r, from) != 0)
    return -1;
  if (e->type == YAML_SCALAR_EVENT &&
      e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE && to > from &&
      (tab = memchr(r->text + from, '\t', to - from)))
    return fail_at(r, position_of(r, (size_t)(tab - r->text)),
                   "a tab: use spaces, or quotes around the text");
  if (to > r->seen)
    r->seen = to;
  return 0;
}

static int next(struct reader *r, yaml_event_t *e) {
  const yaml_parser_t *p = &r->parser;
  size_t at;
  if (yaml_parser_parse(&r->parser, e)) {
    if (check_tabs(r, e) == 0)
      return 0;
    yaml_event_delete(e);
    return -1;
  }
  if (p->error == YAML_MEMORY_ERROR)
    return fail_memory(r);
  if (p->error == YAML_READER_ERROR)
    return fail_at(r, position_of(r, r->base + p->problem_offset), "%s",
                   p->problem ? p->problem : "not UTF-8 text");
  at = byte_of(r, p->problem_mark.index);
  if (at < r->len && r->text[at] == '\t')
    return fail_at(r, position(&p->problem_mark), "a tab: use spaces");
  if (p->context && p->context_mark.line != p->problem_mark.line)
    return fail_at(r, position(&p->problem_mark), "%s: %s (begun at %zu:%zu)",
                   p->context, p->problem ? p->problem : "not YAML",
                   p->context_mark.line + 1,
                   p->context_mark.column + 1);
  return fail_at(r, position(&p->problem_mark), "%s%s%s",
                 p->context ? p->context : "", p->context ? ": " : "",
                 p->problem ? p->problem : "not YAML");
}

static struct dsh_yaml_node *make(struct reader *r, enum dsh_yaml_kind kind,
                                  const yaml_event_t *e, size_t weight) {
  struct dsh_yaml_node *n;
  r->weight += weight;
  if (r->weight > DSH_YAML_NODES) {
    fail_at(r, position(&e->start_mark),
            "more than %d values (aliases written out)", DSH_YAML_NODES);
    return NULL;
  }
  n = dsh_alloc(r->a, sizeof *n);
  if (!n) {
    fail_memory(r);
    return NULL;
  }
  n->kind = kind;
  n->at = position(&e->start_mark);
  n->from = byte_of(r, e->start_mark.index);
  n->to = byte_of(r, e->end_mark.index);
  n->weight = weight;
  n->height = 1;
  return n;
}

static struct anchor *define(struct reader *r, const yaml_event_t *e,
                             const yaml_char_t *name,
                             struct dsh_yaml_node *n) {
  struct anchor *an;
  if (++r->n_anchors > DSH_YAML_ANCHORS) {
    fail_at(r, position(&e->start_mark), "more than %d anchors",
            DSH_YAML_ANCHORS);
    return NULL;
  }
  an = dsh_alloc(r->a, sizeof *an);
  if (!an || !(an->name = dsh_strdup(r->a, (const char *)name))) {
    fail_memory(r);
    return NULL;
  }
  an->node = n;
  an->open = true;
  an->next = r->anchors;
  r->anchors = an;
  return an;
}

static int no_tag(struct reader *r, const yaml_event_t *e,
                  const yaml_char_t *tag) {
  if (!tag)
    return 0;
  return fail_at(r, position(&e->start_mark), "a tag (%.60s): not allowed",
                 (const char *)tag);
}

static struct dsh_yaml_node *scalar(struct reader *r, const yaml_event_t *e) {
  const char *text = (const char *)e->data.scalar.value;
  size_t len = e->data.scalar.length;
  struct dsh_yaml_node *n;
  if (no_tag(r, e, e->data.scalar.tag) != 0)
    return NULL;
  if (memchr(text, '\0', len)) {
    fail_at(r, position(&e->start_mark), "a NUL byte in a string");
    return NULL;
  }
  n = make(r, DSH_YAML_SCALAR, e, 1 + len / 256);
  if (!n)
    return NULL;
  n->plain = e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
  n->len = len;
  n->text = dsh_strndup(r->a, text, len);
  if (!n->text) {
    fail_memory(r);
    return NULL;
  }
  if (e->data.scalar.anchor) {
    struct anchor *an = define(r, e, e->data.scalar.anchor, n);
    if (!an)
      return NULL;
    an->open = false;
  }
  return n;
}

static struct dsh_yaml_node *alias(struct reader *r, const yaml_event_t *e,
                                   unsigned depth) {
  const char *name = (const char *)e->data.alias.anchor;
  struct dsh_yaml_pos p = position(&e->start_mark);
  struct anchor *an = r->anchors;
  while (an && strcmp(an->name, name) != 0)
    an = an->next;
  if (!an) {
    fail_at(r, p, "alias *%.60s: no such anchor above", name);
  } else if (an->open) {
    fail_at(r, p, "alias *%.60s: inside the value it stands for", name);
  } else if (depth + an->node->height > DSH_YAML_DEPTH) {
    fail_at(r, p, "nested deeper than %d", DSH_YAML_DEPTH);
  } else if ((r->weight += an->node->weight) > DSH_YAML_NODES) {
    fail_at(r, p, "more than %d values (aliases written out)",
            DSH_YAML_NODES);
  } else {
    an->node->shared = true;
    return an->node;
  }
  return NULL;
}

/* Doubles the two arrays of a list or map when they are full. */
static int grow(struct reader *r, struct dsh_yaml_node *n, size_t *cap) {
  size_t want = *cap ? *cap * 2 : 8;
  struct dsh_yaml_node **item, **key;
  if (n->n < *cap)
    return 0;
  item = dsh_alloc(r->a, want * sizeof *item);
  key = n->kind == DSH_YAML_MAP ? dsh_alloc(r->a, want * sizeof *key) : NULL;
  if (!item || (n->kind == DSH_YAML_MAP && !key))
    return fail_memory(r);
  if (n->n) {
    memcpy(item, n->item, n->n * sizeof *item);
    if (key)
      memcpy(key, n->key, n->n * sizeof *key);
  }
  n->item = item;
  n->key = key;
  *cap = want;
  return 0;
}

static int by_text(const void *x, const void *y) {
  const struct dsh_yaml_node *a = *(struct dsh_yaml_node *const *)x;
  const struct dsh_yaml_node *b = *(struct dsh_yaml_node *const *)y;
  int c = strcmp(a->text, b->text);
  return c ? c : (a->from > b->from) - (a->from < b->from);
}

/* Sorted copies of the keys find a repetition without a quadratic search. */
static int check_duplicates(struct reader *r, const struct dsh_yaml_node *n) {
  struct dsh_yaml_node **k;
  size_t i;
  if (n->n < 2)
    return 0;
  k = dsh_alloc(r->a, n->n * sizeof *k);
  if (!k)
    return fail_memory(r);
  memcpy(k, n->key, n->n * sizeof *k);
  qsort(k, n->n, sizeof *k, by_text);
  for (i = 1; i < n->n; i++)
    if (strcmp(k[i - 1]->text, k[i]->text) == 0)
      return fail_at(r, k[i]->at, "duplicate key '%.100s', first at line %zu",
                     k[i]->text, k[i - 1]->at.line);
  return 0;
}

static struct dsh_yaml_node *value(struct reader *r, const yaml_event_t *e,
                                   unsigned depth);

static int add(struct reader *r, struct dsh_yaml_node *n, size_t *cap,
               struct dsh_yaml_node *key, struct dsh_yaml_node *item) {
  if (grow(r, n, cap) != 0)
    return -1;
  n->item[n->n] = item;
  if (key)
    n->key[n->n] = key;
  n->n++;
  n->weight += item->weight + (key ? key->weight : 0);
  if (item->height + 1 > n->height)
    n->height = item->height + 1;
  return 0;
}

static struct dsh_yaml_node *map_key(struct reader *r, const yaml_event_t *e) {
  struct dsh_yaml_node *key;
  if (e->type != YAML_SCALAR_EVENT) {
    fail_at(r, position(&e->start_mark), "a key must be a plain string");
    return NULL;
  }
  key = scalar(r, e);
  if (key && key->plain && strcmp(key->text, "<<") == 0) {
    fail_at(r, key->at, "a merge key (<<): not allowed");
    return NULL;
  }
  if (key && key->plain && key->len == 0) {
    fail_at(r, key->at, "an empty key");
    return NULL;
  }
  return key;
}

/* The value that the next event begins. */
static struct dsh_yaml_node *next_value(struct reader *r, unsigned depth) {
  struct dsh_yaml_node *n;
  yaml_event_t e;
  if (next(r, &e) != 0)
    return NULL;
  n = value(r, &e, depth);
  yaml_event_delete(&e);
  return n;
}

/* Reads the items up to the container's end. */
static int fill(struct reader *r, struct dsh_yaml_node *n, unsigned depth) {
  bool is_map = n->kind == DSH_YAML_MAP;
  yaml_event_type_t end =
      is_map ? YAML_MAPPING_END_EVENT : YAML_SEQUENCE_END_EVENT;
  size_t cap = 0;
  for (;;) {
    struct dsh_yaml_node *key = NULL, *item;
    yaml_event_t e;
    if (next(r, &e) != 0)
      return -1;
    if (e.type == end) {
      n->to = n->flow ? byte_of(r, e.end_mark.index) : n->to;
      yaml_event_delete(&e);
      return is_map ? check_duplicates(r, n) : 0;
    }
    if (is_map)
      item = (key = map_key(r, &e)) ? next_value(r, depth + 1) : NULL;
    else
      item = value(r, &e, depth + 1);
    yaml_event_delete(&e);
    if (!item || add(r, n, &cap, key, item) != 0)
      return -1;
    if (item->to > n->to)
      n->to = item->to;
  }
}

static struct dsh_yaml_node *container(struct reader *r,
                                       const yaml_event_t *e,
                                       unsigned depth) {
  bool is_map = e->type == YAML_MAPPING_START_EVENT;
  const yaml_char_t *tag =
      is_map ? e->data.mapping_start.tag : e->data.sequence_start.tag;
  const yaml_char_t *name =
      is_map ? e->data.mapping_start.anchor : e->data.sequence_start.anchor;
  struct anchor *an = NULL;
  struct dsh_yaml_node *n;
  if (no_tag(r, e, tag) != 0)
    return NULL;
  if (depth > DSH_YAML_DEPTH) {
    fail_at(r, position(&e->start_mark), "nested deeper than %d",
            DSH_YAML_DEPTH);
    return NULL;
  }
  n = make(r, is_map ? DSH_YAML_MAP : DSH_YAML_LIST, e, 1);
  if (!n)
    return NULL;
  n->flow = is_map
                ? e->data.mapping_start.style == YAML_FLOW_MAPPING_STYLE
                : e->data.sequence_start.style == YAML_FLOW_SEQUENCE_STYLE;
  if (name && !(an = define(r, e, name, n)))
    return NULL;
  if (fill(r, n, depth) != 0)
    return NULL;
  if (an)
    an->open = false;
  return n;
}

static struct dsh_yaml_node *value(struct reader *r, const yaml_event_t *e,
                                   unsigned depth) {
  if (e->type == YAML_SCALAR_EVENT)
    return scalar(r, e);
  if (e->type == YAML_ALIAS_EVENT)
    return alias(r, e, depth - 1);
  if (e->type == YAML_MAPPING_START_EVENT ||
      e->type == YAML_SEQUENCE_START_EVENT)
    return container(r, e, depth);
  fail_at(r, position(&e->start_mark), "a value is missing");
  return NULL;
}

/* The document's start: no directives, and only one document. */
static int document(struct reader *r, const yaml_event_t *e, bool first) {
  struct dsh_yaml_pos p = position(&e->start_mark);
  if (!first)
    return fail_at(r, p, "a second document: one per file");
  if (e->data.document_start.version_directive ||
      e->data.document_start.tag_directives.start !=
          e->data.document_start.tag_directives.end)
    return fail_at(r, p, "a directive (%%): not allowed");
  return 0;
}

static int stream(struct reader *r, struct dsh_yaml_node **out) {
  bool first = true;
  for (;;) {
    yaml_event_t e;
    yaml_event_type_t type;
    int rc = 0;
    if (next(r, &e) != 0)
      return -1;
    type = e.type;
    if (type == YAML_DOCUMENT_START_EVENT) {
      rc = document(r, &e, first);
      first = false;
      if (rc == 0 && !(*out = next_value(r, 1)))
        rc = -1;
    }
    yaml_event_delete(&e);
    if (rc != 0 || type == YAML_STREAM_END_EVENT)
      return rc;
  }
}

int dsh_yaml_parse(struct dsh_arena *a, const char *text, size_t len,
                   const char *file, struct dsh_yaml_node **out,
                   struct dsh_yaml_pos *at, struct dsh_error *err) {
  struct reader r = {.a = a, .text = text, .len = len, .file = file,
                     .pos = at, .err = err};
  struct dsh_yaml_pos start = {1, 1};
  int rc;
  *out = NULL;
  if (len > DSH_YAML_BYTES)
    return fail_at(&r, start, "longer than %d bytes", DSH_YAML_BYTES);
  if (len >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0)
    r.base = r.cursor_byte = r.seen = 3;
  if (!yaml_parser_initialize(&r.parser))
    return fail_memory(&r);
  yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
  yaml_parser_set_input_string(
      &r.parser, (const unsigned char *)text + r.base, len - r.base);
  rc = stream(&r, out);
  yaml_parser_delete(&r.parser);
  if (rc == 0 && a->failed)
    rc = fail_memory(&r);
  /* A document without any value reads as one empty plain scalar. */
  if (rc == 0 && *out && (*out)->kind == DSH_YAML_SCALAR && (*out)->plain &&
      (*out)->len == 0)
    *out = NULL;
  if (rc != 0)
    *out = NULL;
  return rc;
}
