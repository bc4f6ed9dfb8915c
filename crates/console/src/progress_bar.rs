//! Progress of long work on stderr.

use std::io::{IsTerminal, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bathyal_vectors::progress::Progress;
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::interrupt::Interrupt;

/// How often a second the bar is drawn: often enough to look alive, too seldom to cost anything.
const DRAWS_A_SECOND: u8 = 8;

/// A stage is reported in this many steps where there is no terminal to draw on.
const STEPS_WITHOUT_TERMINAL: u64 = 10;

/// Shows each stage of long work as a bar on a terminal, as lines elsewhere, or not at all; and hands on the
/// user's wish to stop.
pub struct StageProgress {
    shown: Shown,
    /// What is under way, where each stage is reported once it is over.
    reported: Option<Mutex<Option<(String, Instant)>>>,
    whole: Arc<Mutex<Whole>>,
    interrupt: Interrupt,
}

/// What is shown of long work.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shows {
    /// Lines where there is no terminal.
    pub forced: bool,
    /// Nothing, not even on a terminal.
    pub quiet: bool,
    /// Each stage, once it is over, with its seconds.
    pub verbose: bool,
}

/// The whole of the work, as far as its stages were announced.
#[derive(Default)]
struct Whole {
    began: Option<Instant>,
    /// Names and shares of the whole.
    stages: Vec<(String, f64)>,
    present: Option<usize>,
}

impl Whole {
    fn enter(&mut self, name: &str) {
        let from = self.present.map_or(0, |present| present + 1);
        let found = self.stages.iter().skip(from).position(|stage| stage.0 == name);
        self.present = found.map(|at| from + at).or(self.present);
    }

    /// The time that is left when `share` of the present stage is done, at the pace so far; `None` before a twentieth
    /// of the whole is done, when that would be a guess.
    fn left(&self, share: f64, now: Instant) -> Option<Duration> {
        let (began, present) = (self.began?, self.present?);
        let sum = |stages: &[(String, f64)]| stages.iter().map(|stage| stage.1).sum::<f64>();
        let done = sum(&self.stages[..present]) + share.clamp(0.0, 1.0) * self.stages[present].1;
        let all = sum(&self.stages);
        let seconds = (now - began).as_secs_f64() * (all - done) / done;
        (done >= 0.05 * all).then(|| Duration::try_from_secs_f64(seconds).ok())?
    }
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
    pub fn new(forced: bool, interrupt: Interrupt) -> StageProgress {
        StageProgress::showing(Shows { forced, ..Shows::default() }, interrupt)
    }

    /// Shows what `shows` says.
    pub fn showing(shows: Shows, interrupt: Interrupt) -> StageProgress {
        let Shows { forced, quiet, verbose } = shows;
        let shown = if quiet {
            Shown::Nothing
        } else if std::io::stderr().is_terminal() {
            Shown::Bar(Mutex::new(ProgressBar::hidden()))
        } else if forced {
            let stage = Stage { name: String::new(), total: 0, began: Instant::now() };
            Shown::Lines { stage: Mutex::new(stage), next: AtomicU64::new(u64::MAX) }
        } else {
            Shown::Nothing
        };
        // A bar that is done says the same.
        let reported = (verbose && !matches!(shown, Shown::Bar(_))).then(Mutex::default);
        StageProgress { shown, reported, whole: Arc::default(), interrupt }
    }

    /// Reports the stage that is over, if stages are reported, and remembers `next`.
    fn report(&self, next: Option<&str>) {
        let Some(Ok(mut present)) = self.reported.as_ref().map(Mutex::lock) else { return };
        let over = std::mem::replace(&mut *present, next.map(|name| (name.to_owned(), Instant::now())));
        if let Some((name, began)) = over {
            let _ = writeln!(std::io::stderr(), "{name}: {:.2} s", began.elapsed().as_secs_f64());
        }
    }

    fn say_step(&self, stage: &Mutex<Stage>, next: &AtomicU64, done: u64) {
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
        let left = self.whole.lock().ok();
        let left = left.and_then(|whole| whole.left(percent as f64 / 100.0, Instant::now()));
        let left = left.map_or(String::new(), |left| format!(", {:.0} s left of all", left.as_secs_f64()));
        let _ = writeln!(std::io::stderr(), "{}: {percent}% after {seconds:.1} s{left}", stage.name);
    }
}

impl Progress for StageProgress {
    fn plan(&self, stages: &[(&str, f64)]) {
        if let Ok(mut whole) = self.whole.lock() {
            let stages = stages.iter().map(|(name, share)| ((*name).to_owned(), *share)).collect();
            *whole = Whole { began: Some(Instant::now()), stages, present: None };
        }
    }

    fn stage(&self, name: &str, total: u64) {
        self.report(Some(name));
        if let Ok(mut whole) = self.whole.lock() {
            whole.enter(name);
        }
        match &self.shown {
            Shown::Nothing => {}
            Shown::Bar(current) => {
                let Ok(mut current) = current.lock() else { return };
                current.finish();
                let target = ProgressDrawTarget::stderr_with_hz(DRAWS_A_SECOND);
                let bar = ProgressBar::with_draw_target(Some(total), target);
                let template = "{msg:<24} {bar:32} {percent:>3}%  {elapsed} (left: {left})";
                if let Ok(style) = ProgressStyle::with_template(template) {
                    let whole = Arc::clone(&self.whole);
                    let left = move |state: &ProgressState, out: &mut dyn std::fmt::Write| {
                        let share = f64::from(state.fraction());
                        let of_all = whole.lock().ok().and_then(|whole| whole.left(share, Instant::now()));
                        // Work of one stage, or too early to tell: what the stage itself says.
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
            Shown::Lines { stage, next } => self.say_step(stage, next, done),
        }
    }

    fn cancelled(&self) -> bool {
        self.interrupt.asked()
    }
}

impl Drop for StageProgress {
    fn drop(&mut self) {
        self.report(None);
        if let Shown::Bar(current) = &self.shown
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
        let mut whole = Whole { began: Some(began), stages: stages.to_vec(), present: None };
        let after = |seconds| began + Duration::from_secs(seconds);
        assert_eq!(whole.left(0.5, after(5)), None, "no stage yet");
        whole.enter("a");
        assert_eq!(whole.left(0.1, after(1)), None, "too early to tell");
        assert_eq!(whole.left(1.0, after(2)), Some(Duration::from_secs(18)));
        whole.enter("not announced");
        whole.enter("c");
        assert_eq!(whole.left(0.5, after(14)), Some(Duration::from_secs(6)));
    }
}
