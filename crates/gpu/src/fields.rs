//! The fields of the kernels' structs as little-endian bytes.

/// Appends the fields of a struct of a kernel: first those of 64 bits, then those of 32 bits.
pub(crate) fn append_fields(wide: &[u64], narrow: &[u32], out: &mut Vec<u8>) {
    out.extend(wide.iter().flat_map(|field| field.to_le_bytes()));
    out.extend(narrow.iter().flat_map(|field| field.to_le_bytes()));
}

/// Returns the numbers of 32 bits in an output.
pub(crate) fn read_u32s(output: &[u8]) -> impl Iterator<Item = u32> {
    output.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes))
}

/// Returns the numbers of 64 bits in an output.
pub(crate) fn read_u64s(output: &[u8]) -> impl Iterator<Item = u64> {
    output.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes))
}
