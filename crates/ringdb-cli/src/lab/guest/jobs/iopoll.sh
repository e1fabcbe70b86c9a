# shellcheck shell=bash disable=SC2154 # the prelude and the guest's init come before it
# Reads of one file of the emulated NVMe drive, one at a time, with completions polled for or not: how many interrupts came
# of each, and how often the kernel polled.
test=$(disk test)
mkfs.ext4 -q -F "$test" && mkdir /tmp/mnt && mount "$test" /tmp/mnt || exit 1
file=/tmp/mnt/file
dd if=/dev/zero of=$file bs=1M count=16 2>/dev/null && sync || exit 1
count nvme_poll || exit 1

# measure NAME COMMAND...: a line of JSON, with the reads that the drive finished.
measure() {
  local name=$1 status interrupts polls reads
  shift
  say "$name"
  interrupts=$(interrupts) polls=$(counted nvme_poll) reads=$(awk '{ print $1 }' "/sys/block/${test#/dev/}/stat")
  timeout 60 "$@" >/tmp/out 2>/tmp/err
  status=$?
  interrupts=$(($(interrupts) - interrupts)) polls=$(($(counted nvme_poll) - polls))
  reads=$(($(awk '{ print $1 }' "/sys/block/${test#/dev/}/stat") - reads))
  echo "{\"name\": \"$name\", \"status\": $status, \"reads\": $reads, \"interrupts\": $interrupts, \"polls\": $polls," \
    "\"said\": $(cat /tmp/err /tmp/out | tail -n 3 | cut -c 1-300 | quoted)}" >>/tmp/results/rows.json
}
fio() { command fio --name=x --rw=randread --bs=4k --size=16m --number_ios=2000 --output-format=terse "$@"; }
fio_read() { fio --filename=$file --direct=1 --ioengine=io_uring "$@"; }
# A raw drive, by commands of NVMe.
fio_command() { fio --filename="/dev/ng${test#/dev/nvme}" --ioengine=io_uring_cmd --cmd_type=nvme "$@"; }
export -f fio fio_read fio_command
export file test
ringdb_read() { ./ringdb fileperf --filename $file --size 16m --direct --runtime 500ms --warmup 0 --io "$1" --json /tmp/rows; }
export -f ringdb_read

measure "fio io_uring" bash -c fio_read
measure "fio io_uring hipri" bash -c 'fio_read --hipri'
measure "fio io_uring_cmd" bash -c fio_command
measure "fio io_uring_cmd hipri" bash -c 'fio_command --hipri'
for uri in 'io_uring?queue_always' 'io_uring?iopoll' 'io_uring?iopoll&fixed_buffers' 'io_uring?iopoll&hybrid_iopoll'; do
  measure "ringdb $uri" bash -c "ringdb_read '$uri'"
done
