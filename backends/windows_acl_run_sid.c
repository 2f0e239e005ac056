/* windows_acl_run_sid.c: SHA-256 (FIPS 180-4) and the SIDs that paths get. */
#include <stdio.h>
#include <string.h>

#include "windows_acl_run.h"

static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
    0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
    0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
    0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
    0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
    0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turn(uint32_t x, int n) {
  return (x >> n) | (x << (32 - n));
}

static void block(uint32_t h[8], const uint8_t *p) {
  uint32_t w[64], v[8];
  int i;
  for (i = 0; i < 16; i++)
    w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
           (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
  for (; i < 64; i++) {
    uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + (turn(a, 7) ^ turn(a, 18) ^ (a >> 3)) + w[i - 7] +
           (turn(b, 17) ^ turn(b, 19) ^ (b >> 10));
  }
  memcpy(v, h, sizeof v);
  for (i = 0; i < 64; i++) {
    uint32_t e = v[4], a = v[0];
    uint32_t t1 = v[7] + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) +
                  ((e & v[5]) ^ (~e & v[6])) + K[i] + w[i];
    uint32_t t2 = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) +
                  ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
    memmove(v + 1, v, 7 * sizeof *v);
    v[4] += t1;
    v[0] = t1 + t2;
  }
  for (i = 0; i < 8; i++)
    h[i] += v[i];
}

void war_sha256(const void *data, size_t n, uint8_t out[32]) {
  uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                   0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const uint8_t *p = data;
  uint8_t tail[128] = {0};
  size_t left = n % 64, len = left < 56 ? 64 : 128, i;
  for (i = 0; i + 64 <= n; i += 64)
    block(h, p + i);
  memcpy(tail, p + i, left);
  tail[left] = 0x80;
  for (i = 0; i < 8; i++)
    tail[len - 1 - i] = (uint8_t)((uint64_t)n * 8 >> (8 * i));
  for (i = 0; i < len; i += 64)
    block(h, tail + i);
  for (i = 0; i < 32; i++)
    out[i] = (uint8_t)(h[i / 4] >> (24 - 8 * (i % 4)));
}

static size_t put(uint32_t c, char *out) {
  if (c < 0x80) {
    out[0] = (char)c;
    return 1;
  }
  if (c < 0x800) {
    out[0] = (char)(0xc0 | c >> 6);
    out[1] = (char)(0x80 | (c & 63));
    return 2;
  }
  if (c < 0x10000) {
    out[0] = (char)(0xe0 | c >> 12);
    out[1] = (char)(0x80 | (c >> 6 & 63));
    out[2] = (char)(0x80 | (c & 63));
    return 3;
  }
  out[0] = (char)(0xf0 | c >> 18);
  out[1] = (char)(0x80 | (c >> 12 & 63));
  out[2] = (char)(0x80 | (c >> 6 & 63));
  out[3] = (char)(0x80 | (c & 63));
  return 4;
}

size_t war_utf8(const war_char *s, size_t n, char *out, size_t cap) {
  size_t i, len = 0;
  for (i = 0; i < n; i++) {
    uint32_t c = (uint32_t)s[i];
    if (c >= 0xd800 && c < 0xdc00 && i + 1 < n && s[i + 1] >= 0xdc00 &&
        s[i + 1] < 0xe000) {
      c = 0x10000 + ((c - 0xd800) << 10) + ((uint32_t)s[i + 1] - 0xdc00);
      i++;
    }
    if (len + 4 > cap)
      return 0;
    len += put(c, out + len);
  }
  return len;
}

static uint32_t part(const uint8_t *p) {
  uint32_t v = p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
               (uint32_t)p[3] << 24;
  return v % ((1u << 30) - 1) + 1;
}

/* SHA-256 over prefix and path, as two numbers below 2^30. */
static int derive(const char *prefix, size_t n, const war_char *path,
                  const char *suffix, char out[WAR_SID_MAX]) {
  static char text[4 * WAR_PATH_MAX + 16];
  uint8_t sum[32];
  size_t len = war_length(path), bytes;
  memcpy(text, prefix, n);
  bytes = war_utf8(path, len, text + n, sizeof text - n);
  if (!bytes)
    return -1;
  war_sha256(text, n + bytes, sum);
  snprintf(out, WAR_SID_MAX, "S-1-4-%u-%u%s", (unsigned)part(sum),
           (unsigned)part(sum + 4), suffix);
  return 0;
}

int war_workspace_sid(const war_char *path, char out[WAR_SID_MAX]) {
  return derive("", 0, path, "", out);
}

int war_temp_sid(const war_char *path, char out[WAR_SID_MAX]) {
  return derive("temp", 5, path, "-1", out);
}
