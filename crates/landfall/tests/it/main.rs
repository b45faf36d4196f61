//! The binary as its users meet it: started as a process, spoken to by unmodified clients.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(clippy::print_stdout, reason = "what a test prints is shown when it fails")]

mod clusters;
mod compare;
mod echo;
mod edge_options;
mod edges;
mod faults;
mod federation;
mod hard;
mod members;
mod playground;
mod publish;
mod readme;
mod support;
mod vips;
