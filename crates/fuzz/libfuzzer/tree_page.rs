//! libFuzzer's program for the target `tree_page`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::targets::run("tree_page", bytes));
