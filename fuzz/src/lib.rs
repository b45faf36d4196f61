//! What the fuzz targets do, one module per crate under test.

pub mod api;
pub mod dns;
pub mod lane;
