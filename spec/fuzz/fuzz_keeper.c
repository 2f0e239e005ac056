/* fuzz_keeper.c: any packets as a keeper's conversation. Each is one length
 * byte and so many bytes. Whatever is said, a start that nobody proved is not
 * one, and an end that nobody saw is not told. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool ok) {
  if (!ok)
    abort();
}

static void check(const struct dsh_run *r) {
  const struct dsh_outcome *o = &r->outcome;
  size_t i;
  expect(o->started != DSH_STARTED_YES || (r->heard_ready && !o->stage));
  expect(o->started == DSH_STARTED_YES || o->stage);
  expect(o->started == DSH_STARTED_NO || !o->keeper || r->heard_exited);
  expect(o->status_lost || o->started != DSH_STARTED_YES || o->exited ||
         o->signal || r->heard_exited);
  expect(!o->status_lost || (!o->exited && !o->signal));
  expect(o->n_denials <= DENIALS_MAX);
  for (i = 0; i < o->n_denials; i++)
    expect(strlen(o->denial[i].op) < 16 && strlen(o->denial[i].comm) < 16 &&
           strlen(o->denial[i].path) < DSH_KEEPER_PACKET);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct dsh_run *r = calloc(1, sizeof *r);
  if (!r || stream_open(&r->out, 1) != 0 || stream_open(&r->err, 1) != 0)
    abort();
  dsh_arena_init(&r->arena);
  dsh_arena_init(&r->denial_arena);
  r->has_keeper = r->apart = true; /* apart: it kills nobody */
  while (size) {
    size_t n = data[0];
    void *packet;
    data++;
    size--;
    n = n < size ? n : size;
    packet = malloc(n ? n : 1); /* its own block, for the sanitizers */
    if (!packet)
      abort();
    memcpy(packet, data, n);
    status_packet(r, packet, n);
    free(packet);
    data += n;
    size -= n;
  }
  status_conclude(r);
  check(r);
  stream_free(&r->out);
  stream_free(&r->err);
  dsh_arena_free(&r->arena);
  dsh_arena_free(&r->denial_arena);
  free(r);
  return 0;
}
