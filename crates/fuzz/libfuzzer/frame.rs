//! libFuzzer's program for the target `frame`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::targets::run("frame", bytes));
