//! Output of answers, notes and failures.

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
use crate::progress_bar::{ProgressOptions, StageProgress};
use crate::question;

/// The options for output that every command has.
#[derive(Clone, Copy, Debug, Default, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputOptions {
    /// Print exactly one JSON object on stdout, with stable snake_case keys; if the command fails, it has the
    /// key error, with kind, message and exit_code
    #[arg(long, global = true)]
    pub json: bool,
    /// Show progress on stderr even if stderr is not a terminal
    #[arg(long, global = true)]
    pub progress: bool,
    /// Print only the answer, or the error if the command fails: no progress and no notes
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Print details on stderr: the value of every parameter, files that are opened, and the seconds of each
    /// stage
    #[arg(short, long, global = true)]
    pub verbose: bool,
}

impl OutputOptions {
    /// Refuses options that contradict each other. The argument parser does not notice them if one is before
    /// the subcommand and the other after it.
    ///
    /// # Errors
    /// A usage error that names both options.
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

/// Prints answers on stdout, as text or as one JSON object, and everything else on stderr.
#[derive(Debug)]
pub struct Console {
    program: &'static str,
    options: OutputOptions,
    answered: AtomicBool,
    interrupt: Interrupt,
}

impl Console {
    /// Creates a console of the program named `program`, and begins to listen for Ctrl-C.
    pub fn new(program: &'static str, options: &OutputOptions) -> Console {
        let (answered, interrupt) = (AtomicBool::new(false), Interrupt::listen());
        Console { program, options: *options, answered, interrupt }
    }

    /// Returns the interrupt, for work that polls it.
    pub fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// Returns a new receiver of progress for one piece of long work.
    pub fn progress(&self) -> StageProgress {
        let OutputOptions { progress, quiet, verbose, .. } = self.options;
        StageProgress::with_options(
            ProgressOptions { forced: progress, quiet, verbose },
            self.interrupt.clone(),
        )
    }

    /// Prints the answer: `object` as one JSON object with `--json`, else `text`.
    ///
    /// # Errors
    /// If stdout cannot be written. A closed pipe is not an error: its reader needs no more.
    pub fn answer(&self, object: &impl Serialize, text: &str) -> Result<(), Failure> {
        if !self.options.json {
            return self.print(text.trim_end());
        }
        let line = serde_json::to_string(object).map_err(|e| Failure::of(Kind::Internal, unwritable(&e)))?;
        self.print(&line)
    }

    /// Prints the answer of a command that fails, and returns `failure`. With `--json` the object gets the
    /// key `error`, so that stdout holds one object.
    ///
    /// # Errors
    /// Always: `failure`, or the error of writing to stdout.
    pub fn answer_and_fail(
        &self,
        object: &impl Serialize,
        text: &str,
        failure: Failure,
    ) -> Result<(), Failure> {
        // Not `to_value`, which converts f32 to f64 and so prints digits that were not measured.
        let object = serde_json::to_string(object).and_then(|text| serde_json::from_str(&text));
        let mut object: Value = object.map_err(|e| Failure::of(Kind::Internal, unwritable(&e)))?;
        if let Value::Object(keys) = &mut object {
            keys.insert("error".to_owned(), failure.json());
        }
        self.answer(&object, text)?;
        Err(failure)
    }

    /// Prints `object` with the key `error` if `--json` is given, and nothing otherwise. Returns `failure`.
    ///
    /// # Errors
    /// As [`Console::answer_and_fail`].
    pub fn fail_with(&self, object: &impl Serialize, failure: Failure) -> Result<(), Failure> {
        if self.options.json { self.answer_and_fail(object, "", failure) } else { Err(failure) }
    }

    /// Asks a question that is answered with yes or no. Returns `None` without asking if there is no
    /// terminal.
    ///
    /// # Errors
    /// [`Failure::cancelled`] if the user interrupts; the error of the terminal.
    pub fn ask(&self, question: &str) -> Result<Option<bool>, Failure> {
        if question::is_possible() { question::ask(question, &self.interrupt).map(Some) } else { Ok(None) }
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

    /// Prints a note on stderr, unless the user asked for quiet.
    pub fn note(&self, text: &str) {
        if !self.options.quiet {
            print_on_stderr(text);
        }
    }

    /// Returns true if details are printed.
    pub fn is_verbose(&self) -> bool {
        self.options.verbose
    }

    /// Prints a detail on stderr if the user asked for details.
    pub fn detail(&self, text: &str) {
        if self.options.verbose {
            print_on_stderr(text);
        }
    }

    /// Opens a file of vectors, prints that as a detail, and prints a note if they are converted.
    ///
    /// # Errors
    /// As [`VectorFile::open_converted`].
    pub fn open_vectors(&self, path: &Path) -> Result<VectorFile, Failure> {
        let (file, note) = VectorFile::open_converted(path)?;
        note.iter().for_each(|note| self.note(&format!("note: {note}")));
        let (count, dim, element) = (file.count(), file.dim(), file.element());
        self.detail(&format!("opened {}: {count} vectors of {dim} {element}", path.display()));
        Ok(file)
    }

    /// Prints the failure of a command: on stderr as a sentence after the program's name, and with `--json`
    /// on stdout as an object, unless an object was printed already. Returns the exit code.
    pub fn report(&self, failure: &Failure) -> i32 {
        print_on_stderr(&format!("{}: {failure}", self.program));
        if self.options.json && !self.answered.load(Ordering::Relaxed) {
            report_as_json(failure);
        }
        failure.code as i32
    }
}

/// Prints the object of `--json` for a command line that cannot be parsed, before there is a [`Console`].
pub fn report_as_json(failure: &Failure) {
    // Nothing is left to do if stdout is closed.
    let _ = writeln!(std::io::stdout(), "{}", json!({ "error": failure.json() }));
}

fn print_on_stderr(text: &str) {
    // Nothing is left to do if stderr is closed.
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn unwritable(reason: &impl std::fmt::Display) -> String {
    format!("standard output: cannot write the answer: {reason}")
}

/// Returns the exit code of a command: 0, or that of the failure in `outcome`, which it prints.
pub fn exit_code(outcome: Result<(), Failure>, console: &Console) -> i32 {
    match outcome {
        Ok(()) => Code::Success as i32,
        Err(failure) => console.report(&failure),
    }
}
