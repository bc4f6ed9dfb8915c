//! Notes of the library with the command that they ask for.

use std::path::Path;

/// The end of a note that advises another layout, before the layout's name.
const ADVICE: &str = "write a copy in the layout ";

/// Returns a note about the index at `index` with the command that it asks for, if any.
pub(super) fn in_command(note: &str, index: &Path) -> String {
    match note.rsplit_once(ADVICE) {
        Some((before, layout)) => {
            let index = index.display();
            format!("{before}write a copy: bathyal convert-layout {index} COPY --layout {layout}")
        }
        None => note.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bathyal_index::cost::layout::LayoutAdvice;

    #[test]
    fn the_advice_for_a_layout_becomes_a_command() {
        let advice = LayoutAdvice {
            layout: "padded",
            other: "csr",
            bytes: 147_456.0,
            other_bytes: 6_700.0,
            times: 5.2,
        };
        let note = in_command(&advice.note(), Path::new("my.index"));
        assert!(
            note.ends_with("; write a copy: bathyal convert-layout my.index COPY --layout csr"),
            "{note}"
        );
        assert!(note.starts_with("the layout padded does not suit this tier"), "{note}");
        assert_eq!(in_command("another note", Path::new("my.index")), "another note");
    }
}
