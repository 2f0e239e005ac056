/* fuzz_line.c: any bytes as a log's line, against a JSON library: what that
 * takes as an object, the scanner takes, with the same type and seq. */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "jsonl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int depth_of(const json_t *v) {
  const char *key;
  json_t *item;
  size_t i;
  int most = 0, d;
  if (json_is_object(v))
    json_object_foreach((json_t *)(uintptr_t)v, key, item) {
      d = depth_of(item);
      most = d > most ? d : most;
    }
  else if (json_is_array(v))
    json_array_foreach((json_t *)(uintptr_t)v, i, item) {
      d = depth_of(item);
      most = d > most ? d : most;
    }
  else
    return 0;
  return most + 1;
}

static void compare(const json_t *v, const struct dsh_line *l) {
  const json_t *type = json_object_get(v, "type");
  const json_t *seq = json_object_get(v, "seq");
  enum dsh_kind kind = DSH_KIND_OTHER;
  if (json_is_string(type) && !strchr(json_string_value(type), '\\') &&
      strlen(json_string_value(type)) == json_string_length(type))
    kind = dsh_kind_of(json_string_value(type), json_string_length(type));
  if (json_is_string(type) != (l->type != NULL) || kind != l->kind)
    abort();
  if (json_is_integer(seq) && json_integer_value(seq) > 0 &&
      json_integer_value(seq) < INT64_MAX / 100 &&
      (!l->has_seq || l->seq != json_integer_value(seq)))
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct dsh_line l;
  const char *why = NULL;
  size_t at = 0;
  char *s = calloc(1, size + 1 + DSH_SCAN_PAD);
  json_t *v;
  int rc;
  if (!s || memchr(data, '\n', size)) {
    free(s);
    return 0;
  }
  memcpy(s, data, size);
  rc = dsh_line_scan(s, size, &l, &why, &at);
  if ((rc != 0) != (why != NULL) || at > size)
    abort();
  /* a bare NUL byte is white space to that library, in places */
  v = memchr(s, '\0', size) ? NULL : json_loadb(s, size, JSON_ALLOW_NUL, NULL);
  if (json_is_object(v) && rc != 0 && depth_of(v) <= DSH_JSON_DEPTH)
    abort();
  if (json_is_object(v) && rc == 0)
    compare(v, &l);
  json_decref(v);
  free(s);
  return 0;
}
