//! Sizes as people write them.
//!
//! By hand: `bytesize` saturates where a size overflows and takes a lone K for 1000, and `parse-size` cannot tell K (1024) from
//! kB (1000).

/// Reads `2GB`, `512MiB`, `1.5 GB` or `1000000`: decimal units (kB, MB, GB, TB: powers of 1000), binary ones
/// (KiB, MiB, GiB, TiB, and K, M, G, T alone: powers of 1024), or bytes. Case does not matter.
///
/// # Errors
/// A sentence that says what would be right.
pub fn parse(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is no size: write for example 2GB, 512MiB or a number of bytes");
    let trimmed = text.trim();
    let end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(end);
    let scale: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1000,
        "mb" => 1000_u64.pow(2),
        "gb" => 1000_u64.pow(3),
        "tb" => 1000_u64.pow(4),
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        _ => return Err(wrong()),
    };
    let bytes = match number.parse::<u64>() {
        Ok(whole) => whole.checked_mul(scale).ok_or_else(wrong)?,
        Err(_) => {
            let bytes = number.parse::<f64>().map_err(|_| wrong())? * scale as f64;
            if bytes >= u64::MAX as f64 {
                return Err(wrong());
            }
            bytes as u64
        }
    };
    if bytes == 0 { Err(wrong()) } else { Ok(bytes) }
}

/// `bytes` with three digits and a decimal unit: `12.8 MB`.
pub fn format(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1000.0;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.digits$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        let good = [
            ("2GB", 2_000_000_000),
            ("512MiB", 512 << 20),
            ("1.5 gb", 1_500_000_000),
            ("64k", 65_536),
            ("123", 123),
        ];
        for (text, bytes) in good {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for text in ["", "GB", "-1GB", "2 apples", "0", "1e400", "99999999999999TB", "1.2.3MB"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_written() {
        let sizes = [(999, "999 B"), (1000, "1.00 kB"), (12_800_008, "12.8 MB"), (999_999_999, "1.00 GB")];
        for (bytes, text) in sizes {
            assert_eq!(format(bytes), text);
        }
    }
}
