/* replay.c: runs a fuzz target over its stored corpus, as a plain test.
 * spec/fuzz/corpus/NAME/ belongs to fuzz_NAME. Each input is given exactly,
 * without a NUL byte added, in a block of its own so that a read past its
 * end is seen by the sanitizers. */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int one(const char *path) {
  FILE *f = fopen(path, "rb");
  uint8_t *buf;
  long n;
  if (!f)
    return -1;
  fseek(f, 0, SEEK_END);
  n = ftell(f);
  rewind(f);
  buf = malloc(n > 0 ? (size_t)n : 1);
  if (!buf || n < 0 || fread(buf, 1, (size_t)n, f) != (size_t)n) {
    free(buf);
    fclose(f);
    return -1;
  }
  fclose(f);
  LLVMFuzzerTestOneInput(buf, (size_t)n);
  free(buf);
  return 0;
}

int main(int argc, char **argv) {
  const char *base = strrchr(argv[0], '/');
  char dir[512], path[1024];
  int n = 1, failed = 0;
  struct dirent *e;
  DIR *d;
  base = base ? base + 1 : argv[0];
  if (strncmp(base, "fuzz_", 5) == 0)
    base += 5;
  snprintf(dir, sizeof dir, "spec/fuzz/corpus/%s", argc > 1 ? argv[1] : base);
  LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
  d = opendir(dir);
  if (d) {
    while ((e = readdir(d))) {
      if (e->d_name[0] == '.')
        continue;
      snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
      n++;
      if (one(path) != 0) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        failed++;
      }
    }
    closedir(d);
  }
  if (failed)
    printf("[  FAILED  ] %d test(s), unreadable inputs\n", failed);
  printf("[  PASSED  ] %d test(s).\n", n - failed);
  return failed != 0;
}
