//! Products of many cases: a share of them is taken each time, all of them in `make soak`.

/// Takes all cases.
const WHOLE: &str = "BATHYAL_WHOLE";

/// Whether the case `number` of a product is taken: one of `of`. Where `of` shares no divisor with the lengths of what is multiplied,
/// each value of these is taken with several of the others.
pub fn taken(number: usize, of: usize) -> bool {
    is_whole() || number.is_multiple_of(of)
}

/// Whether all cases are taken.
pub fn is_whole() -> bool {
    std::env::var_os(WHOLE).is_some()
}
