//! The API crate as the other crates use it.

mod decode;
mod walk;
