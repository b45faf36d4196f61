//! See `landfall_fuzz::api::protobuf`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| landfall_fuzz::api::protobuf(data));
