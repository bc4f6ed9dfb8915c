//! Options of a command from a file: its names are those of the command line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use bathyal_console::Failure;
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory};
use toml::Value;

use crate::arguments::CommandLine;

/// The option that names the file.
const CONFIG: &str = "config";
/// The argument without a name of its own on the command line.
const DATA: &str = "data";

/// Adds the options of the file of `--config` to a command line, except those that the command line or the
/// environment gives. Returns `None` if the command has no such file.
///
/// # Errors
/// A failure of usage for a file that cannot be read, for an unknown name and for a value of another type.
pub(crate) fn configured(line: &[OsString], matches: &ArgMatches) -> Result<Option<Vec<OsString>>, Failure> {
    let Some((command, inner)) = matches.subcommand() else { return Ok(None) };
    let Ok(Some(path)) = inner.try_get_one::<PathBuf>(CONFIG) else { return Ok(None) };
    let refuse = |reason: String| Failure::usage(format!("--config {}: {reason}", path.display()));
    let table = read(path)?;
    let grammar = CommandLine::command();
    let Some(grammar) = grammar.find_subcommand(command) else { return Ok(None) };
    let mut whole = line.to_vec();
    for (name, value) in &table {
        let option = grammar.get_arguments().find(|option| {
            let is_named = option.get_long() == Some(name);
            (is_named || (option.get_id() == DATA && name == DATA)) && name != CONFIG
        });
        let Some(option) = option else {
            return Err(refuse(format!(
                "there is no option {name:?}; `bathyal {command} --help` lists all, without the --"
            )));
        };
        let source = inner.value_source(option.get_id().as_str());
        if matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable)) {
            continue;
        }
        let takes_value = option.get_action().takes_values();
        let words = match value {
            Value::Boolean(given) if !takes_value => vec![None; usize::from(*given)],
            Value::Array(values) if takes_value => values.iter().map(text_of).map(Some).collect::<Vec<_>>(),
            Value::Boolean(_) | Value::Table(_) | Value::Datetime(_) | Value::Array(_) => {
                let wanted = if takes_value { "a text or a number" } else { "true or false" };
                return Err(refuse(format!("{name} is {value}; expected {wanted}")));
            }
            _ if !takes_value => {
                return Err(refuse(format!("{name} is {value}; expected true or false")));
            }
            value => vec![Some(text_of(value))],
        };
        for word in words {
            if option.get_long().is_some() {
                let assigned = word.map(|word| format!("--{name}={word}"));
                whole.push(assigned.unwrap_or_else(|| format!("--{name}")).into());
            } else {
                whole.extend(word.map(OsString::from));
            }
        }
    }
    Ok(Some(whole))
}

fn read(path: &Path) -> Result<toml::Table, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::usage(format!("--config {}: cannot read the file: {error}", path.display()))
    })?;
    text.parse().map_err(|error: toml::de::Error| {
        Failure::usage(format!("--config {}: {}", path.display(), error.message()))
    })
}

/// Returns a value as it is written on the command line.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
