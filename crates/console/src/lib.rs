//! What the programs of the project have in common, as users see it: the command `bathyal`, its reproductions and the
//! suites of the bench.
//!
//! * [`Console`]: answers on stdout (text, or with `--json` one object), everything else on stderr.
//! * [`Failure`], [`Kind`]: exit codes, sentences, and names of kinds that scripts may rely on.
//! * [`Interrupt`]: listens for Ctrl-C.
//! * [`byte_size`], [`typed`]: values as people type them.
//! * [`process_memory`], [`process_time`]: what this process has taken.

mod answers;
pub mod byte_size;
mod failure;
mod interrupt;
mod kind;
pub mod process_memory;
pub mod process_time;
mod progress_bar;
pub mod typed;

pub use answers::{Console, OutputOptions, complain_in_json, exit_code};
pub use failure::{Code, Failure};
pub use interrupt::Interrupt;
pub use kind::Kind;
pub use progress_bar::{Shows, StageProgress};
