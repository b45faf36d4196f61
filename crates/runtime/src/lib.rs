//! What every daemon needs once: a clock, tasks that join on shutdown, logs, files written whole.
//!
//! Reading order: [`clock`], [`tasks`], [`telemetry`], [`files`], [`metrics`], [`tls`].

pub mod clock;
pub mod files;
pub mod metrics;
pub mod tasks;
pub mod telemetry;
pub mod tls;
