//! libFuzzer's program for the target `superblock`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::targets::run("superblock", bytes));
