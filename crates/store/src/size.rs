//! Reads and writes sizes such as `2GB`.
//!
//! No crate is used for this: `bytesize` saturates where a size overflows and reads a lone K as 1000, and
//! `parse-size` does not distinguish K (1024) from kB (1000).

const DECIMAL: [&str; 6] = ["B", "kB", "MB", "GB", "TB", "PB"];

/// Parses `2GB`, `512MiB`, `1.5 GB` or `1000000`: decimal units (kB, MB, GB, TB, PB: powers of 1000), binary
/// ones (KiB, MiB, GiB, TiB, and K, M, G, T alone: powers of 1024), or bytes. Case does not matter, and a
/// fraction of a byte is dropped.
///
/// # Errors
/// A sentence with examples of valid sizes, if the text is no size or is 0.
pub fn parse(text: &str) -> Result<u64, String> {
    let invalid = || format!("'{text}' is no size: write, for example, 2GB, 512MiB or a number of bytes");
    let trimmed = text.trim();
    let end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(end);
    let scale: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1000,
        "mb" => 1000_u64.pow(2),
        "gb" => 1000_u64.pow(3),
        "tb" => 1000_u64.pow(4),
        "pb" => 1000_u64.pow(5),
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        _ => return Err(invalid()),
    };
    let bytes = times(number, scale).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(invalid)
}

/// Multiplies a decimal number by `scale`, exactly: in floating point, 4.35 MB are 4,349,999 bytes. Returns
/// `None` for text that is no number and for overflow.
fn times(number: &str, scale: u64) -> Option<u64> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|digit| digit.is_ascii_digit());
    if whole.len() + part.len() == 0 || !digits(part) {
        return None;
    }
    let whole = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()? };
    // The digits after the 18th amount to less than a byte in any unit.
    let part = &part[..part.len().min(18)];
    let parts = if part.is_empty() { 0 } else { part.parse::<u128>().ok()? };
    let more = parts * u128::from(scale) / 10_u128.pow(part.len() as u32);
    whole.checked_mul(scale)?.checked_add(u64::try_from(more).ok()?)
}

/// Formats `bytes` with three digits and a decimal unit, rounded to nearest: `12.8 MB`. For a bound that
/// users have to keep to, use [`at_least`] or [`at_most`].
pub fn format(bytes: u64) -> String {
    rounded(bytes, |bytes, step| bytes.saturating_add(step / 2) / step)
}

/// Formats like [`format()`] but rounds up, so that a user who provides the printed size provides enough.
pub fn at_least(bytes: u64) -> String {
    rounded(bytes, u64::div_ceil)
}

/// Formats like [`format()`] but rounds down.
pub fn at_most(bytes: u64) -> String {
    rounded(bytes, |bytes, step| bytes / step)
}

/// Formats `bytes` with three digits in the largest unit in which they are 1 or more. `steps(bytes, step)`
/// divides and rounds.
fn rounded(bytes: u64, steps: impl Fn(u64, u64) -> u64) -> String {
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let mut unit = bytes.ilog10() / 3;
    let mut digits = 2 - bytes.ilog10() % 3;
    let mut count = steps(bytes, 10_u64.pow(3 * unit - digits));
    if count == 1000 {
        // Rounding added a digit: 9.995 MB are 10.0 MB, and 999.5 kB are 1.00 MB.
        count = 100;
        (unit, digits) = if digits == 0 { (unit + 1, 2) } else { (unit, digits - 1) };
    }
    let Some(name) = DECIMAL.get(unit as usize) else {
        // Exabytes are printed in petabytes, with all digits.
        let whole = steps(bytes, 10_u64.pow(15));
        return format!("{whole} PB");
    };
    let one = 10_u64.pow(digits);
    match digits {
        0 => format!("{count} {name}"),
        _ => format!("{}.{:0width$} {name}", count / one, count % one, width = digits as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed() {
        let good = [
            ("2GB", 2_000_000_000),
            ("512MiB", 512 << 20),
            ("1.5 gb", 1_500_000_000),
            ("64k", 65_536),
            ("123", 123),
            ("4.35MB", 4_350_000),
            (".5 kB", 500),
            ("2.0000000000000000000000001 kB", 2000),
        ];
        for (text, bytes) in good {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for text in ["", ".", "GB", "-1GB", "2 apples", "0", "0.0", "1e400", "99999999999999TB", "1.2.3MB"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_formatted() {
        let sizes = [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.00 kB"),
            (9_994, "9.99 kB"),
            (9_995, "10.0 kB"),
            (12_800_008, "12.8 MB"),
            (999_499, "999 kB"),
            (999_500, "1.00 MB"),
            (999_999_999, "1.00 GB"),
            (2_340_000_000_000_000_000, "2340 PB"),
        ];
        for (bytes, text) in sizes {
            assert_eq!(format(bytes), text);
        }
        assert_eq!((at_least(1 << 20), at_most(1 << 20)), ("1.05 MB".into(), "1.04 MB".into()));
        assert_eq!((at_least(999_001), at_most(999_999)), ("1.00 MB".into(), "999 kB".into()));
    }

    #[test]
    fn a_size_rounded_up_is_enough_when_it_is_parsed_again() {
        let mut state = 7_u64;
        let mut sizes: Vec<u64> =
            (0..64).flat_map(|bit| [1 << bit, (1 << bit) + 1, (1 << bit) - 1]).collect();
        sizes.extend((0..19).flat_map(|power| [10_u64.pow(power), 10_u64.pow(power) + 1]));
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            sizes.push(state >> (state % 64));
        }
        for bytes in sizes.into_iter().filter(|bytes| *bytes > 0) {
            let (least, most) = (at_least(bytes), at_most(bytes));
            // 20 EB overflow 64 bits.
            let typed = parse(&least).unwrap_or(u64::MAX);
            assert!(typed >= bytes && typed / 101 <= bytes / 100, "{bytes}: {least}");
            assert!(parse(&most).unwrap() <= bytes, "{bytes}: {most}");
        }
    }
}
