#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bathyal_fuzz::run("requests", input));
