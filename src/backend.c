/* backend.c: the one list of backends, in probing order. */
#include <string.h>

#include "backend.h"

const struct dsh_backend *const dsh_backends[] = {
    &dsh_backend_bwrap, &dsh_backend_landlock, NULL};

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
