#!/bin/sh
# power_cut.sh GUEST CUTS: a guest that appends to a session log loses its
# power (its qemu is killed) CUTS times; after each, what was acknowledged
# must be there. GUEST is an unpacked Debian linux-image package (boot/ and
# lib/modules/). Prints a line for each cut; exit 1 when something was lost.
guest=$1 cuts=$2
cd "$(dirname "$0")/../.." || exit 2
B=${DSH_BUILD:-build}
work=$(mktemp -d "${TMPDIR:-/tmp}/dshsh-power.XXXXXX") || exit 2
qemu=
trap '[ -z "$qemu" ] || kill -9 "$qemu" 2>/dev/null; rm -rf "$work"' EXIT
kernel=$(ls "$guest"/boot/vmlinuz-* | head -1)
root=$work/root
mkdir -p "$root/bin" "$root/m" "$root/proc" "$root/dev"
${CC:-cc} -std=c11 -D_GNU_SOURCE -Isrc -static -pthread -o "$root/writer" \
  spec/c/power_writer.c "$B/libdsh.a" -lzstd -ljansson 2>/dev/null || exit 2
cp "$(command -v busybox)" "$root/bin/busybox"
for m in virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev \
  virtio_pci virtio_blk; do
  f=$(find "$guest/lib/modules" -name "$m.ko" | head -1)
  [ -z "$f" ] || { cp "$f" "$root/$m.ko" && echo "insmod /$m.ko"; }
done >"$work/insmod"
{
  echo '#!/bin/busybox sh'
  echo '/bin/busybox --install -s /bin; mount -t devtmpfs none /dev'
  cat "$work/insmod"
  echo 'mount -t ext4 /dev/vda /m && exec /writer /m/d/session.jsonl.zstd'
  echo 'echo lost mount; sleep 9'
} >"$root/init"
chmod 755 "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/initrd"
mke2fs -q -t ext4 "$work/disk" 32M || exit 2

promised=0 lost=0 i=0
while [ $i -lt "$cuts" ]; do
  i=$((i + 1))
  : >"$work/out"
  qemu-system-x86_64 -accel tcg -m 256 -display none -monitor none \
    -no-reboot -kernel "$kernel" -initrd "$work/initrd" \
    -append 'console=ttyS0 quiet panic=-1' -serial "file:$work/out" \
    -drive "file=$work/disk,format=raw,if=virtio,cache=writeback" \
    </dev/null >/dev/null 2>&1 &
  qemu=$!
  n=0
  until grep -qE '^(ack|lost|failed)' "$work/out" || [ $n -ge 600 ]; do
    sleep 0.1
    n=$((n + 1))
  done
  # somewhere in the midst of appends: 0 to 1.5 s of them
  sleep "$(awk -v i=$i 'BEGIN { srand(i); printf "%.3f", rand() * 1.5 }')"
  kill -9 "$qemu"
  wait "$qemu" 2>/dev/null
  qemu=
  had=$(tr -d '\r' <"$work/out" | sed -n 's/^had \([0-9]*\)$/\1/p' | head -1)
  acked=$(tr -d '\r' <"$work/out" | sed -n 's/^ack \([0-9]*\)$/\1/p' | tail -1)
  echo "cut $i: promised $promised, found ${had:-nothing}, then" \
    "promised ${acked:-nothing}"
  if [ -z "$had" ] || [ "$had" -lt $promised ]; then
    lost=1
    grep -E '^(lost|failed)' "$work/out"
  fi
  [ -z "$acked" ] || promised=$acked
done
exit $lost
