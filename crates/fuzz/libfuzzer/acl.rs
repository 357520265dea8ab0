//! libFuzzer's program for the target `acl`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::targets::run("acl", bytes));
