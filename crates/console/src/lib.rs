//! The command-line parts that the project's programs share: `bathyal`, `bathyal-repro` and the suites of the
//! bench.
//!
//! * [`Console`]: answers on stdout (text, or with `--json` one object), everything else on stderr.
//! * [`Failure`], [`Kind`]: exit codes, messages, and names of kinds that scripts may rely on.
//! * [`Interrupt`]: listens for Ctrl-C.
//! * [`byte_size`], [`typed`]: parsers of option values.
//! * [`process_memory`]: memory of this process.

mod answers;
pub mod byte_size;
mod failure;
mod interrupt;
mod kind;
pub mod process_memory;
mod progress_bar;
mod question;
pub mod typed;

pub use answers::{Console, OutputOptions, exit_code, report_as_json};
pub use failure::{Code, Failure};
pub use interrupt::Interrupt;
pub use kind::Kind;
pub use progress_bar::{ProgressOptions, StageProgress};
