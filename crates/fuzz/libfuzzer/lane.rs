//! libFuzzer's program for the target `lane`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::targets::run("lane", bytes));
