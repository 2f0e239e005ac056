/* loggen.c FILE MEGABYTES FRAMES LAST: writes a session log of made-up agent
 * work for the figures. LAST: frames from the end to the one frame that holds
 * a mode switch; 0: none. Without fsync: this is not how a log is written. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

enum { WORDS = 1500, TEXT_MAX = 1 << 20 };

static uint64_t seed = 88172645463325252u;
static char words[WORDS][12];
static char text[TEXT_MAX];
static size_t len;
static long long seq;

static unsigned draw(unsigned n) {
  seed ^= seed << 13;
  seed ^= seed >> 7;
  seed ^= seed << 17;
  return (unsigned)(seed >> 33) % n;
}

static void make_words(void) {
  int i, j;
  for (i = 0; i < WORDS; i++) {
    int n = 2 + (int)draw(9);
    for (j = 0; j < n; j++)
      words[i][j] = "etaoinshrdlucmfwypvbgkqjxz"[draw(26) * draw(26) / 26];
  }
}

static void put(const char *s) {
  size_t n = strlen(s);
  memcpy(text + len, s, n);
  len += n;
}

static void prose(unsigned n) {
  while (n--) {
    put(words[draw(WORDS) * draw(WORDS) / WORDS * draw(WORDS) / WORDS]);
    put(n % 11 == 0 ? "\\n" : n % 37 == 0 ? "\\\"" : " ");
    if (draw(400) == 0)
      put("\xe2\x80\x94 \xc3\xa9t\xc3\xa9 ");
  }
}

static void close_line(void) {
  len += (size_t)sprintf(text + len, ",\"seq\":%lld,\"time\":%lld}\n", seq,
                         1785304900000 + seq * 37);
  seq++;
}

static void chunk(void) {
  put("{\"type\":\"assistant/chunk\",\"data\":{\"turn\":1,\"step\":1,"
      "\"chunk\":{\"type\":\"text-delta\",\"index\":0,\"text\":\"");
  prose(1 + draw(4));
  put("\"}}");
  close_line();
}

static void packed(void) {
  unsigned n = 8 + draw(40), i;
  len += (size_t)sprintf(text + len,
                         "{\"type\":\"text-chunks\",\"seq0\":%lld,"
                         "\"time0\":%lld,"
                         "\"data\":{\"turn\":1,\"step\":1,\"index\":0,\"dt\":[",
                         seq, 1785304900000 + seq * 37);
  for (i = 0; i + 1 < n; i++)
    len += (size_t)sprintf(text + len, i ? ",%u" : "%u", 10 + draw(60));
  put("],\"texts\":[");
  for (i = 0; i < n; i++) {
    put(i ? ",\"" : "\"");
    prose(1 + draw(2));
    put("\"");
  }
  put("]}}\n");
  seq += n;
}

static void result(void) {
  put("{\"type\":\"tool/result\",\"data\":{\"turn\":1,\"step\":2,\"message\":{"
      "\"source\":{\"kind\":\"tool\",\"callId\":\"call_00_IUUvbNiPcnwhVL8E\"},"
      "\"content\":[{\"type\":\"tool-result\",\"content\":[{\"type\":\"text\","
      "\"text\":\"");
  prose(60 + draw(200));
  put("\"}],\"isError\":false}],\"role\":\"user\"}},\"surfaceOp\":\"append\"");
  close_line();
}

static void mode(void) {
  put("{\"type\":\"sandbox/mode\",\"data\":{\"mode\":\"workspace-write\"}");
  close_line();
}

static int frame(FILE *f, ZSTD_CCtx *c) {
  static char out[TEXT_MAX + (TEXT_MAX >> 4)];
  size_t n = ZSTD_compress2(c, out, sizeof out, text, len);
  len = 0;
  return !ZSTD_isError(n) && fwrite(out, 1, n, f) == n;
}

int main(int argc, char **argv) {
  long mb = argc == 5 ? atol(argv[2]) : 0, frames = mb ? atol(argv[3]) : 0, i;
  long last = mb ? atol(argv[4]) : 0;
  size_t total = 0, want = frames ? (size_t)(mb * 1000000 / frames) : 0;
  FILE *f = frames ? fopen(argv[1], "wb") : NULL;
  ZSTD_CCtx *c = ZSTD_createCCtx();
  int ok = f && c;
  if (ok)
    ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1);
  make_words();
  put("{\"type\":\"session\",\"version\":0,\"id\":\"bench\",\"createdAt\":1,"
      "\"cwd\":\"/home/dev/project\",\"delegationDepth\":0}\n");
  ok = ok && frame(f, c);
  for (i = 0; ok && i < frames; i++) {
    while (len + total < want * (size_t)(i + 1)) {
      unsigned kind = draw(10);
      (kind < 5 ? chunk : kind < 8 ? packed : result)();
    }
    if (!len)
      chunk();
    if (last && i == frames - last)
      mode();
    total += len;
    ok = frame(f, c);
  }
  ZSTD_freeCCtx(c);
  return f && fclose(f) == 0 && ok ? 0 : 1;
}
