/* gen_seccomp.c: writes the seccomp programs as C arrays, at build time.
 *
 * usage: gen_seccomp > seccomp_programs.h
 *
 * From the table in src/syscalls.h it makes, per architecture and program, a
 * balanced search tree over system call numbers. Shape of a program:
 *
 *   load arch; not ours: kill
 *   load nr;   x32 bit: kill; newer than the table: ENOSYS
 *   binary search over the special numbers; no match: allow
 *   leaves: return, or look at an argument's low half (the kernel uses only
 *   32 bits of an ioctl request and of open's flags) and return
 *
 * Comparisons jump straight to one shared return per answer, so programs stay
 * short: the kernel checks and translates one at every start. Offsets have 8
 * bits; a program that outgrows them is an error here, at build time. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/syscalls.h"
#include "../src/uapi.h"

enum { MAX_CODE = 1024, MAX_CALLS = 64, MAX_LABELS = 256 };
/* Bits of open's flags that ask for writing or creating; the same on both
 * architectures: O_WRONLY O_RDWR O_CREAT O_TRUNC __O_TMPFILE. */
enum { OPEN_RDWR = 02, OPEN_WRITES = 01 | 02 | 0100 | 01000 | 020000000 };

/* Where a comparison goes on. NEXT is the following instruction; the others
 * are the shared returns; further labels are made as needed. */
enum label { NEXT, ALLOW, KILL, REFUSE, NEVER, NO_CALL, NOTIFY, FREE };

struct call {
  int nr;
  enum dsh_call_class class;
  int flags_arg; /* of open and openat */
};

struct insn {
  unsigned op;
  uint32_t k;
  int yes, no; /* labels */
};

struct code {
  struct insn at[MAX_CODE];
  unsigned n;
  unsigned place[MAX_LABELS]; /* instruction that a label names */
  int labels;
  enum dsh_program program;
};

static _Noreturn void die(const char *what) {
  fprintf(stderr, "gen_seccomp: %s\n", what);
  exit(1);
}

static void emit(struct code *c, unsigned op, uint32_t k, int yes, int no) {
  if (c->n == MAX_CODE)
    die("program too long");
  c->at[c->n++] = (struct insn){op, k, yes, no};
}

static int new_label(struct code *c) {
  if (c->labels == MAX_LABELS)
    die("too many labels");
  return c->labels++;
}

static void put_label(struct code *c, int label) {
  c->place[label] = c->n;
}

static void ret(struct code *c, int label, uint32_t action) {
  put_label(c, label);
  emit(c, DSH_BPF_RET, action, NEXT, NEXT);
}

static void load(struct code *c, unsigned offset) {
  emit(c, DSH_BPF_LD, offset, NEXT, NEXT);
}

static void load_arg(struct code *c, unsigned n) {
  load(c, 16 + 8 * n); /* low half first */
}

static bool read_only(enum dsh_program p) {
  return p <= DSH_PROGRAM_RO_OBSERVE;
}

static bool observed(enum dsh_program p) {
  return p == DSH_PROGRAM_RO_OBSERVE || p == DSH_PROGRAM_WS_OBSERVE;
}

static bool listens(enum dsh_program p) {
  return p != DSH_PROGRAM_RO_PLAIN && p != DSH_PROGRAM_WS_PLAIN;
}

/* What a metadata change is answered. */
static int meta(enum dsh_program p) {
  switch (p) {
  case DSH_PROGRAM_RO_PLAIN:
  case DSH_PROGRAM_RO_NOTIFY:
    return REFUSE;
  case DSH_PROGRAM_WS_PLAIN:
    return ALLOW;
  case DSH_PROGRAM_RO_OBSERVE:
  case DSH_PROGRAM_WS_NOTIFY:
  case DSH_PROGRAM_WS_OBSERVE:
    return NOTIFY;
  case DSH_PROGRAM_COUNT:
    break;
  }
  return KILL;
}

static void among(struct code *c, const uint32_t *k, size_t n, int label) {
  size_t i;
  for (i = 0; i < n; i++)
    emit(c, DSH_BPF_JEQ, k[i], label, NEXT);
}

static void leaf_ioctl(struct code *c) {
#define K(k) k,
  static const uint32_t terminal[] = {DSH_IOCTL_TIOCSTI, DSH_IOCTL_TIOCLINUX,
                                      DSH_IOCTLS_KEYMAP(K)};
  static const uint32_t attributes[] = {DSH_IOCTLS_META(K)};
  static const uint32_t never[] = {DSH_IOCTLS_NEVER(K)};
#undef K
  load_arg(c, 1);
  among(c, terminal, sizeof terminal / 4, NEVER);
  among(c, attributes, sizeof attributes / 4, meta(c->program));
  among(c, never, sizeof never / 4, read_only(c->program) ? REFUSE : NEVER);
  emit(c, DSH_BPF_JEQ, DSH_IOCTL_TIOCGPTPEER,
       listens(c->program) ? NOTIFY : ALLOW, ALLOW);
}

/* prlimit64 that sets something (args[2]) of somebody else (args[0]). */
static void leaf_limits(struct code *c) {
  load_arg(c, 0);
  emit(c, DSH_BPF_JEQ, 0, ALLOW, NEXT);
  load_arg(c, 2);
  emit(c, DSH_BPF_JEQ, 0, NEXT, NEVER);
  load(c, 16 + 8 * 2 + 4); /* the pointer's high half */
  emit(c, DSH_BPF_JEQ, 0, ALLOW, NEVER);
}

/* Observed: every open that asks for writing. Else, where there is a listener,
 * only what may be a terminal: read and write, nothing made or cut. */
static void leaf_open(struct code *c, int flags_arg) {
  load_arg(c, (unsigned)flags_arg);
  if (observed(c->program)) {
    emit(c, DSH_BPF_JSET, OPEN_WRITES, NOTIFY, ALLOW);
    return;
  }
  emit(c, DSH_BPF_AND, OPEN_WRITES, NEXT, NEXT);
  emit(c, DSH_BPF_JEQ, OPEN_RDWR, NOTIFY, ALLOW);
}

/* One call; the accumulator holds the number. */
static void leaf(struct code *c, const struct call *call) {
  uint32_t nr = (uint32_t)call->nr;
  switch (call->class) {
  case DSH_CALL_META:
    emit(c, DSH_BPF_JEQ, nr, meta(c->program), ALLOW);
    return;
  case DSH_CALL_META_NEW:
    emit(c, DSH_BPF_JEQ, nr, read_only(c->program) ? REFUSE : NO_CALL, ALLOW);
    return;
  case DSH_CALL_URING:
  case DSH_CALL_MOUNT:
  case DSH_CALL_QUEUE:
    emit(c, DSH_BPF_JEQ, nr, NEVER, ALLOW);
    return;
  case DSH_CALL_NAME:
    emit(c, DSH_BPF_JEQ, nr, NOTIFY, ALLOW);
    return;
  case DSH_CALL_IOCTL:
    emit(c, DSH_BPF_JEQ, nr, NEXT, ALLOW);
    leaf_ioctl(c);
    return;
  case DSH_CALL_LIMITS:
    emit(c, DSH_BPF_JEQ, nr, NEXT, ALLOW);
    leaf_limits(c);
    return;
  case DSH_CALL_OPEN:
    emit(c, DSH_BPF_JEQ, nr, NEXT, ALLOW);
    leaf_open(c, call->flags_arg);
    return;
  }
  die("a call without a class");
}

/* Calls [lo, hi), sorted by number. */
static void tree(struct code *c, const struct call *calls, int lo, int hi) {
  int right, mid = lo + (hi - lo) / 2;
  if (hi - lo == 1) {
    leaf(c, &calls[lo]);
    return;
  }
  right = new_label(c);
  emit(c, DSH_BPF_JGE, (uint32_t)calls[mid].nr, right, NEXT);
  tree(c, calls, lo, mid);
  put_label(c, right);
  tree(c, calls, mid, hi);
}

static int by_number(const void *a, const void *b) {
  return ((const struct call *)a)->nr - ((const struct call *)b)->nr;
}

/* The calls that this program does more with than allow. */
static int select_calls(struct call *calls, int arm, enum dsh_program p) {
  int n = 0;
#define ADD(name, x86, aarch, cls)                                           \
  if ((arm ? (aarch) : (x86)) >= 0 &&                                        \
      (DSH_CALL_##cls == DSH_CALL_OPEN   ? listens(p)                         \
       : DSH_CALL_##cls == DSH_CALL_NAME ? observed(p)                        \
                                         : true))                             \
    calls[n++] = (struct call){arm ? (aarch) : (x86), DSH_CALL_##cls,        \
                               strcmp(#name, "open") == 0 ? 1 : 2};
  DSH_SYSCALLS(ADD)
#undef ADD
  qsort(calls, (size_t)n, sizeof *calls, by_number);
  return n;
}

static void program(struct code *c, int arm, enum dsh_program p) {
  struct call calls[MAX_CALLS];
  int n = select_calls(calls, arm, p);
  c->n = 0;
  c->labels = FREE;
  c->program = p;
  load(c, 4); /* arch */
  emit(c, DSH_BPF_JEQ, arm ? DSH_AUDIT_AARCH64 : DSH_AUDIT_X86_64, NEXT, KILL);
  load(c, 0); /* nr */
  if (!arm)
    emit(c, DSH_BPF_JSET, 0x40000000u, KILL, NEXT); /* x32 */
  emit(c, DSH_BPF_JGT, DSH_NR_KNOWN, NO_CALL, NEXT);
  tree(c, calls, 0, n);
  ret(c, ALLOW, DSH_SECCOMP_ALLOW);
  ret(c, KILL, DSH_SECCOMP_KILL);
  ret(c, REFUSE, DSH_SECCOMP_ERRNO | EROFS);
  ret(c, NEVER, DSH_SECCOMP_ERRNO | EPERM);
  ret(c, NO_CALL, DSH_SECCOMP_ERRNO | ENOSYS);
  ret(c, NOTIFY, DSH_SECCOMP_NOTIFY);
}

static unsigned offset(const struct code *c, unsigned from, int label) {
  unsigned distance = label == NEXT ? 0 : c->place[label] - from - 1;
  if (distance > 255)
    die("a jump is too long");
  return distance;
}

static void print(const struct code *c, int p) {
  unsigned i;
  printf("static const struct dsh_bpf program_%d[] = {", p);
  for (i = 0; i < c->n; i++)
    printf("%s{0x%02x, %u, %u, 0x%08x},", i % 3 ? " " : "\n  ", c->at[i].op,
           offset(c, i, c->at[i].yes), offset(c, i, c->at[i].no),
           (unsigned)c->at[i].k);
  puts("\n};");
}

int main(void) {
  static struct code c;
  int arm, p;
  puts("/* Generated by gen_seccomp from src/syscalls.h. */");
  for (arm = 0; arm <= 1; arm++) {
    puts(arm ? "#elif defined __aarch64__" : "#if defined __x86_64__");
    for (p = 0; p < DSH_PROGRAM_COUNT; p++) {
      program(&c, arm, (enum dsh_program)p);
      print(&c, p);
    }
  }
  puts("#else\n#error \"no system call numbers for this architecture\"\n"
       "#endif");
  puts("static const struct dsh_bpf_prog programs[] = {");
  for (p = 0; p < DSH_PROGRAM_COUNT; p++)
    printf("  {sizeof program_%d / sizeof *program_%d, program_%d},\n", p, p,
           p);
  puts("};");
  return 0;
}
