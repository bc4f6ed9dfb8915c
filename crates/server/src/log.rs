//! The log of a server, on standard error.

use crate::failure::ServerError;
use tracing_subscriber::filter::LevelFilter;

/// Logs to standard error from now on: everything of `level` (`error`, `warn`, `info`, `debug`, `trace`,
/// `off`) and above, as lines of text or as JSON.
///
/// # Errors
/// [`ServerError::Option`] for an unknown level, and if this process has a log already.
pub fn install_log(level: &str, as_json: bool) -> Result<(), ServerError> {
    let level: LevelFilter = level.parse().map_err(|_| {
        let levels = "error, warn, info, debug, trace or off";
        ServerError::Option(format!("{level:?} is no level of a log; choose {levels}"))
    })?;
    let builder = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr);
    let installed = match as_json {
        true => builder.json().try_init(),
        false => builder.with_ansi(false).try_init(),
    };
    installed.map_err(|error| ServerError::Option(format!("the log cannot be started: {error}")))
}
