//! Commands for developers: test, bench, arch, gen.

fn main() {}
