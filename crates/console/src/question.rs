//! Questions that the user answers at the terminal.

use std::io::{BufRead, IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use crate::failure::Failure;
use crate::interrupt::Interrupt;

/// The time between two looks at the interrupt while the user thinks.
const INTERRUPT_CHECK: Duration = Duration::from_millis(50);

/// Returns true if a question reaches the user, and the answer comes from the user.
pub(crate) fn is_possible() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks `question` on stderr. Returns true if the answer is yes.
///
/// # Errors
/// [`Failure::cancelled`] if the user interrupts; the error of the terminal.
pub(crate) fn ask(question: &str, interrupt: &Interrupt) -> Result<bool, Failure> {
    let failed =
        |error: &std::io::Error| Failure::system(error, format!("cannot ask at the terminal: {error}"));
    let mut stderr = std::io::stderr().lock();
    write!(stderr, "{question} [y/N] ").and_then(|()| stderr.flush()).map_err(|error| failed(&error))?;
    let (sender, receiver) = channel();
    // A signal does not end the read, so another thread reads. It ends with the process.
    thread::spawn(move || {
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line);
        // The receiver is gone if the user interrupted.
        let _ = sender.send(read.map(|_| line));
    });
    loop {
        match receiver.recv_timeout(INTERRUPT_CHECK) {
            Ok(Ok(line)) => return Ok(is_yes(&line)),
            Ok(Err(error)) => return Err(failed(&error)),
            Err(RecvTimeoutError::Timeout) if !interrupt.requested() => {}
            Err(_) => return Err(Failure::cancelled()),
        }
    }
}

/// Returns true if `line` says yes; an empty line says no.
fn is_yes(line: &str) -> bool {
    matches!(line.trim().to_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::is_yes;

    #[test]
    fn only_a_plain_yes_is_one() {
        assert!(["y\n", "Y", " yes \n", "YES"].into_iter().all(is_yes));
        assert!(!["", "\n", "n", "no", "yess", "maybe", "y n"].into_iter().any(is_yes));
    }
}
