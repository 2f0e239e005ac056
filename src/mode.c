/* mode.c: the three modes by name and by width. */
#include <string.h>

#include "dsh.h"

static const char *const names[] = {
    [DSH_READ_ONLY] = "read-only",
    [DSH_WORKSPACE_WRITE] = "workspace-write",
    [DSH_DANGER_FULL_ACCESS] = "danger-full-access",
};

const char *dsh_mode_name(enum dsh_mode mode) {
  return names[mode];
}

int dsh_mode_parse(const char *text, enum dsh_mode *out) {
  unsigned i;
  for (i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(text, names[i]) == 0) {
      *out = (enum dsh_mode)i;
      return 0;
    }
  return -1;
}

int dsh_mode_compare(enum dsh_mode a, enum dsh_mode b) {
  return (a > b) - (a < b);
}
