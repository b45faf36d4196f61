//! See `landfall_fuzz::api::time`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| landfall_fuzz::api::time(data));
