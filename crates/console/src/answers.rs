//! Where answers and messages go.

use std::io::{ErrorKind, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use bathyal_vectors::VectorFile;
use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};

use crate::failure::{Code, Failure};
use crate::interrupt::Interrupt;
use crate::kind::Kind;
use crate::progress_bar::{Shows, StageProgress};

/// How answers and progress are shown.
#[derive(Clone, Copy, Debug, Default, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputOptions {
    /// Print the answer as exactly one JSON object on stdout, with stable snake_case keys; of a command that fails, the object
    /// has the key error, with kind, message and exit_code
    #[arg(long, global = true)]
    pub json: bool,
    /// Show progress on stderr even where that is not a terminal
    #[arg(long, global = true)]
    pub progress: bool,
    /// Print nothing but the answer and why a command failed: no progress, no notes
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Say on stderr what is done: every parameter as it is understood, files opened, stages with the seconds that they took
    #[arg(short, long, global = true)]
    pub verbose: bool,
}

impl OutputOptions {
    /// Refuses options that contradict each other. The argument parser does not see it where one stands before the command
    /// and one behind it.
    ///
    /// # Errors
    /// A usage error that names them.
    pub fn check(&self) -> Result<(), Failure> {
        let others = [("--verbose", self.verbose), ("--progress", self.progress)];
        match others.into_iter().find(|(_, given)| self.quiet && *given) {
            Some((other, _)) => Err(Failure::usage(format!(
                "--quiet and {other} contradict each other; leave one of them out"
            ))),
            None => Ok(()),
        }
    }
}

/// Answers on stdout, as text or as one JSON object; everything else on stderr.
#[derive(Debug)]
pub struct Console {
    options: OutputOptions,
    answered: AtomicBool,
    interrupt: Interrupt,
}

impl Console {
    /// Begins to listen for Ctrl-C and answers as `options` say.
    pub fn new(options: &OutputOptions) -> Console {
        Console { options: *options, answered: AtomicBool::new(false), interrupt: Interrupt::listen() }
    }

    /// Ctrl-C, for work that looks at it by itself.
    pub fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// A receiver of progress for one piece of long work.
    pub fn progress(&self) -> StageProgress {
        let OutputOptions { progress, quiet, verbose, .. } = self.options;
        StageProgress::showing(Shows { forced: progress, quiet, verbose }, self.interrupt.clone())
    }

    /// Prints the answer: `object` as one JSON object with `--json`, else `text`.
    ///
    /// # Errors
    /// If stdout cannot be written. A reader that has closed the pipe has what it wanted: that is no error.
    pub fn answer(&self, object: &impl Serialize, text: &str) -> Result<(), Failure> {
        if !self.options.json {
            return self.print(text.trim_end());
        }
        let line = serde_json::to_string(object).map_err(|e| Failure::of(Kind::Internal, unwritable(&e)))?;
        self.print(&line)
    }

    /// Prints an answer that says why the command fails, and returns that failure: with `--json` the object gets the key
    /// `error`, so that there is one object, too.
    ///
    /// # Errors
    /// Always: `failure`, or that stdout cannot be written.
    pub fn answer_and_fail(
        &self,
        object: &impl Serialize,
        text: &str,
        failure: Failure,
    ) -> Result<(), Failure> {
        // Not `to_value`, which makes doubles of floats, with digits that nobody measured.
        let object = serde_json::to_string(object).and_then(|text| serde_json::from_str(&text));
        let mut object: Value = object.map_err(|e| Failure::of(Kind::Internal, unwritable(&e)))?;
        if let Value::Object(keys) = &mut object {
            keys.insert("error".to_owned(), failure.json());
        }
        self.answer(&object, text)?;
        Err(failure)
    }

    fn print(&self, line: &str) -> Result<(), Failure> {
        self.answered.store(true, Ordering::Relaxed);
        let mut stdout = std::io::stdout().lock();
        match writeln!(stdout, "{line}").and_then(|()| stdout.flush()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(Failure::system(&error, unwritable(&error)))
            }
            _ => Ok(()),
        }
    }

    /// Prints a remark that is no part of the answer.
    pub fn remark(&self, text: &str) {
        if !self.options.quiet {
            say(text);
        }
    }

    /// Whether details are printed.
    pub fn is_verbose(&self) -> bool {
        self.options.verbose
    }

    /// Prints what is done, for those who want to know.
    pub fn detail(&self, text: &str) {
        if self.options.verbose {
            say(text);
        }
    }

    /// Opens a file of vectors, and says so to those who want to know.
    ///
    /// # Errors
    /// As [`VectorFile::open`].
    pub fn open_vectors(&self, path: &Path) -> Result<VectorFile, Failure> {
        let file = VectorFile::open(path)?;
        let (count, dim, element) = (file.count(), file.dim(), file.element());
        self.detail(&format!("opened {}: {count} vectors of {dim} {element}", path.display()));
        Ok(file)
    }

    /// Prints why a command failed: always as a sentence on stderr, and with `--json` as the object on stdout, unless one is
    /// there already. Returns the exit code.
    pub fn complain(&self, failure: &Failure) -> i32 {
        say(&format!("bathyal: {failure}"));
        if self.options.json && !self.answered.load(Ordering::Relaxed) {
            complain_in_json(failure);
        }
        failure.code as i32
    }
}

/// Prints the object of `--json` for a command that failed before there was a [`Console`]: what was typed makes no sense.
pub fn complain_in_json(failure: &Failure) {
    // Nothing is left to do if stdout is closed.
    let _ = writeln!(std::io::stdout(), "{}", json!({ "error": failure.json() }));
}

fn say(text: &str) {
    // Nothing is left to do if stderr is closed.
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn unwritable(reason: &impl std::fmt::Display) -> String {
    format!("standard output: cannot write the answer: {reason}")
}

/// The exit code of a command: 0, or what `outcome` failed with, which is printed.
pub fn exit_code(outcome: Result<(), Failure>, console: &Console) -> i32 {
    match outcome {
        Ok(()) => Code::Success as i32,
        Err(failure) => console.complain(&failure),
    }
}
