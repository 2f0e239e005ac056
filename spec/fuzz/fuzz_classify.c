/* fuzz_classify.c: any bytes on stderr, exactly as long as they are. Where the
 * start is known, they never make a runner's failure; where a listener was
 * there, they never make a denial; a clean exit is never blamed. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct dsh_verdict verdict(struct dsh_arena *a,
                                  const struct dsh_backend *b,
                                  const struct dsh_outcome *o) {
  struct dsh_plan plan = {.confined = true, .rule = b->rules,
                          .n_rules = b->n_rules};
  const char *const *s;
  struct dsh_verdict v;
  for (s = b->denial_signatures; *s; s++)
    dsh_strv_add(a, &plan.denial_signatures, *s);
  if (dsh_classify(a, &plan, o, &v) != 0)
    abort();
  return v;
}

static void check(struct dsh_arena *a, const struct dsh_backend *b,
                  struct dsh_outcome o, const uint8_t *data, size_t size) {
  struct dsh_verdict v;
  o.err.text = (const char *)data;
  o.err.len = size;
  v = verdict(a, b, &o);
  if (v.started != o.started)
    abort();
  if (o.started != DSH_STARTED_UNKNOWN && v.runner_failed != o.runner_failed)
    abort();
  if ((o.denials_known || o.started == DSH_STARTED_NO) && v.denied)
    abort();
  if (o.exit_code == 0 && (v.denied || v.runner_failed))
    abort();
  if (v.runner_failed && v.denied)
    abort();
  if (v.detail && strlen(v.detail) > size)
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const struct dsh_backend *const backends[] = {
      &dsh_backend_bwrap, &dsh_backend_landlock};
  static const int codes[] = {0, 1, 125};
  struct dsh_arena a;
  size_t b, c;
  int started, known;
  dsh_arena_init(&a);
  for (b = 0; b < 2; b++)
    for (c = 0; c < 3; c++)
      for (started = DSH_STARTED_UNKNOWN; started <= DSH_STARTED_NO; started++)
        for (known = 0; known < 2; known++) {
          struct dsh_outcome o = {.started = (enum dsh_started)started,
                                  .exited = true,
                                  .exit_code = codes[c],
                                  .denials_known = known != 0};
          check(&a, backends[b], o, data, size);
        }
  dsh_arena_free(&a);
  return 0;
}
