/* found.c: paths remembered between calls. A call to confine resolves the
 * same few paths again and again, and a walk costs a system call for each
 * name; one stat tells that the object found last time is still there. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "path.h"

enum { SLOTS = 16, GROUPS_MAX = 256, FRESH_MS = 1000 };

static _Thread_local struct dsh_found slots[SLOTS];
static _Thread_local unsigned next_slot;

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static bool in_groups(gid_t gid) {
  gid_t list[GROUPS_MAX];
  int i, n;
  if (gid == getegid())
    return true;
  n = getgroups(GROUPS_MAX, list);
  for (i = 0; i < n; i++)
    if (list[i] == gid)
      return true;
  return false;
}

/* Are the bits `want` (of 7) there for us, by ownership alone? */
static bool bits(unsigned mode, uint32_t uid, uint32_t gid, unsigned want) {
  if (uid == geteuid())
    return ((mode >> 6) & want) == want;
  if (in_groups((gid_t)gid))
    return ((mode >> 3) & want) == want;
  return (mode & want) == want;
}

/* What uid 0 may do once it has no capability is asked only when the answer
 * can have changed: geteuid is a system call too. */
static void judge(struct dsh_found *f) {
  unsigned want = S_ISDIR((mode_t)f->mode) ? 3 : 2;
  f->denied = geteuid() == 0 &&
              (f->unreachable || !bits(f->mode, f->uid, f->gid, want));
}

/* Ancestors must be searchable without capabilities, too. */
static bool reachable(const char *canonical) {
  char path[PATH_MAX];
  struct stat st;
  char *slash;
  if (strlen(canonical) >= sizeof path)
    return false;
  strcpy(path, canonical);
  while ((slash = strrchr(path, '/')) && slash != path) {
    *slash = '\0';
    if (stat(path, &st) != 0 ||
        !bits((unsigned)st.st_mode, st.st_uid, st.st_gid, 1))
      return false;
  }
  return true;
}

static bool same(const struct dsh_found *f, const struct stat *st) {
  return f->dev == (uint64_t)st->st_dev && f->ino == (uint64_t)st->st_ino;
}

static void take(struct dsh_found *f, const struct stat *st) {
  bool changed = f->mode != (unsigned)st->st_mode ||
                 f->uid != (uint32_t)st->st_uid ||
                 f->gid != (uint32_t)st->st_gid;
  f->dev = (uint64_t)st->st_dev;
  f->ino = (uint64_t)st->st_ino;
  f->mode = (unsigned)st->st_mode;
  f->uid = (uint32_t)st->st_uid;
  f->gid = (uint32_t)st->st_gid;
  f->looked_ms = now_ms();
  if (changed)
    judge(f);
}

/* Does a slot still tell the truth? Where the text is the canonical path,
 * the object itself is enough: should a name on the way have become a link
 * meanwhile, it leads to the very same object. */
static bool confirm(struct dsh_found *f) {
  struct stat st;
  if (stat(f->raw, &st) != 0 || !same(f, &st))
    return false;
  if (strcmp(f->raw, f->canonical) != 0) {
    struct stat canonical;
    if (lstat(f->canonical, &canonical) != 0 || !same(f, &canonical))
      return false;
  }
  take(f, &st);
  return true;
}

static char *copy_links(const struct dsh_strv *links) {
  size_t i, n = 1;
  char *text, *at;
  for (i = 0; i < links->n; i++)
    n += strlen(links->v[i]) + 1;
  text = at = calloc(1, n);
  for (i = 0; text && i < links->n; i++)
    at = stpcpy(at, links->v[i]) + 1;
  return text;
}

static void forget(struct dsh_found *f) {
  free(f->raw);
  free(f->canonical);
  free(f->links);
  memset(f, 0, sizeof *f);
}

static int fill(struct dsh_found *f, const char *path, struct dsh_arena *a) {
  struct dsh_error err = {0};
  struct dsh_strv links = {0};
  struct statvfs fs;
  struct stat st;
  char *canonical = dsh_path_resolve(a, path, false, NULL, &links, &err);
  if (!canonical)
    return a->failed ? ENOMEM : err.errnum;
  if (lstat(canonical, &st) != 0)
    return errno;
  f->raw = strdup(path);
  f->canonical = strdup(canonical);
  f->links = copy_links(&links);
  if (!f->raw || !f->canonical || !f->links)
    return ENOMEM;
  f->unreachable = geteuid() == 0 && !reachable(canonical);
  take(f, &st); /* the mode was 0: so it is judged */
  f->read_only = statvfs(canonical, &fs) == 0 && (fs.f_flag & ST_RDONLY);
  return 0;
}

static struct dsh_found *slot_of(const char *path) {
  struct dsh_found *f;
  for (f = slots; f < slots + SLOTS; f++)
    if (f->raw && strcmp(f->raw, path) == 0)
      return f;
  return NULL;
}

int dsh_found(const char *path, const struct dsh_found **out) {
  struct dsh_found *f = slot_of(path);
  struct dsh_arena a;
  int e;
  if (f && confirm(f)) {
    *out = f;
    return 0;
  }
  if (!f)
    f = &slots[next_slot++ % SLOTS];
  forget(f);
  dsh_arena_init(&a);
  e = fill(f, path, &a);
  dsh_arena_free(&a);
  if (e)
    forget(f);
  *out = f;
  return e;
}

int dsh_found_fixed(const char *path, const struct dsh_found **out) {
  struct dsh_found *f = slot_of(path);
  if (f && now_ms() - f->looked_ms < FRESH_MS) {
    *out = f;
    return 0;
  }
  return dsh_found(path, out);
}

void dsh_found_reset(void) {
  struct dsh_found *f;
  for (f = slots; f < slots + SLOTS; f++)
    forget(f);
}
