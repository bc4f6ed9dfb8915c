//! Where answers and messages go.

use std::io::{ErrorKind, Write};

use clap::Args;
use serde::Serialize;

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::progress_bar::StageProgress;

/// How answers and progress are shown.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputOptions {
    /// Print the answer as exactly one JSON object on stdout, with stable snake_case keys
    #[arg(long, global = true)]
    pub json: bool,
    /// Show progress on stderr even where that is not a terminal
    #[arg(long, global = true)]
    pub progress: bool,
}

/// Answers on stdout, as text or as one JSON object; everything else on stderr.
#[derive(Debug)]
pub struct Console {
    json: bool,
    force_progress: bool,
    interrupt: Interrupt,
}

impl Console {
    /// Begins to listen for Ctrl-C and answers as `options` say.
    pub fn new(options: &OutputOptions) -> Console {
        Console { json: options.json, force_progress: options.progress, interrupt: Interrupt::listen() }
    }

    /// Ctrl-C, for work that looks at it by itself.
    pub fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// A receiver of progress for one piece of long work.
    pub fn progress(&self) -> StageProgress {
        StageProgress::new(self.force_progress, self.interrupt.clone())
    }

    /// Prints the answer: `object` as one JSON object with `--json`, else `text`.
    ///
    /// # Errors
    /// If stdout cannot be written. A reader that has closed the pipe has what it wanted: that is no error.
    pub fn answer(&self, object: &impl Serialize, text: &str) -> Result<(), Failure> {
        let cannot = |what: String| Failure::new(format!("standard output: cannot write the answer: {what}"));
        let line = if self.json {
            serde_json::to_string(object).map_err(|e| cannot(e.to_string()))?
        } else {
            text.trim_end().to_owned()
        };
        let mut stdout = std::io::stdout().lock();
        match writeln!(stdout, "{line}").and_then(|()| stdout.flush()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(cannot(error.to_string())),
            _ => Ok(()),
        }
    }

    /// Prints a remark that is no part of the answer.
    pub fn remark(&self, text: &str) {
        // Nothing is left to do if stderr is closed.
        let _ = writeln!(std::io::stderr(), "{text}");
    }

    /// Prints why a command failed.
    pub fn complain(&self, failure: &Failure) {
        self.remark(&format!("bathyal: {failure}"));
    }
}
