/* fold.c: the state that events settle, one line at a time. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "eventlog.h"

void dsh_fold_init(struct dsh_fold *f) {
  memset(f, 0, sizeof *f);
  f->mode_seq = -1;
}

void dsh_fold_free(struct dsh_fold *f) {
  free(f->grants);
  dsh_fold_init(f);
}

static int invariant(struct dsh_error *err, const char *why) {
  return dsh_fail(err, DSH_E_INVARIANT, 0, "log", "%s", why);
}

static json_t *data_of(const struct dsh_line *line) {
  return line->data ? json_loadb(line->data, line->data_len,
                                 JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL)
                    : NULL;
}

/* The member's text into out (size bytes); -1: not a string, or too long. */
static int text_member(const struct dsh_line *line, const char *name,
                       char *out, size_t size) {
  json_t *data = data_of(line);
  const json_t *v = json_object_get(data, name);
  const char *s = json_string_value(v);
  int rc = -1;
  if (s && strlen(s) == json_string_length(v) && strlen(s) < size) {
    memcpy(out, s, strlen(s) + 1);
    rc = 0;
  }
  json_decref(data);
  return rc;
}

int dsh_mode_of(const struct dsh_line *line, enum dsh_mode *out,
                struct dsh_error *err) {
  char mode[DSH_PRESET_MAX + 1];
  if (text_member(line, "mode", mode, sizeof mode) != 0)
    return invariant(err, "a sandbox/mode event that names no mode");
  if (dsh_mode_parse(mode, out) != 0)
    return dsh_fail(err, DSH_E_INVARIANT, 0, "log",
                    "a sandbox/mode event with the unknown mode \"%s\"", mode);
  return 0;
}

static int apply_mode(struct dsh_fold *f, const struct dsh_rec *rec,
                      struct dsh_error *err) {
  enum dsh_mode mode, now = f->has_mode ? f->mode : DSH_READ_ONLY;
  if (dsh_mode_of(&rec->scan, &mode, err) != 0)
    return -1;
  if (rec->verified)
    f->refused_mode = false;
  else if (dsh_mode_compare(mode, now) > 0) {
    f->refused_mode = true;
    mode = now;
  }
  f->has_mode = true;
  f->mode = mode;
  f->mode_seq = rec->seq;
  return 0;
}

/* Only the three base presets have an order; any other is wider to be safe. */
static int preset_rank(const char *name) {
  enum dsh_mode mode;
  return dsh_mode_parse(name, &mode) == 0 ? (int)mode : 3;
}

static int apply_preset(struct dsh_fold *f, const struct dsh_rec *rec,
                        struct dsh_error *err) {
  char name[DSH_PRESET_MAX + 1];
  if (text_member(&rec->scan, "preset", name, sizeof name) != 0)
    return invariant(err, "a permission/preset event that names no preset");
  if (rec->verified)
    f->refused_preset = false;
  else if (preset_rank(name) > (f->preset[0] ? preset_rank(f->preset) : 0)) {
    f->refused_preset = true;
    return 0;
  }
  memcpy(f->preset, name, sizeof name);
  return 0;
}

static int apply_approval(struct dsh_fold *f, const struct dsh_rec *rec,
                          struct dsh_error *err) {
  char name[DSH_PRESET_MAX + 1];
  enum dsh_approval a;
  if (text_member(&rec->scan, "policy", name, sizeof name) != 0)
    return invariant(err, "an approval/policy event that names no policy");
  if (strcmp(name, "ask") == 0)
    a = DSH_APPROVAL_ASK;
  else if (strcmp(name, "never") == 0)
    a = DSH_APPROVAL_NEVER;
  else
    return invariant(err, "an approval/policy event with an unknown policy");
  if (rec->verified)
    f->refused_approval = false;
  else if (a == DSH_APPROVAL_ASK && f->approval != DSH_APPROVAL_ASK) {
    f->refused_approval = true;
    return 0;
  }
  f->approval = a;
  return 0;
}

/* The entries of `now` that `next` lists too, by value. */
static json_t *common(const char *now, const json_t *next, bool *refused) {
  json_t *old = now ? json_loads(now, 0, NULL) : NULL, *out = json_array(), *g;
  size_t i, j;
  for (i = 0; i < json_array_size(old); i++)
    for (j = 0; j < json_array_size(next); j++) {
      g = json_array_get(old, i);
      if (json_equal(g, json_array_get(next, j))) {
        json_array_append(out, g);
        break;
      }
    }
  *refused = json_array_size(out) < json_array_size(next);
  json_decref(old);
  return out;
}

static int apply_grants(struct dsh_fold *f, const struct dsh_rec *rec,
                        struct dsh_error *err) {
  json_t *data = data_of(&rec->scan), *list, *take;
  char *text = NULL;
  list = json_object_get(data, "grants");
  if (json_is_array(list)) {
    f->refused_grants = false;
    take = rec->verified ? json_incref(list)
                         : common(f->grants, list, &f->refused_grants);
    text = json_dumps(take, JSON_COMPACT);
    json_decref(take);
  }
  json_decref(data);
  if (!text || strlen(text) > DSH_GRANTS_MAX) {
    free(text);
    return invariant(err, "a grant event without its list of grants");
  }
  free(f->grants);
  f->grants = text;
  return 0;
}

int dsh_fold_apply(struct dsh_fold *f, const struct dsh_rec *rec,
                   struct dsh_error *err) {
  switch (rec->scan.kind) {
  case DSH_KIND_MODE:
    return apply_mode(f, rec, err);
  case DSH_KIND_PRESET:
    return apply_preset(f, rec, err);
  case DSH_KIND_APPROVAL:
    return apply_approval(f, rec, err);
  case DSH_KIND_GRANT:
  case DSH_KIND_REVOKE:
    return apply_grants(f, rec, err);
  case DSH_KIND_OTHER:
  case DSH_KIND_SESSION:
  case DSH_KIND_CHUNKS:
    return 0;
  }
  return invariant(err, "an event of an unknown kind");
}

void dsh_fold_join(struct dsh_fold *f, struct dsh_fold *later) {
  if (later->has_mode) {
    f->has_mode = true;
    f->mode = later->mode;
    f->mode_seq = later->mode_seq;
  }
  if (later->preset[0])
    memcpy(f->preset, later->preset, sizeof f->preset);
  if (later->approval != DSH_APPROVAL_NONE)
    f->approval = later->approval;
  if (later->grants) {
    free(f->grants);
    f->grants = later->grants;
    later->grants = NULL;
  }
}
