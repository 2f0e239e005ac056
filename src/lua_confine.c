/* lua_confine.c: dsh.core.confine.
 *
 *   confine.provider{backend=, runner_command={…}, failure_signatures={…},
 *     probe_runner=, probe_timeout_ms=, launcher=, verdict_dir=}
 *     -> provider | nil, err
 *   provider:confine(argv, policy) -> record | nil, err
 *     record: {argv, argv_at, confined, launcher, backend, mode, enforcement,
 *     gaps, limits, denial_signatures, runner_failure_rules, refused_roots?}
 *   provider:probe() -> list of findings | nil, err
 *   provider:reprobe(), provider:close(); also by <close> and collection
 *   confine.classify(record, facts) -> {started, runner_failed, detail?,
 *     denied, evidence?}; facts: {started, exit_code?, signal?, stderr,
 *     runner_failed?, denials = count?, denials_known?}
 *   confine.roots(policy) -> {workspace?, roots = {{path, origin}}, protected,
 *     refused, unprotectable} | nil, err
 *   confine.writable(policy, path) -> boolean, deciding path? | nil, err
 *   confine.control_add(path) -> true | nil, err */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lua_dsh.h"

int ldsh_open_confine(lua_State *L);

#define PROVIDER "dsh.provider"

/* --- policy -------------------------------------------------------------- */

void ldsh_check_policy(lua_State *L, int idx, struct dsh_arena *a,
                       struct dsh_policy *p) {
  static const char *const known[] = {
      "mode",      "workspace_root", "session_id", "extra_roots",
      "protected", "temp",           "temp_dir",   NULL};
  const char *temp, *mode;
  struct dsh_error err;
  memset(p, 0, sizeof *p);
  if (lua_type(L, idx) != LUA_TTABLE)
    luaL_error(L, "policy: expected a table, got %s", luaL_typename(L, idx));
  ldsh_check_fields(L, idx, "policy", known);
  mode = ldsh_field_string(L, idx, "policy", "mode", true);
  if (dsh_mode_parse(mode, &p->mode) != 0)
    luaL_error(L, "policy.mode: expected \"read-only\", \"workspace-write\" "
                  "or \"danger-full-access\", got \"%s\"",
               mode);
  p->workspace_root =
      ldsh_field_string(L, idx, "policy", "workspace_root", true);
  p->session_id = ldsh_field_string(L, idx, "policy", "session_id", false);
  ldsh_field_strv(L, idx, "policy", "extra_roots", a, &p->extra_roots);
  ldsh_field_strv(L, idx, "policy", "protected", a, &p->protected_);
  p->temp_dir = ldsh_field_string(L, idx, "policy", "temp_dir", false);
  temp = ldsh_field_string(L, idx, "policy", "temp", false);
  if (temp && strcmp(temp, "private") == 0)
    p->temp = DSH_TEMP_PRIVATE;
  else if (temp && strcmp(temp, "host") != 0)
    luaL_error(L, "policy.temp: expected \"host\" or \"private\", got \"%s\"",
               temp);
  if (dsh_policy_check(p, &err) != 0 && err.code == DSH_E_MISUSE)
    luaL_error(L, "%s", err.message);
}

/* --- records ------------------------------------------------------------- */

static void push_list(lua_State *L, const struct dsh_strv *list) {
  size_t i;
  lua_createtable(L, (int)list->n, 0);
  for (i = 0; i < list->n; i++) {
    lua_pushstring(L, list->v[i]);
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
}

static void push_gaps(lua_State *L, const struct dsh_gap *gap, size_t n) {
  size_t i;
  lua_createtable(L, (int)n, 0);
  for (i = 0; i < n; i++) {
    lua_createtable(L, 0, 2);
    lua_pushstring(L, gap[i].effect);
    lua_setfield(L, -2, "effect");
    lua_pushstring(L, gap[i].reason);
    lua_setfield(L, -2, "reason");
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
}

static void push_rules(lua_State *L, const struct dsh_failure_rule *rule,
                       size_t n) {
  size_t i, k;
  lua_createtable(L, (int)n, 0);
  for (i = 0; i < n; i++) {
    lua_createtable(L, 0, 3);
    if (rule[i].n_codes) {
      lua_createtable(L, (int)rule[i].n_codes, 0);
      for (k = 0; k < rule[i].n_codes; k++) {
        lua_pushinteger(L, rule[i].allowed_exit_codes[k]);
        lua_rawseti(L, -2, (lua_Integer)k + 1);
      }
      lua_setfield(L, -2, "allowed_exit_codes");
    }
    push_list(L, &rule[i].fatal_signatures);
    lua_setfield(L, -2, "fatal_signatures");
    if (rule[i].informational_lines.n) {
      push_list(L, &rule[i].informational_lines);
      lua_setfield(L, -2, "informational_lines");
    }
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
}

static const char *enforcement_name(enum dsh_enforcement e) {
  return e == DSH_ENFORCE_FULL ? "full" : "partial";
}

/* The parts of a record that stay the same from call to call, made once per
 * grade and kept in the provider's user value. Leaves four tables. */
static void push_constant_parts(lua_State *L, int provider,
                                const struct dsh_plan *plan) {
  int i;
  lua_getiuservalue(L, provider, 1);
  if (lua_rawgetp(L, -1, plan->grade.gap) != LUA_TTABLE) {
    lua_pop(L, 1);
    lua_createtable(L, 4, 0);
    push_gaps(L, plan->grade.gap, plan->grade.n_gaps);
    lua_rawseti(L, -2, 1);
    push_gaps(L, plan->grade.limit, plan->grade.n_limits);
    lua_rawseti(L, -2, 2);
    push_list(L, &plan->denial_signatures);
    lua_rawseti(L, -2, 3);
    push_rules(L, plan->rule, plan->n_rules);
    lua_rawseti(L, -2, 4);
    lua_pushvalue(L, -1);
    lua_rawsetp(L, -3, plan->grade.gap);
  }
  lua_remove(L, -2);
  for (i = 1; i <= 4; i++)
    lua_rawgeti(L, -i, i);
  lua_remove(L, -5);
}

/* The words before the caller's, as a table kept from plan to plan: a repeated
 * plan takes its strings from there instead of making each again. Index 0 is
 * the plan's number. */
static void push_prefix(lua_State *L, int provider,
                        const struct dsh_plan *plan) {
  size_t i;
  lua_getiuservalue(L, provider, 1);
  if (lua_rawgetp(L, -1, plan->words_key) == LUA_TTABLE) {
    bool same;
    lua_rawgeti(L, -1, 0);
    same = (uint64_t)lua_tointeger(L, -1) == plan->words_number;
    lua_pop(L, 1);
    if (same) {
      lua_remove(L, -2);
      return;
    }
  }
  lua_pop(L, 1);
  lua_createtable(L, (int)plan->argv_at, 1);
  lua_pushinteger(L, (lua_Integer)plan->words_number);
  lua_rawseti(L, -2, 0);
  for (i = 0; i < plan->argv_at; i++) {
    lua_pushstring(L, plan->argv.v[i]);
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
  lua_pushvalue(L, -1);
  lua_rawsetp(L, -3, plan->words_key);
  lua_remove(L, -2);
}

/* The plan's words, then the very strings of the caller's table at `argv`. */
static void push_argv(lua_State *L, int provider, int argv,
                      const struct dsh_plan *plan) {
  lua_Integer i, at = (lua_Integer)plan->argv_at;
  lua_Integer n = (lua_Integer)plan->argv.n;
  int out;
  lua_createtable(L, (int)n, 0);
  out = lua_gettop(L);
  if (at) {
    push_prefix(L, provider, plan);
    for (i = 1; i <= at; i++) {
      lua_rawgeti(L, -1, i);
      lua_rawseti(L, out, i);
    }
    lua_pop(L, 1);
  }
  for (i = at + 1; i <= n; i++) {
    lua_rawgeti(L, argv, i - at);
    lua_rawseti(L, out, i);
  }
}

static void push_plan(lua_State *L, int provider, int argv,
                      const struct dsh_plan *plan) {
  lua_createtable(L, 0, 12);
  push_argv(L, provider, argv, plan);
  lua_setfield(L, -2, "argv");
  lua_pushinteger(L, (lua_Integer)plan->argv_at);
  lua_setfield(L, -2, "argv_at");
  lua_pushboolean(L, plan->confined);
  lua_setfield(L, -2, "confined");
  lua_pushstring(L, dsh_mode_name(plan->mode));
  lua_setfield(L, -2, "mode");
  if (!plan->confined)
    return;
  if (plan->refused.n) {
    push_list(L, &plan->refused);
    lua_setfield(L, -2, "refused_roots");
  }
  lua_pushboolean(L, plan->launcher);
  lua_setfield(L, -2, "launcher");
  lua_pushstring(L, plan->backend);
  lua_setfield(L, -2, "backend");
  lua_pushstring(L, enforcement_name(plan->grade.enforcement));
  lua_setfield(L, -2, "enforcement");
  push_constant_parts(L, provider, plan);
  lua_setfield(L, -5, "runner_failure_rules");
  lua_setfield(L, -4, "denial_signatures");
  lua_setfield(L, -3, "limits");
  lua_setfield(L, -2, "gaps");
}

/* --- provider ------------------------------------------------------------ */

struct box {
  struct dsh_provider *p;   /* NULL: closed */
  struct dsh_arena scratch; /* of the call going on; reset by the next */
};

static struct box *check_box(lua_State *L) {
  struct box *box = luaL_checkudata(L, 1, PROVIDER);
  if (!box->p)
    luaL_error(L, "provider: is closed");
  return box;
}

static struct dsh_provider *check_provider(lua_State *L) {
  return check_box(L)->p;
}

static void fresh_cache(lua_State *L, int idx) {
  lua_newtable(L);
  lua_setiuservalue(L, idx, 1);
}

static int ldsh_provider_new(lua_State *L) {
  static const char *const known[] = {
      "backend",      "runner_command",   "failure_signatures",
      "probe_runner", "probe_timeout_ms", "launcher",
      "verdict_dir",  NULL};
  struct dsh_provider_config c;
  struct dsh_error err;
  struct box *box;
  struct dsh_arena *a;
  memset(&c, 0, sizeof c);
  if (lua_isnoneornil(L, 1)) {
    lua_settop(L, 0);
    lua_newtable(L);
  }
  ldsh_check_fields(L, 1, "config", known);
  a = ldsh_push_arena(L);
  c.backend = ldsh_field_string(L, 1, "config", "backend", false);
  c.launcher = ldsh_field_string(L, 1, "config", "launcher", false);
  c.verdict_dir = ldsh_field_string(L, 1, "config", "verdict_dir", false);
  ldsh_field_strv(L, 1, "config", "runner_command", a, &c.runner);
  ldsh_field_strv(L, 1, "config", "failure_signatures", a, &c.signatures);
  c.probe_runner = ldsh_field_bool(L, 1, "config", "probe_runner", false);
  c.probe_timeout_ms = ldsh_field_int(L, 1, "config", "probe_timeout_ms", 0);
  box = lua_newuserdatauv(L, sizeof *box, 1);
  box->p = NULL;
  dsh_arena_init(&box->scratch);
  luaL_setmetatable(L, PROVIDER);
  fresh_cache(L, lua_gettop(L));
  box->p = dsh_provider_new(&c, &err);
  if (!box->p && err.code == DSH_E_MISUSE)
    return luaL_error(L, "%s", err.message);
  return box->p ? 1 : ldsh_fail(L, &err);
}

/* A sequence of strings without holes, borrowed from the table at idx. */
static const char **read_argv(lua_State *L, int idx, struct dsh_arena *a,
                              size_t *n) {
  const char **argv;
  lua_Integer i, len, keys = 0;
  if (lua_type(L, idx) != LUA_TTABLE)
    luaL_error(L, "argv: expected a list of strings, got %s",
               luaL_typename(L, idx));
  len = luaL_len(L, idx);
  for (lua_pushnil(L); lua_next(L, idx); lua_pop(L, 1))
    keys++;
  argv = dsh_alloc(a, ((size_t)len + 1) * sizeof *argv);
  if (!argv)
    luaL_error(L, "out of memory");
  for (i = 1; i <= len; i++) {
    size_t size;
    if (lua_rawgeti(L, idx, i) != LUA_TSTRING)
      luaL_error(L, "argv[%d]: expected string, got %s", (int)i,
                 luaL_typename(L, -1));
    argv[i - 1] = lua_tolstring(L, -1, &size); /* anchored by the table */
    if (strlen(argv[i - 1]) != size)
      luaL_error(L, "argv[%d]: contains a NUL byte", (int)i);
    lua_pop(L, 1);
  }
  if (keys != len)
    luaL_error(L, "argv: has a hole or a key that is no index");
  *n = (size_t)len;
  return argv;
}

static void push_finding(lua_State *L, const struct dsh_probe_result *r) {
  int m;
  lua_createtable(L, 0, 8);
  lua_pushstring(L, r->backend);
  lua_setfield(L, -2, "backend");
  lua_pushboolean(L, r->usable);
  lua_setfield(L, -2, "usable");
  if (!r->usable) {
    lua_pushstring(L, r->stage);
    lua_setfield(L, -2, "stage");
    lua_pushstring(L, r->cause);
    lua_setfield(L, -2, "cause");
    lua_pushstring(L, r->detail);
    lua_setfield(L, -2, "detail");
    lua_pushstring(L, r->fix);
    lua_setfield(L, -2, "fix");
    if (r->errnum) {
      lua_pushstring(L, dsh_errno_name(r->errnum));
      lua_setfield(L, -2, "errno_name");
    }
    return;
  }
  lua_createtable(L, 0, 2);
  for (m = 0; m < 2; m++) {
    const struct dsh_grade *g = &r->grade[m];
    lua_createtable(L, 0, 3);
    lua_pushstring(L, enforcement_name(g->enforcement));
    lua_setfield(L, -2, "enforcement");
    push_gaps(L, g->gap, g->n_gaps);
    lua_setfield(L, -2, "gaps");
    push_gaps(L, g->limit, g->n_limits);
    lua_setfield(L, -2, "limits");
    lua_setfield(L, -2, dsh_mode_name((enum dsh_mode)m));
  }
  lua_setfield(L, -2, "grades");
}

/* nil, err; where no backend is usable, err.cause lists what each lacks. */
static int confine_failed(lua_State *L, const struct dsh_provider *p,
                          const struct dsh_error *err) {
  const struct dsh_probe_result *known[8];
  size_t i, n;
  if (err->code == DSH_E_MISUSE)
    return luaL_error(L, "%s", err->message);
  ldsh_fail(L, err);
  if (err->code != DSH_E_SANDBOX_UNAVAILABLE)
    return 2;
  n = dsh_provider_known(p, known, 8);
  lua_createtable(L, (int)n, 0);
  for (i = 0; i < n; i++) {
    push_finding(L, known[i]);
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
  lua_setfield(L, -2, "cause");
  return 2;
}

static int provider_confine(lua_State *L) {
  struct box *box = check_box(L);
  struct dsh_arena *a = &box->scratch;
  struct dsh_policy policy;
  struct dsh_plan plan;
  struct dsh_error err;
  const char **argv;
  size_t n;
  lua_settop(L, 3);
  dsh_arena_reset(a);
  argv = read_argv(L, 2, a, &n);
  ldsh_check_policy(L, 3, a, &policy);
  if (dsh_confine(box->p, a, argv, n, &policy, &plan, &err) != 0)
    return confine_failed(L, box->p, &err);
  push_plan(L, 1, 2, &plan);
  return 1;
}

static int provider_probe(lua_State *L) {
  const struct dsh_probe_result *r;
  struct dsh_error err;
  size_t i, n;
  if (dsh_provider_probe(check_provider(L), &r, &n, &err) != 0)
    return ldsh_fail(L, &err);
  lua_createtable(L, (int)n, 0);
  for (i = 0; i < n; i++) {
    push_finding(L, &r[i]);
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
  return 1;
}

static int provider_reprobe(lua_State *L) {
  dsh_provider_reprobe(check_provider(L));
  fresh_cache(L, 1);
  return 0;
}

static int provider_close(lua_State *L) {
  struct box *box = luaL_checkudata(L, 1, PROVIDER);
  struct dsh_provider *p = box->p;
  box->p = NULL;
  dsh_provider_free(p);
  dsh_arena_free(&box->scratch);
  return 0;
}

/* --- classify ------------------------------------------------------------ */

static void read_rules(lua_State *L, struct dsh_arena *a,
                       struct dsh_plan *plan) {
  struct dsh_failure_rule *rules;
  size_t i;
  if (lua_getfield(L, 1, "runner_failure_rules") != LUA_TTABLE) {
    lua_pop(L, 1);
    return;
  }
  plan->n_rules = (size_t)luaL_len(L, -1);
  rules = dsh_alloc(a, (plan->n_rules + 1) * sizeof *rules);
  for (i = 0; rules && i < plan->n_rules; i++) {
    int *codes;
    size_t k;
    lua_geti(L, -1, (lua_Integer)i + 1);
    luaL_checktype(L, -1, LUA_TTABLE);
    ldsh_field_strv(L, lua_gettop(L), "rule", "fatal_signatures", a,
                    &rules[i].fatal_signatures);
    ldsh_field_strv(L, lua_gettop(L), "rule", "informational_lines", a,
                    &rules[i].informational_lines);
    if (lua_getfield(L, -1, "allowed_exit_codes") == LUA_TTABLE) {
      rules[i].n_codes = (size_t)luaL_len(L, -1);
      codes = dsh_alloc(a, (rules[i].n_codes + 1) * sizeof *codes);
      for (k = 0; codes && k < rules[i].n_codes; k++) {
        lua_geti(L, -1, (lua_Integer)k + 1);
        codes[k] = (int)luaL_checkinteger(L, -1);
        lua_pop(L, 1);
      }
      rules[i].allowed_exit_codes = codes;
    }
    lua_pop(L, 2);
  }
  plan->rule = rules;
  lua_pop(L, 1);
}

static void read_facts(lua_State *L, struct dsh_outcome *o) {
  static const char *const known[] = {
      "started", "exit_code", "signal", "stderr", "runner_failed", "denials",
      "denials_known", NULL};
  const char *started;
  ldsh_check_fields(L, 2, "facts", known);
  started = ldsh_field_string(L, 2, "facts", "started", true);
  o->started = strcmp(started, "yes") == 0  ? DSH_STARTED_YES
               : strcmp(started, "no") == 0 ? DSH_STARTED_NO
                                            : DSH_STARTED_UNKNOWN;
  lua_getfield(L, 2, "exit_code");
  o->exited = !lua_isnil(L, -1);
  lua_pop(L, 1);
  o->exit_code = (int)ldsh_field_int(L, 2, "facts", "exit_code", 0);
  o->signal = (int)ldsh_field_int(L, 2, "facts", "signal", 0);
  o->runner_failed = ldsh_field_bool(L, 2, "facts", "runner_failed", false);
  o->n_denials = (size_t)ldsh_field_int(L, 2, "facts", "denials", 0);
  o->denials_known = ldsh_field_bool(L, 2, "facts", "denials_known", false);
  if (lua_getfield(L, 2, "stderr") != LUA_TNIL)
    o->err.text = luaL_checklstring(L, -1, &o->err.len);
  lua_pop(L, 1);
}

static int ldsh_classify(lua_State *L) {
  static const char *const started[] = {"unknown", "yes", "no"};
  struct dsh_plan plan;
  struct dsh_outcome o;
  struct dsh_verdict v;
  struct dsh_arena *a;
  memset(&plan, 0, sizeof plan);
  memset(&o, 0, sizeof o);
  lua_settop(L, 2);
  luaL_checktype(L, 1, LUA_TTABLE);
  a = ldsh_push_arena(L);
  plan.confined = ldsh_field_bool(L, 1, "record", "confined", false);
  ldsh_field_strv(L, 1, "record", "denial_signatures", a,
                  &plan.denial_signatures);
  read_rules(L, a, &plan);
  read_facts(L, &o);
  if (dsh_classify(a, &plan, &o, &v) != 0)
    return luaL_error(L, "out of memory");
  lua_createtable(L, 0, 5);
  lua_pushstring(L, started[v.started]);
  lua_setfield(L, -2, "started");
  lua_pushboolean(L, v.runner_failed);
  lua_setfield(L, -2, "runner_failed");
  lua_pushstring(L, v.detail);
  lua_setfield(L, -2, "detail");
  lua_pushboolean(L, v.denied);
  lua_setfield(L, -2, "denied");
  if (v.evidence != DSH_EVIDENCE_NONE) {
    lua_pushstring(L, v.evidence == DSH_EVIDENCE_RECORDS ? "records"
                                                         : "stderr");
    lua_setfield(L, -2, "evidence");
  }
  return 1;
}

/* --- roots --------------------------------------------------------------- */

static int resolve(lua_State *L, struct dsh_roots *roots,
                   struct dsh_error *err) {
  struct dsh_arena *a = ldsh_push_arena(L);
  struct dsh_policy policy;
  ldsh_check_policy(L, 1, a, &policy);
  if (dsh_policy_check(&policy, err) != 0)
    return -1;
  return dsh_roots_resolve(a, &policy, getenv("TMPDIR"), getenv("HOME"),
                           roots, err);
}

static int ldsh_roots(lua_State *L) {
  static const char *const origin[] = {"workspace", "tmp",          "tmpdir",
                                       "extra",     "private-temp", "shm"};
  struct dsh_roots roots;
  struct dsh_error err = {0};
  size_t i;
  lua_settop(L, 1);
  if (resolve(L, &roots, &err) != 0)
    return ldsh_fail(L, &err);
  lua_createtable(L, 0, 5);
  lua_pushstring(L, roots.workspace);
  lua_setfield(L, -2, "workspace");
  lua_createtable(L, (int)roots.n, 0);
  for (i = 0; i < roots.n; i++) {
    lua_createtable(L, 0, 2);
    lua_pushstring(L, roots.root[i].path);
    lua_setfield(L, -2, "path");
    lua_pushstring(L, origin[roots.root[i].origin]);
    lua_setfield(L, -2, "origin");
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
  lua_setfield(L, -2, "roots");
  push_list(L, &roots.protected_);
  lua_setfield(L, -2, "protected");
  push_list(L, &roots.refused);
  lua_setfield(L, -2, "refused");
  push_list(L, &roots.unprotectable);
  lua_setfield(L, -2, "unprotectable");
  return 1;
}

static int ldsh_writable(lua_State *L) {
  struct dsh_roots roots;
  struct dsh_error err = {0};
  const char *path = luaL_checkstring(L, 2), *why;
  lua_settop(L, 2);
  if (resolve(L, &roots, &err) != 0)
    return ldsh_fail(L, &err);
  lua_pushboolean(L, dsh_roots_writable(&roots, path, &why));
  lua_pushstring(L, why);
  return 2;
}

static int ldsh_control_add(lua_State *L) {
  struct dsh_error err;
  if (dsh_control_add(luaL_checkstring(L, 1), &err) != 0)
    return ldsh_fail(L, &err);
  lua_pushboolean(L, 1);
  return 1;
}

int ldsh_open_confine(lua_State *L) {
  static const luaL_Reg methods[] = {{"confine", provider_confine},
                                     {"probe", provider_probe},
                                     {"reprobe", provider_reprobe},
                                     {"close", provider_close},
                                     {NULL, NULL}};
  static const luaL_Reg meta[] = {
      {"__gc", provider_close}, {"__close", provider_close}, {NULL, NULL}};
  static const luaL_Reg functions[] = {{"provider", ldsh_provider_new},
                                       {"classify", ldsh_classify},
                                       {"roots", ldsh_roots},
                                       {"writable", ldsh_writable},
                                       {"control_add", ldsh_control_add},
                                       {NULL, NULL}};
  luaL_newmetatable(L, PROVIDER);
  luaL_setfuncs(L, meta, 0);
  luaL_newlib(L, methods);
  lua_setfield(L, -2, "__index");
  lua_pop(L, 1);
  luaL_newlib(L, functions);
  return 1;
}
