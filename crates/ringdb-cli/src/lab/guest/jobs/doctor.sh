# shellcheck shell=bash disable=SC2154 # the prelude and the guest's init come before it
# `ringdb doctor` on ext4 on the emulated NVMe drive.
mkfs.ext4 -q -F "$(disk test)" && mkdir /tmp/mnt && mount "$(disk test)" /tmp/mnt || exit 1
./ringdb doctor --dir /tmp/mnt --json >/tmp/results/doctor.json
