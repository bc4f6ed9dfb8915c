//! Formatting of numbers in tables for people.

/// Formats a distance with about five digits.
pub(crate) fn short(distance: f32) -> String {
    let (size, exact) = (distance.abs(), distance.to_string());
    let digits = if size >= 10_000.0 {
        0
    } else if size >= 1.0 {
        4 - size.log10() as usize
    } else {
        4
    };
    let rounded = format!("{distance:.digits$}");
    // Smaller distances would be rounded to zero.
    if size > 0.0 && size < 0.001 {
        format!("{distance:.2e}")
    } else if exact.len() <= rounded.len() {
        exact
    } else {
        rounded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_short() {
        let cases =
            [(0.0, "0"), (1.5, "1.5"), (0.123_456, "0.1235"), (123.456, "123.46"), (2.5e7, "25000000")];
        for (distance, text) in cases {
            assert_eq!(short(distance), text);
        }
        assert_eq!((short(-17.654_32), short(3e-7)), ("-17.654".to_owned(), "3.00e-7".to_owned()));
        assert_eq!(short(f32::INFINITY), "inf");
    }
}
