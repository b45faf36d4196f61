//! What every daemon needs once: a clock, tasks that join on shutdown, logs, files written whole, how much memory there is.
//!
//! Reading order: [`clock`], [`tasks`], [`telemetry`], [`files`], [`memory`], [`metrics`], [`tls`].

pub mod clock;
pub mod files;
pub mod memory;
pub mod metrics;
pub mod tasks;
pub mod telemetry;
pub mod tls;
