/* backend.c: the one list of backends, in probing order. */
#include <string.h>

#include "backend.h"

const struct dsh_backend *const dsh_backends[] = {
    &dsh_backend_bwrap, &dsh_backend_landlock, &dsh_backend_seatbelt,
    &dsh_backend_winacl, NULL};

const struct dsh_backend *dsh_backend_find(const char *name) {
  const struct dsh_backend *const *b;
  for (b = dsh_backends; *b; b++)
    if (strcmp((*b)->name, name) == 0)
      return *b;
  return NULL;
}

unsigned dsh_platform_here(void) {
#if defined __linux__
  return DSH_LINUX;
#elif defined __APPLE__
  return DSH_MACOS;
#else
  return DSH_WINDOWS;
#endif
}

int dsh_words(struct dsh_arena *a, struct dsh_strv *out,
              const char *const *words) {
  for (; *words; words++)
    if (dsh_strv_add(a, out, *words) < 0)
      return -1;
  return 0;
}
