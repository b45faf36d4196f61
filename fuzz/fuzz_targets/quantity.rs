//! See `landfall_fuzz::api::quantity`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| landfall_fuzz::api::quantity(data));
