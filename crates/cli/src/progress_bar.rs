//! Progress of long work on stderr.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bathyal_index::progress::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::interrupt::Interrupt;

/// How often a second the bar is drawn: often enough to look alive, too seldom to cost anything.
const DRAWS_A_SECOND: u8 = 8;

/// A stage is reported in this many steps where there is no terminal to draw on.
const STEPS_WITHOUT_TERMINAL: u64 = 10;

/// Shows each stage of long work as a bar on a terminal, as lines elsewhere, or not at all; and hands on the
/// user's wish to stop.
pub(crate) struct StageProgress {
    shown: Shown,
    interrupt: Interrupt,
}

enum Shown {
    Nothing,
    Bar(Mutex<ProgressBar>),
    Lines { stage: Mutex<Stage>, next: AtomicU64 },
}

struct Stage {
    name: String,
    total: u64,
    began: Instant,
}

impl StageProgress {
    /// Shows progress on a terminal, and elsewhere only if `forced`.
    pub(crate) fn new(forced: bool, interrupt: Interrupt) -> StageProgress {
        let shown = if std::io::stderr().is_terminal() {
            Shown::Bar(Mutex::new(ProgressBar::hidden()))
        } else if forced {
            let stage = Stage { name: String::new(), total: 0, began: Instant::now() };
            Shown::Lines { stage: Mutex::new(stage), next: AtomicU64::new(u64::MAX) }
        } else {
            Shown::Nothing
        };
        StageProgress { shown, interrupt }
    }

    fn say_step(stage: &Mutex<Stage>, next: &AtomicU64, done: u64) {
        if done < next.load(Ordering::Relaxed) {
            return;
        }
        let Ok(stage) = stage.lock() else { return };
        // Looked at again under the lock: another thread may have said this step.
        if done < next.load(Ordering::Relaxed) {
            return;
        }
        let step = (stage.total / STEPS_WITHOUT_TERMINAL).max(1);
        next.store((done / step + 1) * step, Ordering::Relaxed);
        let percent = (100 * done.min(stage.total)).checked_div(stage.total).unwrap_or(100);
        let seconds = stage.began.elapsed().as_secs_f64();
        let _ = writeln!(std::io::stderr(), "{}: {percent}% after {seconds:.1} s", stage.name);
    }
}

impl Progress for StageProgress {
    fn stage(&self, name: &str, total: u64) {
        match &self.shown {
            Shown::Nothing => {}
            Shown::Bar(current) => {
                let Ok(mut current) = current.lock() else { return };
                current.finish();
                let target = ProgressDrawTarget::stderr_with_hz(DRAWS_A_SECOND);
                let bar = ProgressBar::with_draw_target(Some(total), target);
                let template = "{msg:<24} {bar:32} {percent:>3}%  {elapsed} (left: {eta})";
                if let Ok(style) = ProgressStyle::with_template(template) {
                    bar.set_style(style);
                }
                bar.set_message(name.to_owned());
                *current = bar;
            }
            Shown::Lines { stage, next } => {
                let Ok(mut stage) = stage.lock() else { return };
                *stage = Stage { name: name.to_owned(), total, began: Instant::now() };
                next.store((total / STEPS_WITHOUT_TERMINAL).max(1), Ordering::Relaxed);
            }
        }
    }

    fn advance(&self, done: u64) {
        match &self.shown {
            Shown::Nothing => {}
            Shown::Bar(current) => {
                if let Ok(current) = current.lock() {
                    current.set_position(done);
                }
            }
            Shown::Lines { stage, next } => Self::say_step(stage, next, done),
        }
    }

    fn cancelled(&self) -> bool {
        self.interrupt.asked()
    }
}

impl Drop for StageProgress {
    fn drop(&mut self) {
        if let Shown::Bar(current) = &self.shown
            && let Ok(current) = current.lock()
        {
            current.finish();
        }
    }
}
