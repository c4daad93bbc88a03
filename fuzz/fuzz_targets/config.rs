#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ctrlrun_fuzz::readers::config(bytes));
