/* loghelp.h: logs made by hand, for the tests of reader and writer. */
#ifndef LOGHELP_H
#define LOGHELP_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zstd.h>

#include "eventlog.h"
#include "logwrite.h"

#define HEADER                                                               \
  "{\"type\":\"session\",\"version\":0,\"id\":\"s\",\"createdAt\":1,"        \
  "\"cwd\":\"/w\",\"delegationDepth\":0}"

/* A file being put together. */
struct made {
  unsigned char *p;
  size_t n, cap;
};

static inline void made_add(struct made *m, const void *p, size_t n) {
  if (m->n + n > m->cap) {
    m->cap = (m->n + n) * 2 + 4096;
    m->p = realloc(m->p, m->cap);
    assert_non_null(m->p);
  }
  memcpy(m->p + m->n, p, n);
  m->n += n;
}

static inline void made_frame(struct made *m, const void *text, size_t n,
                              int checksum) {
  ZSTD_CCtx *c = ZSTD_createCCtx();
  size_t bound = ZSTD_compressBound(n);
  void *out = malloc(bound);
  size_t k;
  ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, checksum);
  k = ZSTD_compress2(c, out, bound, text, n);
  assert_false(ZSTD_isError(k));
  made_add(m, out, k);
  free(out);
  ZSTD_freeCCtx(c);
}

static inline void made_text(struct made *m, const char *text) {
  made_frame(m, text, strlen(text), 1);
}

static inline void made_skip(struct made *m, unsigned n) {
  unsigned char head[8] = {0x53, 0x2a, 0x4d, 0x18, 0, 0, 0, 0};
  static const unsigned char zero[256] = {0};
  head[4] = (unsigned char)n;
  made_add(m, head, sizeof head);
  made_add(m, zero, n);
}

static inline void write_file(const char *path, const void *p, size_t n) {
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(p, 1, n, f), n);
  assert_int_equal(fclose(f), 0);
}

static char dir[64], path[96];

static inline int remove_one(const char *p, const struct stat *st, int type,
                             struct FTW *ftw) {
  (void)st, (void)type, (void)ftw;
  return remove(p);
}

/* The first kilobytes of tests are many small files: kept in memory. */
static inline int setup(void **state) {
  (void)state;
  snprintf(dir, sizeof dir, "%s/dshsh-log.XXXXXX",
           access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
  if (!mkdtemp(dir))
    return -1;
  snprintf(path, sizeof path, "%s/session.jsonl.zstd", dir);
  return 0;
}

static inline int teardown(void **state) {
  (void)state;
  return nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static inline void event_text(char *out, size_t size, int seq,
                              const char *type, const char *data) {
  snprintf(out, size, "{\"type\":\"%s\",\"data\":%s,\"seq\":%d,\"time\":1}\n",
           type, data, seq);
}

static inline void mode_text(char *out, size_t size, int seq,
                             const char *mode) {
  char data[64];
  snprintf(data, sizeof data, "{\"mode\":\"%s\"}", mode);
  event_text(out, size, seq, "sandbox/mode", data);
}

/* The file's mode by every way there is; they must agree. -1: none, -2: an
 * error (in *err). */
static inline int mode_of(const char *file, struct dsh_error *err,
                          struct dsh_log_info *info) {
  struct dsh_log_info two;
  struct dsh_fold f, g, h;
  struct dsh_error e2, e3;
  bool full;
  int rc = dsh_log_verify(file, 1, &f, info, err);
  int rc2 = dsh_log_verify(file, 2, &g, &two, &e2);
  int rc3 = dsh_log_fold(file, DSH_WANT_MODE, &h, &full, &e3);
  int mode = rc ? -2 : f.has_mode ? (int)f.mode : -1;
  assert_int_equal(rc, rc2);
  if (rc == 0) {
    assert_int_equal(rc3, 0);
    assert_int_equal(f.has_mode, g.has_mode);
    assert_int_equal(f.has_mode, h.has_mode);
    assert_int_equal(f.mode, g.mode);
    assert_int_equal(f.mode, h.mode);
    assert_int_equal(info->events, two.events);
  }
  dsh_fold_free(&f);
  dsh_fold_free(&g);
  dsh_fold_free(&h);
  return mode;
}

static inline int append(struct dsh_writer *w, const char *type,
                         const char *data, struct dsh_error *err) {
  struct dsh_event ev = {type, data, false};
  int64_t seq;
  return dsh_writer_append(w, &ev, 1, &seq, err);
}

static inline struct dsh_writer *reopen(struct dsh_log_info *info,
                                        struct dsh_error *err) {
  struct dsh_fold f;
  struct dsh_writer *w = dsh_writer_open(path, &f, info, err);
  if (w)
    dsh_fold_free(&f);
  return w;
}

static inline void make_log(int events) {
  struct dsh_error err;
  struct dsh_writer *w = dsh_writer_create(path, HEADER, &err);
  int i;
  assert_non_null(w);
  for (i = 0; i < events; i++)
    assert_int_equal(append(w, "x", "{\"a\":1}", &err), 0);
  dsh_writer_close(w);
}

static inline uint64_t events_in(const char *file) {
  struct dsh_log_info info;
  struct dsh_error err = {0};
  if (mode_of(file, &err, &info) == -2)
    fail_msg("%s", err.message);
  return info.events;
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

#endif
