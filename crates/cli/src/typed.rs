//! The parsed parameters, and the errors of the parser, as text.

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, Error};

use crate::arguments::CommandLine;

/// Options whose values may be secrets: only the key before the `=` is printed.
const SECRET: [&str; 2] = ["store_options", "from_store_options"];

/// Returns a line for each parameter of the command, with its value and the source of the value.
pub(crate) fn parameters(matches: &ArgMatches) -> Vec<String> {
    let mut whole = CommandLine::command();
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
        // Flags that were not given are left out.
        if values != ["false"] {
            lines.push(format!("  {id:<18} {} ({from})", values.join(", ")));
        }
    }
    lines
}

fn shown(id: &str, value: &str) -> String {
    match value.split_once('=') {
        Some((key, _)) if SECRET.contains(&id) => format!("{key}=..."),
        _ => value.to_owned(),
    }
}

/// Returns the message of a parser's error: its first paragraphs, without colours and usage.
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

    fn lines_of(line: &str) -> Vec<String> {
        parameters(&CommandLine::command().try_get_matches_from(line.split(' ')).unwrap())
    }

    #[test]
    fn parameters_are_printed_with_their_source_and_without_secrets() {
        let lines =
            lines_of("bathyal search s3://b/i q.fbin -k 7 --store-option secret_access_key=hush --warm");
        let has = |part: &str| lines.iter().any(|line| line.contains(part));
        assert!(has("search") && has("7 (given)") && has("file (default)"), "{lines:?}");
        assert!(has("secret_access_key=... (given)") && !has("hush"), "{lines:?}");
        assert!(has("warm ") && !has("phases"), "{lines:?}");
    }

    #[test]
    fn parser_errors_become_one_line() {
        let refused = |line: &str| {
            sentence(&CommandLine::command().try_get_matches_from(line.split_whitespace()).unwrap_err())
        };
        assert!(refused("bathyal").contains("no command was given"));
        let text = refused("bathyal search idx q.fbin -k 0");
        assert!(text.starts_with("invalid value '0' for '--k") && !text.contains("Usage"), "{text}");
        assert!(refused("bathyal polish").starts_with("unrecognized subcommand 'polish'"));
    }
}
