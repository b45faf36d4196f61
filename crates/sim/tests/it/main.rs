//! Simulated members as their users see them: through kubectl, with an agent that makes every pod run at once.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod backbone;
mod distance;
mod kinds;
mod lab;
mod nodes;
mod scale;
mod workloads;
mod world;
