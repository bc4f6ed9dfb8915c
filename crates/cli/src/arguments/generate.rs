//! `bathyal completions` and `bathyal man`.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

/// `bathyal completions`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bathyal completions bash > ~/.local/share/bash-completion/completions/bathyal
  bathyal completions zsh > ~/.zfunc/_bathyal
  bathyal completions fish > ~/.config/fish/completions/bathyal.fish")]
pub struct CompletionsArguments {
    /// The shell
    pub shell: Shell,
}

/// `bathyal man`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bathyal man search | man -l -
  bathyal man --output ~/.local/share/man/man1")]
pub struct ManArguments {
    /// The command whose page is printed, such as search or "collection create" [default: bathyal itself]
    #[arg(value_name = "COMMAND", conflicts_with = "output")]
    pub of: Vec<String>,
    /// Write the pages of all commands into this folder, which is created if missing
    #[arg(long, value_name = "FOLDER")]
    pub output: Option<PathBuf>,
}
