/* lua_dsh.h: shared by the lua_*.c files, the only ones that see Lua.
 *
 * dsh.core is one C module. Each lua_X.c registers one sub-table by
 * `int ldsh_open_X(lua_State *L)`, which leaves that table on the stack, and
 * is listed once in lua_core.c. A Lua function dsh.core.x.y is ldsh_x_y here
 * and dsh_x_y in C.
 *
 * Failures of the environment return nil, err (ldsh_fail); misuse raises.
 * Userdata is created closed, then the resource is opened into it; close,
 * __gc and __close are one idempotent function. */
#ifndef LUA_DSH_H
#define LUA_DSH_H

#include <lauxlib.h>
#include <lua.h>

#include "dsh.h"

/* Pushes the error record {code, message, stage, errno?, errno_name?, path?},
 * whose tostring is "CODE: message". */
void ldsh_push_error(lua_State *L, const struct dsh_error *err);
/* Pushes nil, err and returns 2. */
int ldsh_fail(lua_State *L, const struct dsh_error *err);

/* Field readers over the table at idx. `what` is the table's name for the
 * message: "policy.mode: expected string, got table". A string with a NUL
 * byte is refused. The optional ones return the default on nil. Returned
 * strings stay valid while the table holds them; copy to keep. */
const char *ldsh_field_string(lua_State *L, int idx, const char *what,
                              const char *field, bool required);
int64_t ldsh_field_int(lua_State *L, int idx, const char *what,
                       const char *field, int64_t dflt);
bool ldsh_field_bool(lua_State *L, int idx, const char *what,
                     const char *field, bool dflt);
/* A sequence of strings without holes into list (copied to the arena). */
void ldsh_field_strv(lua_State *L, int idx, const char *what,
                     const char *field, struct dsh_arena *a,
                     struct dsh_strv *list);
/* Raises "what.key: unknown field" for a key that is not in the NULL
 * terminated list. */
void ldsh_check_fields(lua_State *L, int idx, const char *what,
                       const char *const *known);

/* Reads a policy table {mode, workspace_root, session_id?, extra_roots?,
 * protected?, temp?, temp_dir?} into p; raises for misuse. */
void ldsh_check_policy(lua_State *L, int idx, struct dsh_arena *a,
                       struct dsh_policy *p);

/* An arena as userdata, so that a raise frees it: pushed on the stack. */
struct dsh_arena *ldsh_push_arena(lua_State *L);

/* Of lua_replay.c: pushes a table of a fold; adds a log's facts to it. */
struct dsh_fold;
struct dsh_log_info;
void ldsh_push_fold(lua_State *L, const struct dsh_fold *f);
void ldsh_push_info(lua_State *L, const struct dsh_log_info *info);

#endif
