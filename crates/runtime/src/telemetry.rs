//! Logs: one line per event on standard error, filtered by level.

use tracing_subscriber::EnvFilter;

/// Starts logging; `filter` is a level (`info`) or directives (`info,landfall_store=debug`). Once per process.
pub fn start_logs(filter: &str) -> Result<(), LogsError> {
    let filter = EnvFilter::try_new(filter).map_err(LogsError::Filter)?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .try_init()
        .map_err(|_| LogsError::Twice)
}

/// Why logging did not start.
#[derive(Debug, thiserror::Error)]
pub enum LogsError {
    /// The filter could not be understood.
    #[error("the log filter is not valid (try `info` or `debug`)")]
    Filter(#[source] tracing_subscriber::filter::ParseError),
    /// Logging runs already.
    #[error("logs were started already")]
    Twice,
}
