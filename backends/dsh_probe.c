/* dsh_probe.c: tries what the sandbox forbids. See dsh_probe.h.
 *
 *   dsh-probe --list                 the operations, tab separated
 *   dsh-probe --matrix OPTIONS --line LABEL COUNT ARGV... [--line ...]
 *                                    every operation, bare and then in each
 *                                    line; ARGV ends in
 *                                    dsh-probe --inside STATE/spec
 *   dsh-probe --inside SPEC          the confined half
 *   dsh-probe --short --root DIR --outside DIR [--bare]
 *                                    one line per class of effect
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "dsh_probe.h"

/* The errnos that a sandbox answers with, by name; others by number. */
const char *probe_errno_name(int errnum) {
  static const struct { int errnum; const char *name; } known[] = {
    { EPERM, "EPERM" }, { ENOENT, "ENOENT" }, { ESRCH, "ESRCH" },
    { EINTR, "EINTR" }, { EIO, "EIO" }, { ENXIO, "ENXIO" },
    { EBADF, "EBADF" }, { EACCES, "EACCES" }, { EBUSY, "EBUSY" },
    { EEXIST, "EEXIST" }, { EXDEV, "EXDEV" }, { ENODEV, "ENODEV" },
    { ENOTDIR, "ENOTDIR" }, { EISDIR, "EISDIR" }, { EINVAL, "EINVAL" },
    { ENOTTY, "ENOTTY" }, { EROFS, "EROFS" }, { EPIPE, "EPIPE" },
    { ENOSYS, "ENOSYS" }, { ELOOP, "ELOOP" }, { ENOTEMPTY, "ENOTEMPTY" },
    { EOPNOTSUPP, "EOPNOTSUPP" }, { ECONNREFUSED, "ECONNREFUSED" },
    { ETIMEDOUT, "ETIMEDOUT" }, { ENOSPC, "ENOSPC" }, { ENOMEM, "ENOMEM" },
    { EAGAIN, "EAGAIN" }, { EFAULT, "EFAULT" }, { ENODATA, "ENODATA" },
    { EMFILE, "EMFILE" }, { EUSERS, "EUSERS" }, { E2BIG, "E2BIG" },
    { ENAMETOOLONG, "ENAMETOOLONG" }, { ESTALE, "ESTALE" },
    { EOVERFLOW, "EOVERFLOW" }, { ENETUNREACH, "ENETUNREACH" },
  };
  static char other[16];
  for (size_t i = 0; i < PROBE_LEN(known); i++)
    if (known[i].errnum == errnum)
      return known[i].name;
  snprintf(other, sizeof other, "E%d", errnum);
  return other;
}

static const char *kind(unsigned flags) {
  if (flags & OP_ALLOWED)
    return "allowed";
  if (flags & OP_NOTE)
    return "note";
  if (flags & OP_NEVER)
    return "never";
  return flags & OP_EITHER ? "either" : "by-place";
}

/* name, class, effect, kind, note: what the matrix needs to expect. */
static int list(void) {
  const struct probe_op *op;
  for (size_t i = 0; (op = probe_op_at(i)); i++)
    printf("%s\t%c\t%s\t%s\t%s\n", op->name, op->cls, op->effect,
           kind(op->flags), op->note ? op->note : "");
  return 0;
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  if (!strcmp(what, "--list") && argc == 2)
    return list();
  if (!strcmp(what, "--nothing"))
    return 0;
  if (!strcmp(what, "--inside") && argc == 3)
    return probe_inside(argv[2]);
  if (!strcmp(what, "--matrix"))
    return probe_harness(argc, argv);
  if (!strcmp(what, "--short"))
    return probe_short(argc, argv);
  fputs("dsh-probe: --list | --inside SPEC | --matrix OPTIONS --line LABEL "
        "COUNT ARGV... |\n           --short --root DIR --outside DIR "
        "[--bare]\n", stderr);
  return 2;
}
