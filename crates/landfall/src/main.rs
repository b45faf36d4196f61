//! The binary: command line and composition only.

fn main() {}
