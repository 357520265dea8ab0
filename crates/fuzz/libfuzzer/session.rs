//! libFuzzer's program for the target `session`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::targets::run("session", bytes));
