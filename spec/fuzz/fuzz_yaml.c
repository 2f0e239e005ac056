/* fuzz_yaml.c: any bytes as YAML give a tree within its limits or an error
 * with a place, in less than 100 ms. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "yamlread.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Walks the tree as the Lua side does, aliases written out. */
static size_t walk(const struct dsh_yaml_node *n, size_t len, unsigned depth) {
  size_t i, count = 1;
  if (depth > DSH_YAML_DEPTH + 1 || n->from > n->to || n->to > len ||
      n->at.line < 1 || n->at.column < 1)
    abort();
  if (n->kind == DSH_YAML_SCALAR) {
    if (strlen(n->text) != n->len)
      abort();
    return 1;
  }
  for (i = 0; i < n->n; i++) {
    count += walk(n->item[i], len, depth + 1);
    if (n->kind == DSH_YAML_MAP)
      count += walk(n->key[i], len, depth + 1);
  }
  return count;
}

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct dsh_arena a;
  struct dsh_yaml_node *root;
  struct dsh_yaml_pos at = {0, 0};
  struct dsh_error err = {0};
  double start = now_ms();
  int rc;
  dsh_arena_init(&a);
  rc = dsh_yaml_parse(&a, (const char *)data, size, "f", &root, &at, &err);
  if (rc == 0 && root && walk(root, size, 1) > DSH_YAML_NODES)
    abort();
  if (rc != 0 && (root || err.code != DSH_E_YAML_INVALID || at.line < 1 ||
                  at.column < 1 || strncmp(err.message, "f:", 2) != 0))
    abort();
  dsh_arena_free(&a);
#if !defined(__SANITIZE_ADDRESS__) &&                                         \
    !defined(FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION)
  if (now_ms() - start > 100) {
    fprintf(stderr, "more than 100 ms\n");
    abort();
  }
#else
  (void)start;
#endif
  return 0;
}
