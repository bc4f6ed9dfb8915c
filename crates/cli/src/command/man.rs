//! `bathyal man`.

use std::path::Path;

use bathyal_console::{Console, Failure, Kind};
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use serde::Serialize;

use crate::arguments::{CommandLine, ManArguments};

#[derive(Serialize)]
struct PageOutput {
    page: String,
    text: String,
}

#[derive(Serialize)]
struct PagesOutput {
    output: String,
    pages: Vec<String>,
}

pub(super) fn run(arguments: &ManArguments, console: &Console) -> Result<(), Failure> {
    // The subcommand `help` gets no page, because each page has the text of its help.
    let grammar = || CommandLine::command().disable_help_subcommand(true);
    match &arguments.output {
        Some(folder) => {
            let pages = write(grammar(), folder).map_err(|error| {
                Failure::system(&error, format!("{}: cannot write the pages: {error}", folder.display()))
            })?;
            let answer = PagesOutput { output: folder.display().to_string(), pages };
            let text = format!("{}: {} pages", answer.output, answer.pages.len());
            console.answer(&answer, &text)
        }
        None => {
            let page = page(grammar(), &arguments.of)?;
            console.answer(&page, &page.text)
        }
    }
}

/// Returns the page of the command that `words` name.
fn page(mut grammar: Command, words: &[String]) -> Result<PageOutput, Failure> {
    grammar.build();
    let mut command = &grammar;
    for word in words.iter().flat_map(|words| words.split_whitespace()) {
        command = command.find_subcommand(word).ok_or_else(|| {
            let known: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let name = command.get_display_name().unwrap_or("bathyal").replace('-', " ");
            Failure::usage(format!("{name} has no command '{word}'; it has {known}"))
        })?;
    }
    let man = man(command);
    let mut text = Vec::new();
    let rendered = man.render(&mut text).map_err(|e| e.to_string());
    let text = rendered.and_then(|()| String::from_utf8(text).map_err(|e| e.to_string()));
    let text = text.map_err(|reason| Failure::of(Kind::Internal, reason))?;
    Ok(PageOutput { page: man.get_filename(), text })
}

/// Returns the page of a command, with the version of the program.
fn man(command: &Command) -> Man {
    Man::new(command.clone()).source(format!("bathyal {}", env!("CARGO_PKG_VERSION")))
}

/// Writes a page for each command into `folder`; returns the names of the files.
fn write(mut grammar: Command, folder: &Path) -> std::io::Result<Vec<String>> {
    std::fs::create_dir_all(folder)?;
    grammar.build();
    let mut names = Vec::new();
    let mut waiting = vec![&grammar];
    while let Some(command) = waiting.pop() {
        let man = man(command);
        let mut text = Vec::new();
        man.render(&mut text)?;
        std::fs::write(folder.join(man.get_filename()), text)?;
        names.push(man.get_filename());
        waiting.extend(command.get_subcommands().filter(|command| !command.is_hide_set()));
    }
    names.sort();
    Ok(names)
}
