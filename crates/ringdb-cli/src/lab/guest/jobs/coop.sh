# shellcheck shell=bash disable=SC2154 # the prelude and the guest's init come before it
# A submitter on the CPU that serves its queue's interrupts, and on one that shares that queue; it computes between
# submissions, so that completions come while it runs. What the kernel does to tell it of them, by kind of task work.
drive=$(disk test)
name=${drive#/dev/}
mkfs.ext4 -q -F "$drive" && mkdir /tmp/mnt && mount "$drive" /tmp/mnt || exit 1
file=/tmp/mnt/file
dd if=/dev/zero of=$file bs=1M count=16 2>/dev/null && sync || exit 1
for function in kick_process wake_up_state; do count $function || exit 1; done

# The first queue with more CPUs than one: that of its interrupt, and another.
for queue in /sys/block/"$name"/mq/*; do
  cpus=$(tr -d ' ' <"$queue/cpu_list")
  [[ $cpus == *,* ]] || continue
  irq=$(awk -v q="${name%n1}q$((${queue##*/} + 1))" '$NF == q { sub(":", "", $1); print $1 }' /proc/interrupts)
  on=$(cat "/proc/irq/$irq/effective_affinity_list")
  for cpu in ${cpus//,/ }; do [ "$cpu" = "$on" ] || off=$cpu; done
  break
done
if [ -z "${on:-}" ] || [ -z "${off:-}" ]; then
  echo "no queue is shared by CPUs" >&2
  exit 1
fi
echo "{\"cpus\": \"$cpus\", \"on\": $on, \"off\": $off}" >/tmp/results/places.json

# Reschedule interrupts that a CPU got.
reschedules() { awk -v c="$1" '$1 == "RES:" { print $(c + 2) }' /proc/interrupts; }
reads() { awk '{ print $1 }' "/sys/block/$name/stat"; }
# measure PLACE CPU DEPTH WHAT OPTIONS: a line of JSON.
measure() {
  local reschedules kicks wakes reads status=0
  say "$4 at depth $3, $1 the interrupt's CPU"
  reschedules=$(reschedules "$2") kicks=$(counted kick_process) wakes=$(counted wake_up_state) reads=$(reads)
  timeout 60 taskset -c "$2" ./ringdb fileperf --filename $file --size 16m --direct --iodepth "$3" --think-us 200 \
    --runtime 2s --warmup 0 --io "io_uring?queue_always&$5" --json /tmp/rows >/tmp/out 2>&1 || status=$?
  echo "{\"place\": \"$1\", \"depth\": $3, \"what\": \"$4\", \"status\": $status, \"reads\": $(($(reads) - reads))," \
    "\"reschedules\": $(($(reschedules "$2") - reschedules)), \"kicks\": $(($(counted kick_process) - kicks))," \
    "\"wakes\": $(($(counted wake_up_state) - wakes)), \"said\": $(tail -n 1 /tmp/out | cut -c 1-200 | quoted)}" \
    >>/tmp/results/rows.json
}
plain='coop_taskrun=off&defer_taskrun=off&single_issuer=off'
for place in off on; do
  for depth in 1 16; do
    measure $place "${!place}" $depth default "$plain"
    measure $place "${!place}" $depth coop 'coop_taskrun&defer_taskrun=off&single_issuer=off'
    measure $place "${!place}" $depth defer 'single_issuer&defer_taskrun'
  done
done
