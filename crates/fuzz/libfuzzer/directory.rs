//! libFuzzer's program for the target `directory`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::targets::run("directory", bytes));
