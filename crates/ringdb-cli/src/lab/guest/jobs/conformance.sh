# shellcheck shell=bash disable=SC2154 # the prelude and the guest's init come before it
# engineswap's conformance suite, then a store on each engine, on ext4 and others.
# REQUIRED: the engines that the kernel has to have; FORBIDDEN: where io_uring is forbidden by sysctl.
test=$(disk test)
mkdir -p "$TESTS_TMP" && mkfs.ext4 -q -F "$test" && mount "$test" "$TESTS_TMP" || exit 1
modprobe -a loop xfs btrfs || exit 1
if [ "${FORBIDDEN:-}" ]; then echo 2 >/proc/sys/kernel/io_uring_disabled || exit 1; fi
say "conformance"
# The simulated disk is the same on every kernel.
ENGINESWAP_TEST_REQUIRE="$REQUIRED,tmpfs,target,ext4,xfs,btrfs" ./tests "[posix" "[libaio" "[io_uring" 2>&1 |
  tee /tmp/results/conformance.txt | while read -r line; do case $line in *" ms"*) say "$line" ;; esac; done
echo "${PIPESTATUS[0]}" >/tmp/results/conformance.status
if [ "${FORBIDDEN:-}" ]; then
  ./ringdb put --db "$TESTS_TMP/none" --io io_uring apple red >/dev/null 2>/tmp/results/forbidden.txt
  echo $? >/tmp/results/forbidden.status
fi
store() {
  ./ringdb bench --db "$1" --io "$2" --num 3000 --threads 2 \
    --workloads fillrandom,fillsync,overwrite,deleterandom,flush,compact,readrandom,seekrandom,readseq --json /tmp/bench &&
    ./ringdb put --db "$1" --io "$2" --durability sync apple red && [ "$(./ringdb get --db "$1" --io "$2" apple)" = red ] &&
    ./ringdb verify --db "$1" --io "$2"
}
for io in ${REQUIRED//,/ }; do
  say "a store on $io"
  store "$TESTS_TMP/db-$io" "$io" >"/tmp/store" 2>&1
  echo "{\"io\": \"$io\", \"status\": $?, \"said\": $(tail -n 2 /tmp/store | cut -c 1-300 | quoted)}" >>/tmp/results/stores.json
done
say "a store on auto"
store "$TESTS_TMP/db-auto" auto >"/tmp/store" 2>&1
echo "{\"io\": \"auto\", \"status\": $?, \"said\": $(tail -n 2 /tmp/store | cut -c 1-300 | quoted)}" >>/tmp/results/stores.json
