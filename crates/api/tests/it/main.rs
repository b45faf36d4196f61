//! What the crate promises its users, from outside.

mod tables;
