/* power_writer.c LOG: inside a guest that loses its power. Verifies what is
 * there ("had N" or "lost WHY"), then appends for ever, saying "ack N" after
 * each append that was acknowledged: N events are promised then. */
#include <stdio.h>
#include <unistd.h>

#include "logwrite.h"

#define HEADER                                                               \
  "{\"type\":\"session\",\"version\":0,\"id\":\"s\",\"createdAt\":1,"        \
  "\"delegationDepth\":0}"

int main(int argc, char **argv) {
  struct dsh_log_info info = {0};
  struct dsh_event ev = {"x", "{\"text\":\"words that were promised\"}",
                         false};
  struct dsh_error err = {0};
  struct dsh_fold fold;
  struct dsh_writer *w;
  int64_t seq;
  if (argc != 2)
    return 2;
  setvbuf(stdout, NULL, _IONBF, 0);
  if (access(argv[1], F_OK) == 0) {
    w = dsh_writer_open(argv[1], &fold, &info, &err);
    if (w)
      dsh_fold_free(&fold);
  } else {
    w = dsh_writer_create(argv[1], HEADER, &err);
  }
  if (!w) {
    printf("lost %s\n", err.message);
    return 1;
  }
  printf("had %llu\n", (unsigned long long)info.events);
  while (dsh_writer_append(w, &ev, 1, &seq, &err) == 0)
    printf("ack %lld\n", (long long)seq + 1);
  printf("failed %s\n", err.message);
  return 1;
}
