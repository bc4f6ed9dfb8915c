//! What the paper found beside what was found here, and where they differ.

use std::fmt::Write as _;

use serde::Serialize;

/// How a number is written.
#[derive(Clone, Copy)]
pub(crate) enum Form {
    /// A ratio, with two digits.
    Times,
    /// A share, as per cent.
    Percent,
    /// A number with one digit at most.
    Plain,
}

impl Form {
    fn write(self, value: f64) -> String {
        match self {
            Form::Times => format!("{value:.2}"),
            Form::Percent => format!("{:.0}%", 100.0 * value),
            Form::Plain if value.abs() < 100.0 => format!("{value:.1}"),
            Form::Plain => format!("{value:.0}"),
        }
    }

    fn range(self, low: f64, high: f64) -> String {
        let (low, high) = (self.write(low), self.write(high));
        if low == high { low } else { format!("{low} to {high}") }
    }
}

/// One finding of the paper.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Finding {
    what: String,
    /// Where it was measured.
    place: String,
    paper: String,
    here: String,
    /// "as there", "lower", "higher", or "in part".
    verdict: &'static str,
}

impl Finding {
    /// `here` beside the range that the paper gives; `None` where nothing was measured.
    pub(crate) fn new(
        what: &str,
        place: &str,
        paper: (f64, f64),
        here: &[f64],
        form: Form,
    ) -> Option<Finding> {
        let here: Vec<f64> = here.iter().copied().filter(|value| value.is_finite()).collect();
        if here.is_empty() {
            return None;
        }
        let low = here.iter().copied().fold(f64::INFINITY, f64::min);
        let high = here.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let verdict = if high < paper.0 {
            "lower"
        } else if low > paper.1 {
            "higher"
        } else if low >= paper.0 && high <= paper.1 {
            "as there"
        } else {
            "in part"
        };
        let at_least = paper.1 == f64::INFINITY;
        let told =
            if at_least { format!("{} or more", form.write(paper.0)) } else { form.range(paper.0, paper.1) };
        Some(Finding {
            what: what.to_owned(),
            place: place.to_owned(),
            paper: told,
            here: form.range(low, high),
            verdict,
        })
    }
}

/// The findings as a table.
// Writing to a string does not fail.
pub(crate) fn table(findings: &[Finding]) -> String {
    let mut text = String::from("| finding | where | the paper | here | |\n|---|---|---|---|---|\n");
    for finding in findings {
        let Finding { what, place, paper, here, verdict } = finding;
        let verdict = if *verdict == "as there" { (*verdict).to_owned() } else { format!("**{verdict}**") };
        let _ = writeln!(text, "| {what} | {place} | {paper} | {here} | {verdict} |");
    }
    text
}

/// The findings as lines of a summary.
// Writing to a string does not fail.
pub(crate) fn lines(findings: &[Finding]) -> String {
    let mut text = String::new();
    for Finding { what, place, paper, here, verdict } in findings {
        let _ = writeln!(text, "* {what}, {place}: {here} (the paper: {paper}; {verdict})");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_weighed_against_a_range() {
        let of = |here: &[f64]| Finding::new("speed", "cxl", (1.3, 1.7), here, Form::Times);
        for (here, verdict, told) in [
            (vec![1.0], "lower", "1.00"),
            (vec![1.4, 1.31], "as there", "1.31 to 1.40"),
            (vec![2.0, 3.0], "higher", "2.00 to 3.00"),
            (vec![1.0, 1.5], "in part", "1.00 to 1.50"),
            (vec![1.0, 9.0, f64::NAN], "in part", "1.00 to 9.00"),
        ] {
            let found = of(&here).unwrap();
            assert_eq!((found.verdict, found.here.as_str()), (verdict, told));
        }
        assert_eq!(of(&[f64::NAN]), None);
        let open = Finding::new("speed", "cxl", (0.62, f64::INFINITY), &[0.7], Form::Percent).unwrap();
        assert_eq!(
            (open.paper.as_str(), open.here.as_str(), open.verdict),
            ("62% or more", "70%", "as there")
        );
        let plain = Finding::new("lists", "file", (20.0, 20.0), &[120.0], Form::Plain).unwrap();
        assert_eq!((plain.paper.as_str(), plain.here.as_str()), ("20.0", "120"));
        let text = table(&[open.clone(), plain.clone()]);
        assert!(text.contains("| 70% | as there |") && text.contains("| 120 | **higher** |"), "{text}");
        assert!(lines(&[open]).contains("speed, cxl: 70%"));
    }
}
