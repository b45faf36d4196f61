//! See `landfall_fuzz::dns::packet`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| landfall_fuzz::dns::packet(data));
