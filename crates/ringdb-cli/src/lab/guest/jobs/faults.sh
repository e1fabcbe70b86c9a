# shellcheck shell=bash disable=SC2154 # the prelude and the guest's init come before it
# A device that fails under a writing store, or is slow; then it is whole again, and what was acknowledged must be there.
# Past the file system's end, on the disk itself, the writer says what is durable. FS, IO.
test=$(disk test)
mib=320
export DM_DISABLE_UDEV=1
modprobe -a dm-mod dm-flakey dm-delay || exit 1
[ "$FS" = ext4 ] || modprobe "$FS" || exit 1
mkdir /tmp/mnt

table() { echo "0 $((mib * 2048)) $*"; }
exchange() { dmsetup suspend --noflush --nolockfs store && dmsetup load store --table "$(table "$@")" && dmsetup resume store; }
# What is tried: the target under the store, and how the writer is to end.
target() {
  case $1 in
  writes) echo "flakey $test 0 0 1000 1 error_writes" ;; # flushes are writes, too
  all) echo "flakey $test 0 0 1000" ;;
  slow) echo "delay $test 0 20" ;;
  esac
}
writer() { ./tests write /tmp/mnt/store "$test" $((mib << 20)) "$IO" "$1" "$2" >/tmp/out 2>&1; }

# fault DURABILITY NAME: a line of JSON.
fault() {
  local status=0 checked=0
  say "$2 on $FS, $1"
  dd if=/dev/zero of="$test" bs=1M seek=$mib count=1 conv=notrunc oflag=direct 2>/dev/null
  dmsetup create store --table "$(table "linear $test 0")" || return 1
  "mkfs.$FS" -q "$3" /dev/mapper/store && mount -t "$FS" /dev/mapper/store /tmp/mnt || return 1
  if [ "$2" = slow ]; then
    # shellcheck disable=SC2046 # words
    exchange $(target slow) || return 1
    export -f writer
    export test mib
    timeout 200 bash -c "writer $1 60" || status=$?
  else
    writer "$1" 1000000 &
    sleep 8
    # shellcheck disable=SC2046 # words
    exchange $(target "$2") || return 1
    for ((i = 0; i < 60; i++)); do
      kill -0 $! 2>/dev/null || break
      sleep 1
    done
    if kill -9 $! 2>/dev/null; then status=124; else wait $! || status=$?; fi
  fi
  umount /tmp/mnt
  exchange linear "$test" 0 || return 1
  mount -t "$FS" /dev/mapper/store /tmp/mnt || return 1
  timeout 60 ./tests check /tmp/mnt/store "$test" $((mib << 20)) "$IO" "$1" >/tmp/found 2>/tmp/check || checked=$?
  umount /tmp/mnt && dmsetup remove store || return 1
  echo "{\"fault\": \"$2\", \"durability\": \"$1\", \"status\": $status, \"said\": $(head -n 3 /tmp/out | cut -c 1-300 | quoted)," \
    "\"checked\": $checked, \"counts\": $(grep . /tmp/found || echo null)," \
    "\"why\": $(head -n 3 /tmp/check | cut -c 1-300 | quoted)}" >>/tmp/results/rows.json
}
force=-F
[ "$FS" = ext4 ] || force=-f
for durability in sync process; do
  for name in writes all slow; do fault $durability $name $force || exit 1; done
done
