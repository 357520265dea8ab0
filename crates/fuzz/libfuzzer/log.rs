//! libFuzzer's program for the target `log`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::targets::run("log", bytes));
