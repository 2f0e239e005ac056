/* lua_term.h: what the line editor takes from the terminal part. */
#ifndef LUA_TERM_H
#define LUA_TERM_H

#include <lua.h>

/* The master descriptor of the session at idx, or -1. */
int ldsh_term_master(lua_State *L, int idx);
/* Columns of UTF-8 text; -1 with a control character or broken bytes. */
int ldsh_term_width(const char *s);

#endif
