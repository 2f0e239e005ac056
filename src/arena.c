/* arena.c: memory that is freed all at once. */
#include <stdarg.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dsh.h"

enum {
  BLOCK_BYTES = 4096 - 64,
  ALIGN = 16,
  LARGE_BYTES = 256 * 1024,
  SPARE_MAX = 4 << 20,
  SPARES = 2
};

struct dsh_arena_block {
  struct dsh_arena_block *next;
  size_t used, size;
  alignas(ALIGN) unsigned char data[];
};

/* The process keeps its last large blocks: pages that were touched before are
 * far cheaper than fresh ones, and the content of a file needs two. */
static _Atomic(struct dsh_arena_block *) spare[SPARES];

static struct dsh_arena_block *new_block(size_t bytes) {
  struct dsh_arena_block *b;
  size_t i;
  for (i = 0; bytes >= LARGE_BYTES && i < SPARES; i++) {
    b = atomic_exchange(&spare[i], NULL);
    if (b && b->size >= bytes)
      return b;
    free(b);
  }
  b = malloc(sizeof *b + bytes);
  if (b)
    b->size = bytes;
  return b;
}

static void free_block(struct dsh_arena_block *b) {
  size_t i;
  for (i = 0; b && b->size >= LARGE_BYTES && b->size <= SPARE_MAX &&
              i < SPARES; i++)
    b = atomic_exchange(&spare[i], b);
  free(b);
}

void dsh_arena_init(struct dsh_arena *a) {
  a->head = NULL;
  a->failed = false;
}

void dsh_arena_free(struct dsh_arena *a) {
  struct dsh_arena_block *b = a->head, *next;
  for (; b; b = next) {
    next = b->next;
    free_block(b);
  }
  dsh_arena_init(a);
}

void dsh_arena_reset(struct dsh_arena *a) {
  struct dsh_arena_block *keep = a->head;
  if (!keep || keep->size != BLOCK_BYTES) {
    dsh_arena_free(a);
    return;
  }
  a->head = keep->next;
  dsh_arena_free(a);
  keep->next = NULL;
  keep->used = 0;
  a->head = keep;
}

static struct dsh_arena_block *grow(struct dsh_arena *a, size_t size) {
  size_t want = size > BLOCK_BYTES ? size : (size_t)BLOCK_BYTES;
  struct dsh_arena_block *b = new_block(want);
  if (!b) {
    a->failed = true;
    return NULL;
  }
  b->used = 0;
  b->next = a->head;
  a->head = b;
  return b;
}

static void *take(struct dsh_arena *a, size_t size) {
  struct dsh_arena_block *b = a->head;
  void *p;
  if (size > SIZE_MAX - ALIGN - sizeof *b) {
    a->failed = true;
    return NULL;
  }
  size = (size + ALIGN - 1) & ~(size_t)(ALIGN - 1);
  if ((!b || b->size - b->used < size) && !(b = grow(a, size)))
    return NULL;
  p = b->data + b->used;
  b->used += size;
  return p;
}

void *dsh_alloc_raw(struct dsh_arena *a, size_t size) {
  return take(a, size);
}

void *dsh_alloc(struct dsh_arena *a, size_t size) {
  void *p = take(a, size);
  return p ? memset(p, 0, size) : NULL;
}

char *dsh_strndup(struct dsh_arena *a, const char *s, size_t n) {
  char *p = take(a, n + 1);
  if (!p)
    return NULL;
  memcpy(p, s, n);
  p[n] = '\0';
  return p;
}

char *dsh_strdup(struct dsh_arena *a, const char *s) {
  return dsh_strndup(a, s, strlen(s));
}

char *dsh_format(struct dsh_arena *a, const char *fmt, ...) {
  va_list ap, again;
  char *p = NULL;
  int n;
  va_start(ap, fmt);
  va_copy(again, ap);
  n = vsnprintf(NULL, 0, fmt, ap);
  if (n >= 0 && (p = take(a, (size_t)n + 1)))
    vsnprintf(p, (size_t)n + 1, fmt, again);
  va_end(again);
  va_end(ap);
  return p;
}

int dsh_strv_add(struct dsh_arena *a, struct dsh_strv *list, const char *s) {
  if (list->n + 1 >= list->cap) {
    size_t cap = list->cap ? list->cap * 2 : 16;
    const char **v = take(a, cap * sizeof *v);
    if (!v)
      return -1;
    if (list->n)
      memcpy(v, list->v, list->n * sizeof *v);
    list->v = v;
    list->cap = cap;
  }
  list->v[list->n++] = s;
  list->v[list->n] = NULL;
  return s ? 0 : -1;
}
