//! Progress of long work on stderr.

use std::io::{IsTerminal, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bathyal_vectors::progress::Progress;
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::interrupt::Interrupt;

/// Redraws of the bar per second: often enough to look alive, too seldom to cost anything.
const DRAWS_A_SECOND: u8 = 8;

/// Lines per stage if there is no terminal to draw on.
const STEPS_WITHOUT_TERMINAL: u64 = 10;

/// Shows each stage of long work as a bar on a terminal, as lines elsewhere, or not at all, and reports
/// Ctrl-C to the work.
pub struct StageProgress {
    display: Display,
    /// The current stage and its start, if each stage is reported once it is over.
    reported: Option<Mutex<Option<(String, Instant)>>>,
    overall: Arc<Mutex<OverallProgress>>,
    interrupt: Interrupt,
}

/// How progress is shown.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProgressOptions {
    /// Print lines if there is no terminal.
    pub forced: bool,
    /// Show nothing, not even on a terminal.
    pub quiet: bool,
    /// Print each stage with its seconds once it is over.
    pub verbose: bool,
}

/// The progress of all announced stages together.
#[derive(Default)]
struct OverallProgress {
    began: Option<Instant>,
    /// Names, and shares of the total time.
    stages: Vec<(String, f64)>,
    current: Option<usize>,
}

impl OverallProgress {
    fn enter(&mut self, name: &str) {
        let from = self.current.map_or(0, |current| current + 1);
        let found = self.stages.iter().skip(from).position(|stage| stage.0 == name);
        self.current = found.map(|at| from + at).or(self.current);
    }

    /// Returns the time left at the pace so far, when `share` of the current stage is done; `None` before a
    /// twentieth of the total is done, when it would be a guess.
    fn left(&self, share: f64, now: Instant) -> Option<Duration> {
        let (began, current) = (self.began?, self.current?);
        let sum = |stages: &[(String, f64)]| stages.iter().map(|stage| stage.1).sum::<f64>();
        let done = sum(&self.stages[..current]) + share.clamp(0.0, 1.0) * self.stages[current].1;
        let all = sum(&self.stages);
        let seconds = (now - began).as_secs_f64() * (all - done) / done;
        (done >= 0.05 * all).then(|| Duration::try_from_secs_f64(seconds).ok())?
    }
}

enum Display {
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
    pub fn new(forced: bool, interrupt: Interrupt) -> StageProgress {
        StageProgress::with_options(ProgressOptions { forced, ..ProgressOptions::default() }, interrupt)
    }

    /// Shows progress as `options` say.
    pub fn with_options(options: ProgressOptions, interrupt: Interrupt) -> StageProgress {
        let ProgressOptions { forced, quiet, verbose } = options;
        let display = if quiet {
            Display::Nothing
        } else if std::io::stderr().is_terminal() {
            Display::Bar(Mutex::new(ProgressBar::hidden()))
        } else if forced {
            let stage = Stage { name: String::new(), total: 0, began: Instant::now() };
            Display::Lines { stage: Mutex::new(stage), next: AtomicU64::new(u64::MAX) }
        } else {
            Display::Nothing
        };
        // A finished bar shows the same.
        let reported = (verbose && !matches!(display, Display::Bar(_))).then(Mutex::default);
        StageProgress { display, reported, overall: Arc::default(), interrupt }
    }

    /// Prints the stage that is over, if stages are reported, and notes the start of `next`.
    fn report(&self, next: Option<&str>) {
        let Some(Ok(mut current)) = self.reported.as_ref().map(Mutex::lock) else { return };
        let over = std::mem::replace(&mut *current, next.map(|name| (name.to_owned(), Instant::now())));
        if let Some((name, began)) = over {
            let _ = writeln!(std::io::stderr(), "{name}: {:.2} s", began.elapsed().as_secs_f64());
        }
    }

    fn print_step(&self, stage: &Mutex<Stage>, next: &AtomicU64, done: u64) {
        if done < next.load(Ordering::Relaxed) {
            return;
        }
        let Ok(stage) = stage.lock() else { return };
        // Check again under the lock: another thread may have printed this step.
        if done < next.load(Ordering::Relaxed) {
            return;
        }
        let step = (stage.total / STEPS_WITHOUT_TERMINAL).max(1);
        next.store((done / step + 1) * step, Ordering::Relaxed);
        let percent = (100 * done.min(stage.total)).checked_div(stage.total).unwrap_or(100);
        let seconds = stage.began.elapsed().as_secs_f64();
        let left = self.overall.lock().ok();
        let left = left.and_then(|overall| overall.left(percent as f64 / 100.0, Instant::now()));
        let left = left.map_or(String::new(), |left| format!(", {:.0} s left of all", left.as_secs_f64()));
        let _ = writeln!(std::io::stderr(), "{}: {percent}% after {seconds:.1} s{left}", stage.name);
    }
}

impl Progress for StageProgress {
    fn plan(&self, stages: &[(&str, f64)]) {
        if let Ok(mut overall) = self.overall.lock() {
            let stages = stages.iter().map(|(name, share)| ((*name).to_owned(), *share)).collect();
            *overall = OverallProgress { began: Some(Instant::now()), stages, current: None };
        }
    }

    fn stage(&self, name: &str, total: u64) {
        self.report(Some(name));
        if let Ok(mut overall) = self.overall.lock() {
            overall.enter(name);
        }
        match &self.display {
            Display::Nothing => {}
            Display::Bar(current) => {
                let Ok(mut current) = current.lock() else { return };
                current.finish();
                let target = ProgressDrawTarget::stderr_with_hz(DRAWS_A_SECOND);
                let bar = ProgressBar::with_draw_target(Some(total), target);
                let template = "{msg:<24} {bar:32} {percent:>3}%  {elapsed} (left: {left})";
                if let Ok(style) = ProgressStyle::with_template(template) {
                    let overall = Arc::clone(&self.overall);
                    let left = move |state: &ProgressState, out: &mut dyn std::fmt::Write| {
                        let share = f64::from(state.fraction());
                        let of_all =
                            overall.lock().ok().and_then(|overall| overall.left(share, Instant::now()));
                        // With one stage, or too early to tell: the estimate of the stage itself.
                        let _ = match of_all {
                            Some(left) => write!(out, "{} of all", HumanDuration(left)),
                            None => write!(out, "{}", HumanDuration(state.eta())),
                        };
                    };
                    bar.set_style(style.with_key("left", left));
                }
                bar.set_message(name.to_owned());
                *current = bar;
            }
            Display::Lines { stage, next } => {
                let Ok(mut stage) = stage.lock() else { return };
                *stage = Stage { name: name.to_owned(), total, began: Instant::now() };
                next.store((total / STEPS_WITHOUT_TERMINAL).max(1), Ordering::Relaxed);
            }
        }
    }

    fn advance(&self, done: u64) {
        match &self.display {
            Display::Nothing => {}
            Display::Bar(current) => {
                if let Ok(current) = current.lock() {
                    current.set_position(done);
                }
            }
            Display::Lines { stage, next } => self.print_step(stage, next, done),
        }
    }

    fn cancelled(&self) -> bool {
        self.interrupt.requested()
    }
}

impl Drop for StageProgress {
    fn drop(&mut self) {
        self.report(None);
        if let Display::Bar(current) = &self.display
            && let Ok(current) = current.lock()
        {
            current.finish();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_weighs_the_stages() {
        let began = Instant::now();
        let stages = [("a", 1.0), ("b", 3.0), ("c", 6.0)].map(|(name, share)| (name.to_owned(), share));
        let mut overall = OverallProgress { began: Some(began), stages: stages.to_vec(), current: None };
        let after = |seconds| began + Duration::from_secs(seconds);
        assert_eq!(overall.left(0.5, after(5)), None, "no stage yet");
        overall.enter("a");
        assert_eq!(overall.left(0.1, after(1)), None, "too early to tell");
        assert_eq!(overall.left(1.0, after(2)), Some(Duration::from_secs(18)));
        overall.enter("not announced");
        overall.enter("c");
        assert_eq!(overall.left(0.5, after(14)), Some(Duration::from_secs(6)));
    }
}
