# shellcheck shell=bash disable=SC2154 # the prelude and the guest's init come before it
# A store writes on a disk that logs each write and flush. Past the file system's end it says there what is durable.
# FS, IO, DURABILITY, BATCHES of each of three writers in each of LIVES, MISTAKE: a rule that is broken, or nothing.
test=$(disk test)
mib=320
case $FS in
ext4) mkfs.ext4 -q -F -E nodiscard "$test" ${mib}m ;;
xfs) modprobe xfs && mkfs.xfs -q -f -K -d size=${mib}m "$test" ;;
btrfs) modprobe btrfs && mkfs.btrfs -q -f -K -b ${mib}m "$test" ;;
*) false ;;
esac || exit 1
mkdir /tmp/mnt && mount -t "$FS" "$test" /tmp/mnt && sync || exit 1
for ((life = 1; life <= LIVES; life++)); do
  say "life $life of $LIVES on $FS"
  ./tests write /tmp/mnt/store "$test" $((mib << 20)) "$IO" "$DURABILITY" "$BATCHES" ${MISTAKE:+"$MISTAKE"} || exit 1
done
ls -l /tmp/mnt/store
umount /tmp/mnt && sync
