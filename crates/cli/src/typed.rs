//! What was typed, as it was understood.

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, Error};

use crate::arguments::Arguments;

/// Options whose values may be secrets: only what is before the `=` is repeated.
const SECRETIVE: [&str; 2] = ["store_options", "from_store_options"];

/// Every parameter of the command that was typed, a line each, with the value that it has and where that is from.
pub(crate) fn parameters(matches: &ArgMatches) -> Vec<String> {
    let mut whole = Arguments::command();
    whole.build();
    let (mut grammar, mut matches) = (&whole, matches);
    let mut name = format!("bathyal {}", env!("CARGO_PKG_VERSION"));
    while let Some((command, inner)) = matches.subcommand() {
        let Some(found) = grammar.find_subcommand(command) else { break };
        (grammar, matches) = (found, inner);
        name += &format!(" {command}");
    }
    let mut lines = vec![name];
    for arg in grammar.get_arguments().filter(|arg| !arg.is_hide_set()) {
        let id = arg.get_id().as_str();
        let Ok(Some(values)) = matches.try_get_raw(id) else { continue };
        let values: Vec<String> = values.map(|value| shown(id, &value.to_string_lossy())).collect();
        let from = match matches.value_source(id) {
            Some(ValueSource::DefaultValue) => "default",
            Some(ValueSource::EnvVariable) => "environment",
            _ => "given",
        };
        // A switch that was not thrown.
        if values != ["false"] {
            lines.push(format!("  {id:<18} {} ({from})", values.join(", ")));
        }
    }
    lines
}

fn shown(id: &str, value: &str) -> String {
    match value.split_once('=') {
        Some((key, _)) if SECRETIVE.contains(&id) => format!("{key}=..."),
        _ => value.to_owned(),
    }
}

/// What the parser complains of, without its colours and the usage that it adds: the first paragraphs.
pub(crate) fn sentence(error: &Error) -> String {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand
    ) {
        return "no command was given; `bathyal --help` lists them".to_owned();
    }
    let rendered = error.render().to_string();
    let text = rendered.strip_prefix("error: ").unwrap_or(&rendered);
    let end = ["\n\nUsage:", "\n\nFor more information"].iter().filter_map(|end| text.find(end)).min();
    let words = text[..end.unwrap_or(text.len())].split_whitespace();
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(line: &str) -> Vec<String> {
        parameters(&Arguments::command().try_get_matches_from(line.split(' ')).unwrap())
    }

    #[test]
    fn parameters_are_told_with_their_source_and_without_secrets() {
        let lines = told("bathyal search s3://b/i q.fbin -k 7 --store-option secret_access_key=hush --warm");
        let has = |part: &str| lines.iter().any(|line| line.contains(part));
        assert!(has("search") && has("7 (given)") && has("file (default)"), "{lines:?}");
        assert!(has("secret_access_key=... (given)") && !has("hush"), "{lines:?}");
        assert!(has("warm ") && !has("phases"), "{lines:?}");
    }

    #[test]
    fn complaints_are_one_line() {
        let refused = |line: &str| {
            sentence(&Arguments::command().try_get_matches_from(line.split_whitespace()).unwrap_err())
        };
        assert!(refused("bathyal").contains("no command was given"));
        let text = refused("bathyal search idx q.fbin -k 0");
        assert!(text.starts_with("invalid value '0' for '--k") && !text.contains("Usage"), "{text}");
        assert!(refused("bathyal polish").starts_with("unrecognized subcommand 'polish'"));
    }
}
