//! libFuzzer's program for the target `call`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::targets::run("call", bytes));
