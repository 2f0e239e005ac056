/* lua_term.c: dsh.core.term, the prompt's hold on terminals.
 *
 * A session is a pseudo-terminal and two pipes for one confined shell:
 *
 *   our side                    the shell's side
 *   master   <------------->    slave (its 1, 2 and terminal)
 *   command  -------------->    its standard input: what to evaluate
 *   reply    <--------------    status and directory after each command
 *
 * The confined tree never has the real terminal: it can neither write to it
 * while a question is shown nor push input into it. relay() copies between
 * the two until the shell has replied. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "lua_dsh.h"
#include "lua_term.h"

enum {
  CHUNK = 16384,
  REPLY_MAX = 4 << 20, /* a dump of a shell's whole state */
  ANSWER_MAX = 256
};

static const char session_name[] = "dsh.term.session";

/* --- the real terminal --------------------------------------------------- */

/* The modes found at start, put back by whatever ends us. One per process,
 * as the terminal is. */
static struct termios first_modes;
static volatile sig_atomic_t have_modes;
static int winch_pipe[2] = {-1, -1};

static void on_fatal(int sig) {
  if (have_modes)
    tcsetattr(0, TCSANOW, &first_modes);
  signal(sig, SIG_DFL);
  raise(sig);
}

static void on_winch(int sig) {
  int saved = errno;
  ssize_t n = write(winch_pipe[1], "w", 1);
  (void)n;
  (void)sig;
  errno = saved;
}

static void keep_modes(void) {
  static const int fatal[] = {SIGTERM, SIGHUP, SIGQUIT};
  size_t i;
  if (have_modes || tcgetattr(0, &first_modes) != 0)
    return;
  have_modes = 1;
  for (i = 0; i < sizeof fatal / sizeof *fatal; i++)
    signal(fatal[i], on_fatal);
}

static void watch_size(void) {
  struct sigaction sa;
  if (winch_pipe[0] < 0 && pipe2(winch_pipe, O_CLOEXEC | O_NONBLOCK) != 0)
    return;
  memset(&sa, 0, sizeof sa);
  sa.sa_handler = on_winch;
  sa.sa_flags = SA_RESTART;
  sigaction(SIGWINCH, &sa, NULL);
}

static void set_raw(void) {
  struct termios t;
  if (tcgetattr(0, &t) != 0)
    return;
  cfmakeraw(&t);
  tcsetattr(0, TCSADRAIN, &t);
}

static void set_cooked(void) {
  if (have_modes)
    tcsetattr(0, TCSADRAIN, &first_modes);
}

static int write_all(int fd, const char *s, size_t n) {
  while (n > 0) {
    ssize_t k = write(fd, s, n);
    if (k < 0 && errno == EAGAIN) {
      struct pollfd p = {fd, POLLOUT, 0};
      poll(&p, 1, 1000);
      continue;
    }
    if (k < 0 && errno != EINTR)
      return -1;
    if (k > 0) {
      s += k;
      n -= (size_t)k;
    }
  }
  return 0;
}

/* --- a session ----------------------------------------------------------- */

struct session {
  int master, slave;         /* owned */
  int cmd_in, cmd_out;       /* owned: ours to write, the shell's to read */
  int reply_in, reply_out;   /* owned: ours to read, the shell's to write */
  bool silent;               /* the tree's output is dropped */
};

static void close_one(int *fd) {
  if (*fd >= 0)
    close(*fd);
  *fd = -1;
}

static int session_close(lua_State *L) {
  struct session *s = luaL_checkudata(L, 1, session_name);
  close_one(&s->master);
  close_one(&s->slave);
  close_one(&s->cmd_in);
  close_one(&s->cmd_out);
  close_one(&s->reply_in);
  close_one(&s->reply_out);
  return 0;
}

static struct session *session_check(lua_State *L) {
  struct session *s = luaL_checkudata(L, 1, session_name);
  luaL_argcheck(L, s->master >= 0, 1, "closed session");
  return s;
}

int ldsh_term_master(lua_State *L, int idx) {
  struct session *s = luaL_testudata(L, idx, session_name);
  return s ? s->master : -1;
}

static int make_pty(struct session *s) {
  char name[128];
  s->master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (s->master < 0 || grantpt(s->master) != 0 || unlockpt(s->master) != 0 ||
      ptsname_r(s->master, name, sizeof name) != 0)
    return -1;
  s->slave = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (s->slave < 0)
    return -1;
  return fcntl(s->master, F_SETFL, O_RDWR | O_NONBLOCK);
}

static int make_pipes(struct session *s) {
  int p[2];
  if (pipe2(p, O_CLOEXEC) != 0)
    return -1;
  s->cmd_out = p[0];
  s->cmd_in = p[1];
  if (pipe2(p, O_CLOEXEC) != 0)
    return -1;
  s->reply_in = p[0];
  s->reply_out = p[1];
  return fcntl(s->reply_in, F_SETFL, O_NONBLOCK);
}

/* The pty takes the real terminal's size and modes, where there is one. */
static void copy_shape(struct session *s) {
  struct winsize w;
  struct termios t;
  if (ioctl(0, TIOCGWINSZ, &w) == 0 && w.ws_col)
    ioctl(s->master, TIOCSWINSZ, &w);
  if (tcgetattr(0, &t) == 0)
    tcsetattr(s->slave, TCSANOW, have_modes ? &first_modes : &t);
}

/* session(): a new one, or nil, err. */
static int term_session(lua_State *L) {
  struct session *s = lua_newuserdatauv(L, sizeof *s, 0);
  struct dsh_error err = {0};
  s->master = s->slave = s->cmd_in = s->cmd_out = -1;
  s->reply_in = s->reply_out = -1;
  s->silent = false;
  luaL_setmetatable(L, session_name);
  keep_modes();
  watch_size();
  if (make_pty(s) == 0 && make_pipes(s) == 0) {
    copy_shape(s);
    return 1;
  }
  dsh_fail(&err, DSH_E_IO, errno, "terminal", "cannot open a terminal");
  return ldsh_fail(L, &err);
}

/* s:fds(): the shell's descriptors: slave, command, reply. */
static int session_fds(lua_State *L) {
  struct session *s = session_check(L);
  lua_pushinteger(L, s->slave);
  lua_pushinteger(L, s->cmd_out);
  lua_pushinteger(L, s->reply_out);
  return 3;
}

/* s:started(): the shell has its ends; drop ours, so that its end is seen. */
static int session_started(lua_State *L) {
  struct session *s = session_check(L);
  close_one(&s->cmd_out);
  close_one(&s->reply_out);
  return 0;
}

/* s:send(text): true, or false when the shell is gone. A SIGPIPE of ours is
 * taken back, the signal's disposition is nobody's but the process's. */
static int session_send(lua_State *L) {
  struct session *s = session_check(L);
  size_t n;
  const char *text = luaL_checklstring(L, 2, &n);
  struct timespec zero = {0, 0};
  sigset_t only, old;
  int rc;
  sigemptyset(&only);
  sigaddset(&only, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &only, &old);
  rc = write_all(s->cmd_in, text, n);
  if (rc != 0 && errno == EPIPE)
    while (sigtimedwait(&only, NULL, &zero) < 0 && errno == EINTR)
      continue;
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  lua_pushboolean(L, rc == 0);
  return 1;
}

/* s:silence(flag): drop (true) or show what the tree writes. */
static int session_silence(lua_State *L) {
  session_check(L)->silent = lua_toboolean(L, 2);
  return 0;
}

/* --- relay --------------------------------------------------------------- */

struct relay {
  struct session *s;
  luaL_Buffer *reply;
  size_t got;
  int fields, want; /* NUL bytes seen and awaited */
  bool input, ended;
};

/* Output of the tree to the real terminal; false at the end of it. */
static bool relay_output(struct relay *r) {
  char buf[CHUNK];
  ssize_t n = read(r->s->master, buf, sizeof buf);
  if (n > 0 && !r->s->silent)
    write_all(1, buf, (size_t)n);
  return n > 0;
}

static void relay_input(struct relay *r) {
  char buf[CHUNK];
  ssize_t n = read(0, buf, sizeof buf);
  if (n > 0)
    write_all(r->s->master, buf, (size_t)n);
  else if (n == 0 || errno != EINTR)
    r->input = false;
}

static void relay_reply(struct relay *r) {
  char buf[CHUNK];
  ssize_t i, n = read(r->s->reply_in, buf, sizeof buf);
  if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) ||
      r->got > REPLY_MAX)
    r->ended = true;
  if (n <= 0)
    return;
  for (i = 0; i < n; i++)
    r->fields += buf[i] == '\0';
  r->got += (size_t)n;
  luaL_addlstring(r->reply, buf, (size_t)n);
}

static void relay_size(struct relay *r) {
  char buf[64];
  struct winsize w;
  while (read(winch_pipe[0], buf, sizeof buf) > 0)
    continue;
  if (ioctl(0, TIOCGWINSZ, &w) == 0)
    ioctl(r->s->master, TIOCSWINSZ, &w); /* SIGWINCH goes to its foreground */
}

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void relay_loop(struct relay *r, int64_t deadline) {
  while (r->fields < r->want && !r->ended) {
    struct pollfd p[4] = {{r->s->master, POLLIN, 0},
                          {r->s->reply_in, POLLIN, 0},
                          {winch_pipe[0], POLLIN, 0},
                          {r->input ? 0 : -1, POLLIN, 0}};
    int64_t left = deadline < 0 ? -1 : deadline - now_ms();
    if (deadline >= 0 && left <= 0)
      return;
    if (poll(p, 4, (int)(left > 60000 ? 60000 : left)) < 0)
      continue;
    if (p[2].revents)
      relay_size(r);
    if (p[3].revents)
      relay_input(r);
    if (p[0].revents && !relay_output(r) && p[0].revents & POLLHUP)
      r->ended = true;
    if (p[1].revents)
      relay_reply(r);
  }
  while (relay_output(r))
    continue;
}

/* s:relay(fields, timeout_ms?, input?): copies until the shell has replied
 * with so many NUL terminated fields. The reply's bytes; or nil, "ended" when
 * the shell is gone, nil, "timeout". input: the terminal is the command's. */
static int session_relay(lua_State *L) {
  struct relay r = {.s = session_check(L)};
  lua_Integer timeout = luaL_optinteger(L, 3, -1);
  bool input = lua_toboolean(L, 4);
  luaL_Buffer b;
  r.want = (int)luaL_checkinteger(L, 2);
  r.input = input && isatty(0);
  luaL_buffinit(L, &b);
  r.reply = &b;
  if (r.input)
    set_raw();
  relay_loop(&r, timeout < 0 ? -1 : now_ms() + timeout);
  if (input)
    set_cooked();
  luaL_pushresult(&b);
  if (r.fields >= r.want)
    return 1;
  lua_pushnil(L);
  lua_pushstring(L, r.ended ? "ended" : "timeout");
  return 2;
}

/* s:typed_ahead(): what was typed and not read by the command. */
static int session_typed_ahead(lua_State *L) {
  struct session *s = session_check(L);
  struct termios t, raw;
  char buf[4096];
  int waiting = 0;
  ssize_t n = 0;
  if (s->slave < 0 || tcgetattr(s->slave, &t) != 0)
    return 0;
  raw = t;
  raw.c_lflag &= ~(tcflag_t)ICANON;
  raw.c_cc[VMIN] = 0;
  raw.c_cc[VTIME] = 0;
  tcsetattr(s->slave, TCSANOW, &raw);
  if (ioctl(s->slave, FIONREAD, &waiting) == 0 && waiting > 0)
    n = read(s->slave, buf, sizeof buf);
  tcsetattr(s->slave, TCSANOW, &t);
  lua_pushlstring(L, buf, n > 0 ? (size_t)n : 0);
  return 1;
}

/* s:sane(): a program that died in raw mode leaves echo, lines and signals
 * switched off: switch them on again. */
static int session_sane(lua_State *L) {
  struct session *s = session_check(L);
  struct termios t;
  const tcflag_t lflags = ICANON | ECHO | ISIG | IEXTEN;
  if (s->slave < 0 || tcgetattr(s->slave, &t) != 0)
    return 0;
  if ((t.c_lflag & lflags) != lflags || !(t.c_iflag & ICRNL) ||
      !(t.c_oflag & OPOST)) {
    t.c_lflag |= lflags;
    t.c_iflag |= ICRNL;
    t.c_oflag |= OPOST;
    tcsetattr(s->slave, TCSANOW, &t);
  }
  return 0;
}

/* --- questions ----------------------------------------------------------- */

/* sync(ms): asks the terminal for its status and drops everything that comes
 * before the answer, so that neither typing ahead nor a reply that a command
 * provoked can answer a question. True if the terminal answered. */
static int term_sync(lua_State *L) {
  int64_t deadline = now_ms() + luaL_optinteger(L, 1, 200);
  static const char answer[] = "\033[0n";
  char c;
  size_t at = 0;
  if (!isatty(0) || !isatty(1))
    return 0;
  set_raw();
  tcflush(0, TCIFLUSH);
  write_all(1, "\033[5n", 4);
  while (at < sizeof answer - 1) {
    struct pollfd p = {0, POLLIN, 0};
    int64_t left = deadline - now_ms();
    if (left <= 0 || poll(&p, 1, (int)left) < 0 || !p.revents ||
        read(0, &c, 1) != 1)
      break;
    at = c == answer[at] ? at + 1 : c == answer[0];
  }
  tcflush(0, TCIFLUSH);
  set_cooked();
  lua_pushboolean(L, at == sizeof answer - 1);
  return 1;
}

/* answer(): one line from the terminal, outside any history; nil at Ctrl-C or
 * Ctrl-D. Ctrl-C is a line end here, so that it cannot end us. */
static int term_answer(lua_State *L) {
  struct termios t;
  char buf[ANSWER_MAX];
  ssize_t n;
  if (tcgetattr(0, &t) != 0)
    return 0;
  keep_modes();
  t.c_lflag |= ICANON | ECHO | ECHOE | ECHOK;
  t.c_lflag &= ~(tcflag_t)ISIG;
  t.c_iflag |= ICRNL;
  t.c_oflag |= OPOST;
  t.c_cc[VEOL] = 3;
  tcsetattr(0, TCSADRAIN, &t);
  do
    n = read(0, buf, sizeof buf);
  while (n < 0 && errno == EINTR);
  set_cooked();
  if (n <= 0 || buf[n - 1] != '\n')
    return 0;
  lua_pushlstring(L, buf, (size_t)n - 1);
  return 1;
}

/* write(text): to the terminal at once, whatever stdio has buffered first. */
static int term_write(lua_State *L) {
  size_t n;
  const char *s = luaL_checklstring(L, 1, &n);
  write_all(1, s, n);
  return 0;
}

/* width(text): columns that the text takes; -1 with a control character. */
static int term_width(lua_State *L) {
  lua_pushinteger(L, ldsh_term_width(luaL_checkstring(L, 1)));
  return 1;
}

static const luaL_Reg session_methods[] = {
    {"fds", session_fds},         {"started", session_started},
    {"send", session_send},       {"silence", session_silence},
    {"relay", session_relay},     {"typed_ahead", session_typed_ahead},
    {"sane", session_sane},       {"close", session_close},
    {NULL, NULL},
};

static const luaL_Reg term_functions[] = {
    {"session", term_session}, {"sync", term_sync},
    {"answer", term_answer},   {"write", term_write},
    {"width", term_width},     {NULL, NULL},
};

int ldsh_open_term(lua_State *L);

int ldsh_open_term(lua_State *L) {
  if (luaL_newmetatable(L, session_name)) {
    luaL_newlib(L, session_methods);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, session_close);
    lua_setfield(L, -2, "__gc");
    lua_pushcfunction(L, session_close);
    lua_setfield(L, -2, "__close");
  }
  lua_pop(L, 1);
  luaL_newlib(L, term_functions);
  return 1;
}
