# shellcheck shell=bash
# What the scripts of jobs share. `disk` is of the guest's init.
set -uo pipefail
./ringdb --version >/dev/null || exit 99
say() { echo "@@ $*" >/dev/console; }

# Interrupts of the queues of NVMe drives, without those of commands to the drive itself.
interrupts() {
  awk -v n="$(nproc)" '/nvme[0-9]+q[1-9]/ { for (i = 2; i < 2 + n; i++) sum += $i } END { print sum + 0 }' /proc/interrupts
}

# Counts calls of a function of the kernel from now on: count NAME; counted NAME.
count() {
  echo "p:$1 $1" >>/sys/kernel/tracing/kprobe_events && echo 1 >"/sys/kernel/tracing/events/kprobes/$1/enable"
}
counted() { awk -v name="$1" '$1 == name { print $2 }' /sys/kernel/tracing/kprobe_profile; }

# A text as a string of JSON.
quoted() { { cat; echo; } | tr -d '\r' | tr '\n\t' '  ' | tr -cd ' -~' | sed 's/\\/\\\\/g; s/"/\\"/g; s/^/"/; s/ *$/"/'; }
