/* lua_edit.c: dsh.core.edit, line editing and history by libedit.
 *
 *   local e = edit.open(complete)
 *   e:read(prompt, session?)  -> line | nil, "eof" | nil, "interrupt"
 *   e:remember(line)             adds to the history of this process
 *   e:push(text)                 as if typed
 *   e:mode("emacs" | "vi")       whose keys
 *
 * complete(line, cursor) is called at Tab and returns how many characters
 * before the cursor to replace, the text for them, and a text to show below
 * (or nil). It runs inside the editor: it must not read from the terminal.
 * While a line is edited, output of the session's background jobs is shown
 * above it. */
#include <errno.h>
#include <histedit.h>
#include <locale.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "lua_dsh.h"
#include "lua_term.h"

enum { HISTORY_SIZE = 5000, PROMPT_MAX = 1024, SHOWN_MAX = 65536 };

static const char editor_name[] = "dsh.edit";

struct editor {
  EditLine *el; /* owned; NULL: closed */
  History *history; /* owned */
  lua_State *L;     /* while reading */
  int master;       /* of the session, or -1 */
  bool interrupted;
  char prompt[PROMPT_MAX];
  mbstate_t decode;
};

static int width_of(const char *s) {
  mbstate_t st;
  int columns = 0;
  size_t left = strlen(s);
  memset(&st, 0, sizeof st);
  while (left > 0) {
    wchar_t c;
    size_t n = mbrtowc(&c, s, left, &st);
    int w;
    if (n == 0 || n > left)
      return -1;
    w = wcwidth(c);
    if (w < 0)
      return -1;
    columns += w;
    s += n;
    left -= n;
  }
  return columns;
}

/* Independent of the process's locale, which is Lua's "C" at first. */
int ldsh_term_width(const char *s) {
  static locale_t utf8;
  locale_t old;
  int columns;
  if (!utf8)
    utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
  if (!utf8)
    return width_of(s);
  old = uselocale(utf8);
  columns = width_of(s);
  uselocale(old);
  return columns;
}

static struct editor *editor_of(EditLine *el) {
  struct editor *e = NULL;
  el_get(el, EL_CLIENTDATA, &e);
  return e;
}

static char *editor_prompt(EditLine *el) {
  return editor_of(el)->prompt;
}

/* Output of background jobs, above the line being edited. */
static void show_background(struct editor *e) {
  char buf[4096];
  ssize_t n, total = 0;
  bool newline = true;
  while (total < SHOWN_MAX && (n = read(e->master, buf, sizeof buf)) > 0) {
    if (total == 0 && write(1, "\r\033[K", 4) < 0)
      return;
    if (write(1, buf, (size_t)n) < 0)
      return;
    newline = buf[n - 1] == '\n';
    total += n;
  }
  if (total == 0)
    e->master = -1; /* its end */
  if (total > 0 && !newline && write(1, "\r\n", 2) < 0)
    return;
  if (total > 0)
    el_set(e->el, EL_REFRESH);
}

/* EL_GETCFN: one character; meanwhile background output is shown. */
static int editor_getc(EditLine *el, wchar_t *out) {
  struct editor *e = editor_of(el);
  for (;;) {
    struct pollfd p[2] = {{0, POLLIN, 0}, {e->master, POLLIN, 0}};
    char c;
    size_t n;
    ssize_t got;
    if (poll(p, 2, -1) < 0 && errno != EINTR)
      return -1;
    if (p[1].revents)
      show_background(e);
    if (!p[0].revents)
      continue;
    got = read(0, &c, 1);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return (int)got;
    n = mbrtowc(out, &c, 1, &e->decode);
    if (n == (size_t)-2)
      continue;
    if (n == (size_t)-1) { /* not UTF-8: the byte is dropped */
      memset(&e->decode, 0, sizeof e->decode);
      continue;
    }
    return 1;
  }
}

static unsigned char editor_interrupt(EditLine *el, int ch) {
  (void)ch;
  editor_of(el)->interrupted = true;
  return CC_EOF;
}

/* Replaces `n` characters before the cursor by the string at the top. */
static void editor_replace(EditLine *el, lua_State *L, int n) {
  const char *text = lua_tostring(L, -1);
  if (n > 0)
    el_deletestr(el, n);
  if (text && *text)
    el_insertstr(el, text);
}

static unsigned char editor_complete(EditLine *el, int ch) {
  struct editor *e = editor_of(el);
  lua_State *L = e->L;
  const LineInfo *line = el_line(el);
  unsigned char answer = CC_REFRESH;
  int top = lua_gettop(L);
  (void)ch;
  lua_rawgetp(L, LUA_REGISTRYINDEX, e);
  lua_pushlstring(L, line->buffer, (size_t)(line->lastchar - line->buffer));
  lua_pushinteger(L, line->cursor - line->buffer);
  if (lua_pcall(L, 2, 3, 0) != LUA_OK) {
    lua_settop(L, top);
    return CC_ERROR;
  }
  if (lua_isstring(L, -1)) {
    fputs("\n", stdout);
    fputs(lua_tostring(L, -1), stdout);
    fflush(stdout);
    answer = CC_REDISPLAY;
  }
  lua_pop(L, 1);
  editor_replace(el, L, (int)lua_tointeger(L, -2));
  lua_settop(L, top);
  return answer;
}

static int editor_close(lua_State *L) {
  struct editor *e = luaL_checkudata(L, 1, editor_name);
  if (e->el)
    el_end(e->el);
  if (e->history)
    history_end(e->history);
  e->el = NULL;
  e->history = NULL;
  lua_pushnil(L);
  lua_rawsetp(L, LUA_REGISTRYINDEX, e);
  return 0;
}

static struct editor *editor_check(lua_State *L) {
  struct editor *e = luaL_checkudata(L, 1, editor_name);
  luaL_argcheck(L, e->el, 1, "closed editor");
  return e;
}

static void editor_bind(EditLine *el) {
  el_set(el, EL_BIND, "^I", "dsh-complete", NULL);
  el_set(el, EL_BIND, "^C", "dsh-interrupt", NULL);
  el_set(el, EL_BIND, "^R", "em-inc-search-prev", NULL);
  el_set(el, EL_BIND, "\033[3~", "ed-delete-next-char", NULL);
  el_set(el, EL_BIND, "\033[1~", "ed-move-to-beg", NULL);
  el_set(el, EL_BIND, "\033[4~", "ed-move-to-end", NULL);
  el_set(el, EL_BIND, "\033[H", "ed-move-to-beg", NULL);
  el_set(el, EL_BIND, "\033[F", "ed-move-to-end", NULL);
  el_set(el, EL_BIND, "\033[1;5C", "em-next-word", NULL);
  el_set(el, EL_BIND, "\033[1;5D", "ed-prev-word", NULL);
}

static void editor_set_up(struct editor *e) {
  HistEvent ev;
  history(e->history, &ev, H_SETSIZE, (int)HISTORY_SIZE);
  history(e->history, &ev, H_SETUNIQUE, 1);
  el_set(e->el, EL_CLIENTDATA, e);
  el_set(e->el, EL_EDITOR, "emacs");
  el_set(e->el, EL_SIGNAL, 1);
  el_set(e->el, EL_HIST, history, e->history);
  el_set(e->el, EL_PROMPT_ESC, editor_prompt, '\1');
  el_set(e->el, EL_GETCFN, editor_getc);
  el_set(e->el, EL_ADDFN, "dsh-complete", "complete", editor_complete);
  el_set(e->el, EL_ADDFN, "dsh-interrupt", "drop line", editor_interrupt);
  editor_bind(e->el);
  /* Ctrl-C and Ctrl-Z are characters while a line is edited. */
  el_set(e->el, EL_SETTY, "-d", "-isig", NULL);
}

/* open(complete): an editor on the process's own terminal. */
static int edit_open(lua_State *L) {
  struct editor *e;
  luaL_checktype(L, 1, LUA_TFUNCTION);
  e = lua_newuserdatauv(L, sizeof *e, 0);
  memset(e, 0, sizeof *e);
  e->master = -1;
  luaL_setmetatable(L, editor_name);
  if (!setlocale(LC_CTYPE, "") || MB_CUR_MAX == 1)
    setlocale(LC_CTYPE, "C.UTF-8");
  e->history = history_init();
  e->el = el_init("dshsh", stdin, stdout, stderr);
  if (!e->el || !e->history)
    return luaL_error(L, "cannot start the line editor");
  lua_pushvalue(L, 1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, e);
  editor_set_up(e);
  return 1;
}

static int editor_read(lua_State *L) {
  struct editor *e = editor_check(L);
  const char *prompt = luaL_checkstring(L, 2), *line;
  int n = 0;
  snprintf(e->prompt, sizeof e->prompt, "%s", prompt);
  e->master = ldsh_term_master(L, 3);
  e->L = L;
  e->interrupted = false;
  memset(&e->decode, 0, sizeof e->decode);
  line = el_gets(e->el, &n);
  e->L = NULL;
  e->master = -1;
  if (e->interrupted) {
    lua_pushnil(L);
    lua_pushliteral(L, "interrupt");
    return 2;
  }
  if (!line || n <= 0) {
    lua_pushnil(L);
    lua_pushliteral(L, "eof");
    return 2;
  }
  if (line[n - 1] == '\n')
    n--;
  lua_pushlstring(L, line, (size_t)n);
  return 1;
}

static int editor_remember(lua_State *L) {
  struct editor *e = editor_check(L);
  HistEvent ev;
  history(e->history, &ev, H_ENTER, luaL_checkstring(L, 2));
  return 0;
}

/* e:mode("emacs" | "vi"): whose keys. */
static int editor_mode(lua_State *L) {
  static const char *const modes[] = {"emacs", "vi", NULL};
  struct editor *e = editor_check(L);
  el_set(e->el, EL_EDITOR, modes[luaL_checkoption(L, 2, NULL, modes)]);
  editor_bind(e->el);
  return 0;
}

static int editor_push(lua_State *L) {
  el_push(editor_check(L)->el, luaL_checkstring(L, 2));
  return 0;
}

static const luaL_Reg editor_methods[] = {
    {"read", editor_read}, {"remember", editor_remember},
    {"push", editor_push}, {"mode", editor_mode},
    {"close", editor_close}, {NULL, NULL},
};

int ldsh_open_edit(lua_State *L);

int ldsh_open_edit(lua_State *L) {
  if (luaL_newmetatable(L, editor_name)) {
    luaL_newlib(L, editor_methods);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, editor_close);
    lua_setfield(L, -2, "__gc");
  }
  lua_pop(L, 1);
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, edit_open);
  lua_setfield(L, -2, "open");
  return 1;
}
