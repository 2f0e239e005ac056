/* error.c: the one error shape. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "dsh.h"

static const char *const code_names[DSH_CODE_COUNT] = {
    "OK",
#define DSH_CODE_NAME(name) #name,
    DSH_CODES(DSH_CODE_NAME)
#undef DSH_CODE_NAME
};

const char *dsh_code_name(enum dsh_code code) {
  if ((unsigned)code >= DSH_CODE_COUNT)
    return "UNKNOWN";
  return code_names[code];
}

/* strerrorname_np is glibc's alone and newer than musl's libc. */
#define ERRNO_NAMES(X)                                                       \
  X(EPERM) X(ENOENT) X(ESRCH) X(EINTR) X(EIO) X(ENXIO) X(E2BIG) X(ENOEXEC)   \
  X(EBADF) X(ECHILD) X(EAGAIN) X(ENOMEM) X(EACCES) X(EFAULT) X(EBUSY)        \
  X(EEXIST) X(EXDEV) X(ENODEV) X(ENOTDIR) X(EISDIR) X(EINVAL) X(ENFILE)      \
  X(EMFILE) X(ENOTTY) X(ETXTBSY) X(EFBIG) X(ENOSPC) X(ESPIPE) X(EROFS)       \
  X(EMLINK) X(EPIPE) X(EDOM) X(ERANGE) X(EDEADLK) X(ENAMETOOLONG) X(ENOLCK)  \
  X(ENOSYS) X(ENOTEMPTY) X(ELOOP) X(ENODATA) X(ETIME) X(EPROTO) X(EOVERFLOW) \
  X(EOPNOTSUPP) X(ECONNREFUSED) X(ECONNRESET) X(ETIMEDOUT) X(EALREADY)       \
  X(EINPROGRESS) X(ESTALE) X(EDQUOT) X(ECANCELED)

const char *dsh_errno_name(int errnum) {
  static _Thread_local char other[16];
  switch (errnum) {
#define ERRNO_CASE(e)                                                        \
  case e:                                                                    \
    return #e;
    ERRNO_NAMES(ERRNO_CASE)
#undef ERRNO_CASE
  default:
    snprintf(other, sizeof other, "E%d", errnum);
    return other;
  }
}

__attribute__((format(printf, 6, 0)))
static void set(struct dsh_error *err, enum dsh_code code, int errnum,
                const char *stage, const char *path, const char *fmt,
                va_list ap) {
  int n;
  if (!err)
    return;
  err->code = code;
  err->errnum = errnum;
  err->stage = stage;
  snprintf(err->path, sizeof err->path, "%s", path);
  n = vsnprintf(err->message, sizeof err->message, fmt, ap);
  if (errnum != 0 && n >= 0 && (size_t)n < sizeof err->message)
    snprintf(err->message + n, sizeof err->message - (size_t)n, ": %s",
             strerror(errnum));
}

int dsh_fail(struct dsh_error *err, enum dsh_code code, int errnum,
             const char *stage, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  set(err, code, errnum, stage, "", fmt, ap);
  va_end(ap);
  return -1;
}

int dsh_fail_path(struct dsh_error *err, enum dsh_code code, int errnum,
                  const char *stage, const char *path, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  set(err, code, errnum, stage, path, fmt, ap);
  va_end(ap);
  return -1;
}

int dsh_wrap(struct dsh_error *err, const char *fmt, ...) {
  char old[sizeof err->message];
  va_list ap;
  int n;
  if (!err)
    return -1;
  memcpy(old, err->message, sizeof old);
  va_start(ap, fmt);
  n = vsnprintf(err->message, sizeof err->message, fmt, ap);
  va_end(ap);
  if (n >= 0 && (size_t)n < sizeof err->message)
    snprintf(err->message + n, sizeof err->message - (size_t)n, ": %s", old);
  return -1;
}
