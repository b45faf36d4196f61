//! What every daemon needs once: telemetry, tasks that join on shutdown, clock, files written whole.
