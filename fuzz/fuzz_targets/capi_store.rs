//! See `capi_store` of crates/fuzz-targets.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_targets::run("capi_store", data));
