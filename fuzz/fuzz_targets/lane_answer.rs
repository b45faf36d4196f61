//! See `landfall_fuzz::lane::answer`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| landfall_fuzz::lane::answer(data));
