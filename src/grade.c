/* grade.c: grades are earned. */
#include <string.h>

#include "grade.h"

enum { GAPS_MAX = 32 };

/* One line of a report, as slices of it. */
struct finding {
  const char *class, *word, *op;
  size_t class_n, word_n, op_n;
};

static bool next_finding(const char **text, struct finding *f) {
  const char *p = *text, *end;
  if (!*p)
    return false;
  end = p + strcspn(p, "\n");
  *text = *end ? end + 1 : end;
  f->class = p;
  f->class_n = strcspn(p, "\t\n");
  p += f->class_n + (p[f->class_n] == '\t');
  f->word = p;
  f->word_n = strcspn(p, "\t\n");
  p += f->word_n + (p[f->word_n] == '\t');
  p += strcspn(p, "\t\n"); /* the errno */
  p += *p == '\t';
  f->op = p;
  f->op_n = strcspn(p, "\t\n");
  return true;
}

static bool is(const char *s, size_t n, const char *word) {
  return strlen(word) == n && memcmp(s, word, n) == 0;
}

static bool find(const char *text, const char *class, size_t n,
                 struct finding *out) {
  while (next_finding(&text, out))
    if (out->class_n == n && memcmp(out->class, class, n) == 0)
      return true;
  return false;
}

static void add_gap(struct dsh_arena *a, struct dsh_grade *g,
                    const struct finding *f, const char *reason) {
  if (g->n_gaps == GAPS_MAX)
    return;
  g->gap[g->n_gaps].effect = dsh_strndup(a, f->class, f->class_n);
  g->gap[g->n_gaps++].reason = reason;
}

void dsh_grade_open(struct dsh_grade *g, const char *effect,
                    const char *reason) {
  size_t i;
  for (i = 0; i < g->n_gaps; i++)
    if (strcmp(g->gap[i].effect, effect) == 0)
      return;
  if (g->n_gaps == GAPS_MAX)
    return;
  g->gap[g->n_gaps++] = (struct dsh_gap){effect, reason};
  g->enforcement = DSH_ENFORCE_PARTIAL;
}

/* "inside" is writing under the root: what workspace-write is for. */
static bool is_granted(enum dsh_mode mode, const struct finding *f) {
  return mode == DSH_WORKSPACE_WRITE && is(f->class, f->class_n, "inside");
}

static void judge(struct dsh_arena *a, enum dsh_mode mode,
                  const struct finding *bare, const char *confined,
                  struct dsh_grade *g) {
  struct finding f;
  if (!find(confined, bare->class, bare->class_n, &f)) {
    add_gap(a, g, bare, "the probe did not try it");
    return;
  }
  if (is_granted(mode, &f))
    return;
  if (is(f.word, f.word_n, "done"))
    add_gap(a, g, &f, dsh_format(a, "%.*s went through", (int)f.op_n, f.op));
  else if (!is(f.word, f.word_n, "refused") && is(bare->word, bare->word_n,
                                                   "done"))
    add_gap(a, g, &f, "could not be tried inside");
}

void dsh_grade_limits(struct dsh_arena *a, struct dsh_grade *out) {
  static const struct dsh_gap limits[] = {
      {"reads", "any file that file permissions allow can be read"},
      {"network", "connections are not limited"},
      {"older-hard-links", "a hard link made before inside a root writes the "
                           "file that it names"},
      {"outside-daemons", "a daemon reached by a socket does its own work"},
      {"stdout", "the files that 0, 1 and 2 are can be written as given"},
      {"processes", "priorities, System V IPC and keyrings are not limited"}};
  out->limit = dsh_alloc(a, sizeof limits);
  if (!out->limit)
    return;
  memcpy(out->limit, limits, sizeof limits);
  out->n_limits = sizeof limits / sizeof *limits;
}

int dsh_grade_report(struct dsh_arena *a, enum dsh_mode mode, const char *bare,
                     const char *confined, struct dsh_grade *out) {
  struct finding f;
  memset(out, 0, sizeof *out);
  dsh_grade_limits(a, out);
  out->gap = dsh_alloc(a, GAPS_MAX * sizeof *out->gap);
  if (!out->gap || !out->limit)
    return -1;
  if (!confined || !bare || !*bare) {
    out->gap[out->n_gaps++] = (struct dsh_gap){"all", "not probed"};
  } else {
    while (next_finding(&bare, &f))
      judge(a, mode, &f, confined, out);
  }
  out->enforcement = out->n_gaps ? DSH_ENFORCE_PARTIAL : DSH_ENFORCE_FULL;
  return a->failed ? -1 : 0;
}
