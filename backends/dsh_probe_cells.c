/* dsh_probe_cells.c: which cells there are, and how the halves agree. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dsh_probe.h"

static const struct probe_family *const families[] = {
  &probe_open, &probe_open2, &probe_names, &probe_meta, &probe_proc,
  &probe_mount, &probe_stdio, &probe_race, &probe_process,
};

const struct probe_op *probe_op_at(size_t i) {
  for (size_t f = 0; f < PROBE_LEN(families); f++) {
    if (i < families[f]->n)
      return &families[f]->op[i];
    i -= families[f]->n;
  }
  return NULL;
}

const char *probe_place_name(enum probe_place p) {
  static const char *const name[PLACE_COUNT] = {
    "root", "outside", "temp", "outside-to-root", "root-to-outside",
    "root-to-extra", "root-to-temp", "host", "stdio",
  };
  return name[p];
}

const char *probe_form_name(enum probe_form f) {
  static const char *const name[FORM_COUNT] = {
    "absolute", "relative", "dirfd", "symlink", "dotdot", "proc-root",
    "proc-fd",
  };
  return name[f];
}

const char *probe_actor_name(enum probe_actor a) {
  static const char *const name[ACTOR_COUNT] = {
    "child", "grandchild", "session", "thread",
  };
  return name[a];
}

static enum probe_pass pass_of(const struct probe_op *op) {
  if (op->flags & OP_STDIO)
    return PASS_STDIO;
  return op->flags & OP_STDIN_DIR ? PASS_STDIN_DIR : PASS_MAIN;
}

struct list {
  struct probe_cell *v;
  size_t n;
};

static void add(struct list *l, const struct probe_op *op,
                enum probe_place place, enum probe_form form,
                enum probe_actor actor) {
  if (l->n < PROBE_CELLS_MAX)
    l->v[l->n++] = (struct probe_cell){ op, place, form, actor, pass_of(op) };
}

/* Outside, every form from the child, then every other actor by an absolute
 * path. Within the root the ways that differ for who decides; the temp
 * directory is a root like another. */
static void add_paths(struct list *l, const struct probe_spec *s,
                      const struct probe_op *op) {
  static const enum probe_form root[] = { FORM_ABSOLUTE, FORM_RELATIVE,
                                          FORM_DIRFD, FORM_PROC_FD };
  for (int f = 0; f < (s->quick ? 1 : FORM_COUNT); f++)
    add(l, op, PLACE_OUTSIDE, (enum probe_form)f, ACTOR_CHILD);
  for (int a = 1; a < (s->quick ? 1 : ACTOR_COUNT); a++)
    add(l, op, PLACE_OUTSIDE, FORM_ABSOLUTE, (enum probe_actor)a);
  for (size_t i = 0; i < (s->quick ? 1 : PROBE_LEN(root)); i++)
    add(l, op, PLACE_ROOT, root[i], ACTOR_CHILD);
  add(l, op, PLACE_TEMP, FORM_ABSOLUTE, ACTOR_CHILD);
}

static void add_pairs(struct list *l, const struct probe_spec *s,
                      const struct probe_op *op) {
  for (int p = PLACE_OUT_TO_ROOT; p <= PLACE_ROOT_TO_TEMP; p++)
    if ((p != PLACE_ROOT_TO_EXTRA || s->extra[0]) &&
        (p == PLACE_OUT_TO_ROOT || !(op->flags & OP_RACE)))
      add(l, op, (enum probe_place)p, FORM_ABSOLUTE, ACTOR_CHILD);
}

size_t probe_cells(const struct probe_spec *s, struct probe_cell *out) {
  struct list l = { out, 0 };
  const struct probe_op *op;
  for (size_t i = 0; (op = probe_op_at(i)); i++) {
    if (pass_of(op) != s->pass || (s->only[0] && !strstr(op->name, s->only)))
      continue;
    if (op->flags & OP_PATHS)
      add_paths(&l, s, op);
    else if (op->flags & OP_PAIR)
      add_pairs(&l, s, op);
    else if (op->flags & (OP_STDIO | OP_STDIN_DIR))
      add(&l, op, PLACE_STDIO, FORM_ABSOLUTE, ACTOR_CHILD);
    else if (op->flags & OP_TEMP)
      add(&l, op, PLACE_TEMP, FORM_ABSOLUTE, ACTOR_CHILD);
    else
      add(&l, op, op->flags & OP_ONE ? PLACE_OUTSIDE : PLACE_HOST,
          FORM_ABSOLUTE, ACTOR_CHILD);
  }
  return l.n;
}

static const char *place_dir(const struct probe_spec *s, enum probe_place p,
                             bool second) {
  switch (p) {
    case PLACE_ROOT: return s->root;
    case PLACE_TEMP: return s->temp;
    case PLACE_OUT_TO_ROOT: return second ? s->root : s->outside;
    case PLACE_ROOT_TO_OUT: return second ? s->outside : s->root;
    case PLACE_ROOT_TO_EXTRA: return second ? s->extra : s->root;
    case PLACE_ROOT_TO_TEMP: return second ? s->temp : s->root;
    case PLACE_OUTSIDE:
    case PLACE_HOST:
    case PLACE_STDIO:
    case PLACE_COUNT: break;
  }
  return s->outside;
}

void probe_bundle_dir(const struct probe_spec *s, const struct probe_cell *c,
                      bool second, char *out) {
  const char *base = place_dir(s, c->place, second);
  if (c->op->flags & (OP_STDIO | OP_STDIN_DIR))
    snprintf(out, PROBE_PATH_MAX, "%.400s/%.7s-stdio", base, s->set);
  else if (c->op->flags & OP_PEER)
    snprintf(out, PROBE_PATH_MAX, "%.400s/%.7s-peer", base, s->set);
  else
    snprintf(out, PROBE_PATH_MAX, "%.400s/%.7s%s", base, s->set,
             second ? "-far" : "");
}

/* --- the spec file: one "key=value" a line ------------------------------- */

int probe_spec_write(const struct probe_spec *s, const char *path) {
  FILE *f = fopen(path, "we");
  if (!f)
    return -1;
  fprintf(f, "root=%s\noutside=%s\ntemp=%s\nextra=%s\nonly=%s\nset=%s\n",
          s->root, s->outside, s->temp, s->extra, s->only, s->set);
  fprintf(f, "self=%s\npass=%d\nquick=%d\nvictim=%d\n"
             "counter=%llu\nport=%d\npts=%d\nvictim_fd=%s\n",
          s->self, (int)s->pass, s->quick, (int)s->victim,
          (unsigned long long)s->counter, s->port, s->pts,
          s->victim_fd);
  return fclose(f);
}

static void spec_set(struct probe_spec *s, const char *key, const char *v) {
  const struct { const char *key; char *to; size_t size; } text[] = {
    { "root", s->root, sizeof s->root },
    { "outside", s->outside, sizeof s->outside },
    { "temp", s->temp, sizeof s->temp },
    { "extra", s->extra, sizeof s->extra },
    { "only", s->only, sizeof s->only },
    { "set", s->set, sizeof s->set },
    { "self", s->self, sizeof s->self },
    { "victim_fd", s->victim_fd, sizeof s->victim_fd },
  };
  for (size_t i = 0; i < PROBE_LEN(text); i++)
    if (!strcmp(key, text[i].key))
      snprintf(text[i].to, text[i].size, "%s", v);
  if (!strcmp(key, "pass"))
    s->pass = (enum probe_pass)atoi(v);
  if (!strcmp(key, "quick"))
    s->quick = atoi(v) != 0;
  if (!strcmp(key, "victim"))
    s->victim = atoi(v);
  if (!strcmp(key, "counter"))
    s->counter = strtoull(v, NULL, 10);
  if (!strcmp(key, "pts"))
    s->pts = atoi(v);
  if (!strcmp(key, "port"))
    s->port = atoi(v);
}

int probe_spec_read(struct probe_spec *s, const char *path) {
  char line[PROBE_PATH_MAX + 32], *eq;
  FILE *f = fopen(path, "re");
  if (!f)
    return -1;
  memset(s, 0, sizeof *s);
  while (fgets(line, sizeof line, f)) {
    line[strcspn(line, "\n")] = '\0';
    if ((eq = strchr(line, '='))) {
      *eq = '\0';
      spec_set(s, line, eq + 1);
    }
  }
  return fclose(f);
}
