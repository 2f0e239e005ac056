/* fence.h: text files in-process, under the same writable roots as commands.
 *
 * A policy check in trusted code, not a kernel boundary. It is free of races
 * all the same: a path is made canonical, its parent is opened again without
 * following any link, and everything after that acts on descriptors.
 *
 * Reads pass in every mode. Errors are DSH_E_FS_*. */
#ifndef DSH_FENCE_H
#define DSH_FENCE_H

#include "dsh.h"

#define DSH_FS_TEXT_MAX (16 << 20) /* bytes of a text file, unless given */
#define DSH_FS_SNIFF 8192          /* no NUL in so many first bytes */

/* Identifies one state of one file. */
struct dsh_fs_version {
  uint64_t dev, ino, size;
  int64_t mtime_ns, ctime_ns;
};

struct dsh_fs_stat {
  struct dsh_fs_version version;
  char type; /* 'f' file, 'd' directory, 'l' link, 'o' other */
  uint32_t mode, uid, gid;
  uint64_t nlink;
};

/* The rules of one call. `policy` NULL: no fence. */
struct dsh_fence {
  const struct dsh_policy *policy;
  const char *tmpdir, *home; /* for the roots, or NULL */
  bool allow_hard_links;
  bool no_openat2;           /* walk component by component instead */
};

enum dsh_fs_intent {
  DSH_FS_ANY,    /* create or replace */
  DSH_FS_CREATE, /* never clobber: DSH_E_FS_EXISTS */
  DSH_FS_REPLACE /* only the given version: DSH_E_FS_STALE */
};

/* Bytes in the arena; data[n] is NUL. */
struct dsh_fs_bytes {
  char *data;
  size_t n;
};

int dsh_fs_resolve(struct dsh_arena *a, const char *path, char **out,
                   struct dsh_error *err);
int dsh_fs_stat_path(const char *path, bool follow, struct dsh_fs_stat *out,
                     struct dsh_error *err);
/* A regular file of at most `max` bytes, else DSH_E_FS_TOO_LARGE before
 * anything is read; `text` also insists on UTF-8 (DSH_E_FS_NOT_TEXT). */
int dsh_fs_read(struct dsh_arena *a, const char *path, size_t max, bool text,
                struct dsh_fs_bytes *out, struct dsh_fs_version *version,
                struct dsh_error *err);
/* Atomic: a temporary sibling, written, fsynced, renamed over, the directory
 * fsynced. Mode, owner, ACL and other attributes are kept or the write is
 * refused naming what would be lost. `expect` with DSH_FS_REPLACE. */
int dsh_fs_write(const struct dsh_fence *f, const char *path, const void *data,
                 size_t n, enum dsh_fs_intent intent,
                 const struct dsh_fs_version *expect,
                 struct dsh_fs_version *version, struct dsh_error *err);
/* Replaces `old_n` bytes at `old` by others, in one critical section across
 * processes. An LF in old matches CRLF too; only matched bytes change.
 * *count gets the matches, also of a failure. */
int dsh_fs_edit(const struct dsh_fence *f, const char *path, const char *old,
                size_t old_n, const char *new_, size_t new_n, bool all,
                const struct dsh_fs_version *expect, size_t max, size_t *count,
                struct dsh_fs_version *version, struct dsh_error *err);

/* --- textfile.c, pure --- */

/* Valid UTF-8 (no surrogates, nothing overlong) without NUL at its start. */
bool dsh_text_valid(const char *s, size_t n);
struct dsh_edit {
  size_t count;
  struct dsh_fs_bytes result; /* valid when the edit applies */
};
/* -1 when memory is out; applies when count is 1, or all and at least 1. */
int dsh_text_edit(struct dsh_arena *a, const char *text, size_t n,
                  const char *old, size_t old_n, const char *new_,
                  size_t new_n, bool all, struct dsh_edit *out);

/* --- inside the fence: fence.c, filewrite.c, filemeta.c --- */

/* A place to write: opened parent and the name in it. */
struct dsh_fs_place {
  int parent; /* owned; a directory, opened for reading */
  char name[256];
  char path[4096]; /* canonical */
  bool exists;
};
int dsh_fs_open_place(const struct dsh_fence *f, const char *path,
                      struct dsh_fs_place *out, struct dsh_error *err);
void dsh_fs_close_place(struct dsh_fs_place *p);
int dsh_fs_lock(const struct dsh_fs_place *p, struct dsh_error *err);
int dsh_fs_write_at(const struct dsh_fence *f, struct dsh_fs_place *p,
                    const void *data, size_t n, enum dsh_fs_intent intent,
                    const struct dsh_fs_version *expect,
                    struct dsh_fs_version *version, struct dsh_error *err);
int dsh_fs_read_fd(struct dsh_arena *a, int fd, const char *path, size_t max,
                   bool text, struct dsh_fs_bytes *out,
                   struct dsh_fs_version *version, struct dsh_error *err);
/* Gives file descriptor `to` what `from` has beside its content. */
int dsh_fs_copy_meta(int from, int to, const char *path,
                     struct dsh_error *err);
/* Refuses a file whose flags forbid a replacement, naming the flag. */
int dsh_fs_check_flags(int fd, const char *path, struct dsh_error *err);
/* After the content: a write drops capabilities and set-ID bits. */
int dsh_fs_restore_meta(int from, int to, const char *path,
                        struct dsh_error *err);
bool dsh_fs_same_version(const struct dsh_fs_version *a,
                         const struct dsh_fs_version *b);
int dsh_fs_fail(struct dsh_error *err, int errnum, const char *path,
                const char *what);

/* Tests put a function here that may fail a call (its errno) or end the
 * process before it. In an ordinary build the hook is not there. */
#ifdef DSH_FS_FAULTS
extern int (*dsh_fs_fault)(const char *call);
#define DSH_FS_CALL(name, expr)                                              \
  (dsh_fs_fault && (errno = dsh_fs_fault(name)) != 0 ? -1 : (expr))
#else
#define DSH_FS_CALL(name, expr) (expr)
#endif

#endif
