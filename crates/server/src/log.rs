//! The log of a server, on standard error.

use crate::failure::ServerError;
use tracing_subscriber::EnvFilter;

/// Logs to standard error from now on: what `filter` names, as lines of text or as JSON.
///
/// # Errors
/// [`ServerError::Option`] for a filter that cannot be parsed, and if this process has a log already.
pub fn install_log(filter: &str, as_json: bool) -> Result<(), ServerError> {
    let filter: EnvFilter = filter
        .parse()
        .map_err(|error| ServerError::Option(format!("{filter:?} is no filter of a log: {error}")))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let installed = match as_json {
        true => builder.json().try_init(),
        false => builder.with_ansi(false).try_init(),
    };
    installed.map_err(|error| ServerError::Option(format!("the log cannot be started: {error}")))
}
